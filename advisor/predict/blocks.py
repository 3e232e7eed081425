"""Locates a workload's rows in the model's repeated blocks."""

from collections.abc import Mapping, Sequence

from advisor.ops.matmul import CHOSEN_EXPERTS
from advisor.records.prediction import PARTS
from advisor.records.workload import Blocks, Phase, Row

_INDEX_PLACEHOLDER = "*"
"""Placeholder for the index of a block in a module's path."""
_DIRECTION: Mapping[Phase, str] = {
    "forward": "forward", "loss": "forward", "backward": "backward", "prefill": "forward", "decode": "forward",
}  # fmt: skip


_SERVING_PHASES: tuple[Phase, ...] = ("prefill", "decode")


def block_of(row: Row) -> str:
    """Return the path of the outermost repeated block that contains the row, or "" if there is none.

    "h.*.attn.c_proj" is in "h.*".
    """
    head, mark, _ = row.module.partition(_INDEX_PLACEHOLDER)
    return head + mark if mark else ""


def is_inner(row: Row) -> bool:
    """Return whether tensor parallelism splits the row: it is in a submodule of a block that is not a norm.

    Inference engines also split the matmul that computes the logits (vLLM: `ParallelLMHead`).
    """
    if row.phase in _SERVING_PHASES and row.family == "matmul":
        return True
    block = block_of(row)
    return bool(block) and row.module != block and row.family not in ("norm", "rms_norm")


def is_of_experts(row: Row) -> bool:
    """Return whether the row is a product of a mixture of experts, which a served model's GPUs can divide."""
    return CHOSEN_EXPERTS in row.attributes


def part_of(row: Row) -> int:
    """Return the row's part of the step, as an index of `PARTS`."""
    if row.phase == "optimizer":
        return PARTS.index("optimizer")
    if row.op == "attention" and any(operand.kept for operand in row.inputs):
        return PARTS.index("cached_forward")
    place = "inner_" if is_inner(row) else "block_" if block_of(row) else ""
    return PARTS.index(place + _DIRECTION[row.phase])


def outermost(blocks: Sequence[Blocks]) -> list[Blocks]:
    """Return the blocks that are not inside another block."""
    return [one for one in blocks if not any(_is_in(one, other) for other in blocks)]


def innermost(blocks: Sequence[Blocks]) -> list[Blocks]:
    """Return the blocks that contain no other block."""
    return [one for one in blocks if not any(_is_in(other, one) for other in blocks)]


def _is_in(inner: Blocks, outer: Blocks) -> bool:
    return inner.path.startswith(f"{outer.path}.")
