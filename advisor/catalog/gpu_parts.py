"""Reads the parts of GPUs, MIG instances and time-sliced vGPUs, and makes a profile of each from its parent's."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from advisor.catalog.fields import read_record
from advisor.catalog.strict_yaml import Node, read_documents
from advisor.errors import did_you_mean
from advisor.records.device import Gpu

_KINDS = ("mig", "time_sliced")
_PEAKS = tuple(field.name for field in fields(Gpu) if field.name.endswith("flops_per_s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _MigInstance:
    """A MIG instance: its SMs and memory, and its share of the memory slices."""

    sm_count: int
    memory_ratio: float
    memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimeSlice:
    """A time-sliced vGPU: its memory, and the share of the GPU's time that is sold."""

    time_ratio: float
    memory_bytes: float


def with_parts(gpus: Mapping[str, Gpu], *, file: Path) -> dict[str, Gpu]:
    """Return the GPUs and the parts that the file describes; raise `ProfileError` at the first mistake.

    The id of a part is PARENT-SLICE. The aliases of its parent name it too: "H100 MIG 1g.10gb", "H100-1g.10gb".
    """
    found = dict(gpus)
    for document in read_documents(file):
        document.root.check_keys(_KINDS)
        for kind in document.root.entries():
            kind.check_keys(("source", "gpus"), required=("source", "gpus"), hint="write where the shares come from")
            for parent in kind["gpus"].entries():
                if parent.key not in gpus:
                    raise parent.error(f"no profile describes {parent.key!r}", hint=did_you_mean(parent.key, gpus))
                whole = gpus[parent.key]
                for node in parent.entries():
                    part = _mig_instance(whole, node) if kind.key == "mig" else _time_slice(whole, node)
                    found.setdefault(part.id, replace(part, source=f"{kind['source'].text()}; {whole.source}"))
    return found


def _mig_instance(whole: Gpu, node: Node) -> Gpu:
    """Return a MIG instance: it has SMs, memory, bandwidth and L2 of its own, and a like share of the power."""
    instance = read_record(_MigInstance, node)
    sm_ratio = instance.sm_count / whole.sm_count
    _check_share(node["sm_count"], sm_ratio)
    _check_share(node["memory_ratio"], instance.memory_ratio)
    return replace(
        _part(whole, node.key, rate_ratio=sm_ratio, bandwidth_ratio=instance.memory_ratio),
        name=f"{whole.name} MIG {node.key}",
        aliases=_names_of(whole, node.key, separators=(" MIG ", "-")),
        sm_count=instance.sm_count,
        memory_bytes=instance.memory_bytes,
        l2_bytes=whole.l2_bytes and whole.l2_bytes * instance.memory_ratio,
    )


def _time_slice(whole: Gpu, node: Node) -> Gpu:
    """Return a vGPU with the share that is sold: the whole GPU, with a slower clock and a slower memory.

    Its share of L2 is taken to be the same: what it leaves there, the other tenants replace before its next turn.
    """
    time_slice = read_record(_TimeSlice, node)
    ratio = time_slice.time_ratio
    _check_share(node["time_ratio"], ratio)
    return replace(
        _part(whole, node.key, rate_ratio=ratio, bandwidth_ratio=ratio),
        name=f"{whole.name}-{node.key.upper()}",
        aliases=_names_of(whole, node.key.upper(), separators=("-",)),
        boost_hz=whole.boost_hz * ratio,
        memory_bytes=time_slice.memory_bytes,
        l2_bytes=whole.l2_bytes and whole.l2_bytes * ratio,
        time_ratio=ratio,
    )


def _check_share(node: Node, ratio: float) -> None:
    if ratio > 1:
        raise node.error(f"a part has {ratio:.3g} times what its parent has", hint="write a share of at most 1")


def _names_of(whole: Gpu, slice_name: str, *, separators: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name}{mark}{slice_name}" for name in whole.aliases for mark in separators)


def _part(whole: Gpu, slice_name: str, *, rate_ratio: float, bandwidth_ratio: float) -> Gpu:
    """Return the GPU with a share of its peaks, power and bandwidth, without links to other GPUs.

    MIG instances and vGPUs do not reach each other over NVLink (MIG User Guide, "Deployment Considerations").
    """
    return replace(
        whole,
        id=f"{whole.id}-{slice_name}",
        memory_bytes_per_s=whole.memory_bytes_per_s * bandwidth_ratio,
        nvlink_bytes_per_s=None,
        nvlink_reach=None,
        infinity_fabric_link_bytes_per_s=None,
        tdp_w=whole.tdp_w and whole.tdp_w * rate_ratio,
        part_of=whole.id,
        **{name: rate * rate_ratio for name in _PEAKS if (rate := getattr(whole, name)) is not None},
    )
