"""Bytes that a workload stores in, their sums and shares out: what remedies and plans over several GPUs take apart."""

from collections.abc import Sequence
from dataclasses import fields

from advisor.predict.blocks import outermost
from advisor.predict.step_memory import gradient_bytes
from advisor.records.workload import StoredBytes, Workload


def scaled(stored: StoredBytes, ratio: float) -> StoredBytes:
    """So much of each kind of memory."""
    return StoredBytes(**{field.name: _times(getattr(stored, field.name), ratio) for field in fields(StoredBytes)})


def added(parts: Sequence[StoredBytes]) -> StoredBytes:
    """All of them together."""

    def total(name: str) -> tuple[float, float]:
        lines = [getattr(part, name) for part in parts]
        return sum(line[0] for line in lines), sum(line[1] for line in lines)

    return StoredBytes(**{field.name: total(field.name) for field in fields(StoredBytes)})


def all_gradients(workload: Workload) -> StoredBytes:
    """Every gradient at once, as from one pass to the next where they are added up."""
    return StoredBytes(full=(gradient_bytes(workload), 0.0))


def gathered(workload: Workload, *, block_ratio: float = 1.0) -> StoredBytes:
    """What of the parameters is whole on every GPU under FSDP: what lies outside of blocks always, and two blocks.

    Those are the block that runs and the next, with its default prefetch (Zhao et al., PyTorch FSDP, 2023, section 3).
    Where each GPU has but a part of every block to begin with, `block_ratio` is that part.
    """
    blocks = outermost(workload.blocks)
    outside_bytes = workload.parameter_bytes - sum(one.parameter_bytes for one in blocks)
    two_blocks_bytes = 2 * block_ratio * max((one.largest_parameter_bytes for one in blocks), default=0)
    return StoredBytes(full=(float(outside_bytes + two_blocks_bytes), 0.0))


def _times(line: tuple[float, float], ratio: float) -> tuple[float, float]:
    return line[0] * ratio, line[1] * ratio
