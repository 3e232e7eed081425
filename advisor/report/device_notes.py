"""Writes the notes on parts of GPUs and on accelerators with software of their own: the basis of their predictions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from advisor.records.answer import Quote
from advisor.records.device import Gpu

_SHOWN_COUNT = 10
"""Rows of a ranking whose devices have notes."""


def device_notes(device_ids: Iterable[str], gpus: Mapping[str, Gpu]) -> Iterator[str]:
    """Yield notes on the time-sliced GPUs among the devices, on the MIG instances, and on each software stack."""
    found = [gpu for name in dict.fromkeys(device_ids) if (gpu := gpus.get(name)) is not None]
    parts = [gpu for gpu in found if gpu.part_of]
    if shared := [f"{gpu.name} ({gpu.time_ratio:.3g} of one {gpu.part_of})" for gpu in parts if gpu.time_ratio < 1]:
        yield (
            f"time-sliced GPUs, {', '.join(shared)}: predicted with the share that is sold, as under fixed share; the "
            "lower end of the interval is that of the whole GPU, as under best effort while other tenants are idle; "
            "under best effort a second busy tenant doubles the time, since all busy ones get equal parts of it"
        )
    if instances := [gpu.name for gpu in parts if gpu.time_ratio == 1]:
        yield (
            f"MIG instances, {', '.join(instances)}: SMs, L2, memory and bandwidth are their own, and only power and "
            "PCIe are shared with other tenants; predicted from these shares, not measured"
        )
    stacks: dict[str, list[str]] = {}
    for gpu in found:
        if gpu.stack is not None:
            stacks.setdefault(gpu.stack, []).append(gpu.name)
    for stack, names in stacks.items():
        yield (
            f"{', '.join(names)}: needs {stack}, which compiles the model; its prediction rests on few published steps "
            "(docs/accelerators.md)"
        )


def leading_devices(quotes: Sequence[Quote]) -> list[str]:
    """Return the ids of the devices in the first rows of a ranking."""
    return [quote.device.id for quote in quotes[:_SHOWN_COUNT]]
