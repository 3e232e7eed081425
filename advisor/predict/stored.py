"""Adds and scales the bytes that a workload stores, for remedies and for plans over several GPUs."""

from collections.abc import Sequence
from dataclasses import fields

from advisor.predict.blocks import outermost
from advisor.predict.step_memory import gradient_bytes
from advisor.records.workload import StoredBytes, Workload


def scaled(stored: StoredBytes, ratio: float) -> StoredBytes:
    """Return each kind of memory multiplied by `ratio`."""
    return StoredBytes(**{field.name: _times(getattr(stored, field.name), ratio) for field in fields(StoredBytes)})


def added(parts: Sequence[StoredBytes]) -> StoredBytes:
    """Return the sum of the parts."""

    def total(name: str) -> tuple[float, float]:
        lines = [getattr(part, name) for part in parts]
        return sum(line[0] for line in lines), sum(line[1] for line in lines)

    return StoredBytes(**{field.name: total(field.name) for field in fields(StoredBytes)})


def all_gradients(workload: Workload) -> StoredBytes:
    """Return the bytes of all gradients, which stay in memory between passes under gradient accumulation."""
    return StoredBytes(full=(gradient_bytes(workload), 0.0))


def gathered(workload: Workload, *, block_ratio: float = 1.0) -> StoredBytes:
    """Return the parameters that every GPU holds unsharded under FSDP: all outside of blocks, and two blocks.

    The two are the running block and the next one, which FSDP prefetches by default (Zhao et al., PyTorch FSDP, 2023,
    section 3). If each GPU has only a part of every block before sharding, `block_ratio` is that part.
    """
    blocks = outermost(workload.blocks)
    outside_bytes = workload.parameter_bytes - sum(one.parameter_bytes for one in blocks)
    two_blocks_bytes = 2 * block_ratio * max((one.largest_parameter_bytes for one in blocks), default=0)
    return StoredBytes(full=(float(outside_bytes + two_blocks_bytes), 0.0))


def _times(line: tuple[float, float], ratio: float) -> tuple[float, float]:
    return line[0] * ratio, line[1] * ratio
