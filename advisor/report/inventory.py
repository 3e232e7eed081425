"""Makes the answer on the devices of this machine, with their profiles and calibrations."""

from collections.abc import Callable, Iterator, Sequence

from advisor.records.device import Cpu, Device, Gpu
from advisor.records.machine import Inventory, LocalDevice, Machine
from advisor.report.content import Block, Listing, Paragraph
from advisor.report.tables import ColumnOf, column, numbers, table_of
from advisor.units import format_bytes, format_significant

_KNOWN_COLUMNS: Sequence[ColumnOf[Gpu | Cpu]] = (
    column("id", lambda profile: profile.id),
    column("device", lambda profile: profile.name),
    numbers("memory GB/s", lambda profile: profile.memory_bytes_per_s / 1e9, format_significant),
)


def inventory_content(inventory: Inventory) -> Iterator[Block]:
    """Yield what this process may use of the machine, its devices, and what could not be read."""
    version, threads = inventory.torch.version, inventory.torch.thread_count
    used = (f"torch {version} uses {_counted(threads, 'thread')}.",) if version else ()
    yield Paragraph(title=_cpu_sentence(inventory.machine), sentences=used)
    yield table_of(inventory.devices, _columns(inventory), is_first_highlighted=True)
    notes = [f"{local.id}, {local.name}: {local.note}" for local in inventory.devices if local.note]
    yield Listing(title="Notes", items=(*notes, *inventory.notes))
    title = f"Other devices with a profile ({len(inventory.others):,})"
    yield table_of(inventory.others, _KNOWN_COLUMNS, title=title)


def _cpu_sentence(machine: Machine) -> str:
    """Return the CPU by its own name, with what this process may use of it."""
    parts = [f"{_counted(machine.core_count, 'core')} and {_counted(machine.thread_count, 'thread')} for this process"]
    parts += [
        f"{name} {format_bytes(size_bytes)}"
        for name, size_bytes in (("L2", machine.l2_bytes), ("L3", machine.l3_bytes), ("memory", machine.memory_bytes))
        if size_bytes is not None
    ]
    parts += [", ".join(machine.isa)] if machine.isa else []
    return f"{machine.cpu_name or 'Unnamed CPU'}: {'; '.join(parts)}."


def _columns(inventory: Inventory) -> tuple[ColumnOf[LocalDevice], ...]:
    """Return the figures used in predictions: from the profile, for the cores and memory of this machine."""

    def figure(
        header: str, value: Callable[[Device], float | None], text: Callable[[float], str] = format_significant
    ) -> ColumnOf[LocalDevice]:
        return numbers(header, lambda local: value(local.device) if local.device else None, text, missing="")

    def calibrated(local: LocalDevice) -> str:
        return inventory.calibrated_at.get(local.device.id, "no")[:10] if local.device else ""

    return (
        column("here", lambda local: local.id),
        column("device", lambda local: local.name),
        column("profile", lambda local: local.profile.id if local.profile else "none"),
        figure("cores", lambda device: device.core_count),
        figure("memory", lambda device: device.memory_bytes, format_bytes),
        figure("GB/s", lambda device: device.memory_bytes_per_s / 1e9),
        figure("fp32 TFLOP/s", lambda device: device.peak_flops_per_s["fp32"] / 1e12),
        figure("half", _half_tflops_per_s),
        column("calibrated", calibrated),
    )


def _half_tflops_per_s(device: Device) -> float | None:
    peak = max((device.peak_flops_per_s.get(unit, 0.0) for unit in ("fp16", "bf16")), default=0.0)
    return peak / 1e12 or None


def _counted(count: float, noun: str) -> str:
    return f"{format_significant(count)} {noun}{'' if count == 1 else 's'}"
