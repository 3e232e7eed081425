"""Records `flex_attention` as the attention composite, with the share of blocks that its mask leaves to compute."""

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from advisor.workload.patching import Patch
from advisor.workload.recorder import PAUSED, Recorder

FLEX_MODULE = "torch.nn.attention.flex_attention"
_NAME = "flex_attention"
_MOST_PAIRS = 2**27
"""Pairs of query and key at which a mask is evaluated, in a second: all pairs of one sample and head up to a length of
11,585; of a larger mask, blocks of queries at even distances."""
_MOST_HEADS = 16
"""Pairs of sample and head at which a mask that has one for each is evaluated."""

COMPILED_NOTE = "flex_attention is compiled, into one kernel forward"
UNKNOWN_NOTE = "flex_attention computes every block of its mask, because the mask depends on data"
UNMASKED_NOTE = "in the real step, flex_attention has neither its mask nor its changes of scores"


def is_flex_attention(func: Any) -> bool:
    """Return whether a function is the operator that `flex_attention` calls."""
    return isinstance(func, torch._ops.HigherOrderOperator) and func.name() == _NAME


def result_count() -> int:
    """Return the number of results of the operator: since torch 2.9, the greatest scores after the log-sum-exp."""
    return 3 if hasattr(sys.modules[FLEX_MODULE], "AuxRequest") else 2


def flex_patches(recorder: Recorder) -> Iterator[Patch]:
    """Yield patches with which `flex_attention` reaches its operator in a trace, if it is imported.

    It refuses gradients on CPUs, warns that it is not compiled, and makes an empty mask that a compiled call does not.
    """
    module = sys.modules.get(FLEX_MODULE)
    if module is None:
        return
    for name in ("_validate_device", "_warn_once"):
        if hasattr(module, name):
            yield module, name, lambda *_, **__: None
    yield module, "_create_empty_block_mask", recorder.within(PAUSED)(module._create_empty_block_mask)


class BlockShares:
    """Finds which share of the blocks of scores a mask leaves to compute; remembers it for masks used again."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], float | None] = {}

    def of(self, mask: tuple[Any, ...], *, q_len: int, kv_len: int) -> float | None:
        """Return the share (1.0: all blocks), or None if it depends on data that the trace lacks.

        `mask` is `BlockMask.as_tuple()`: (q_len, kv_len, number of partial blocks (..., rows), their places, number of
        full blocks, their places, ..., block size of queries, block size of keys, function).
        """
        counts, full_counts = mask[2], mask[4]
        *_, q_block, kv_block, function = mask
        rows, columns = math.ceil(q_len / q_block), math.ceil(kv_len / kv_block)
        if rows == columns == 1:
            return 1.0
        if not hasattr(counts, "fake_mode"):
            with _disable_current_modes():
                computed = sum(float(one.sum()) for one in (counts, full_counts) if one is not None)
            return computed / int(counts.numel() * columns)
        key = (function, *counts.shape[:2], q_len, kv_len, q_block, kv_block)
        if key not in self._known:
            self._known[key] = _evaluated(*key)
        return self._known[key]


def _evaluated(
    function: Callable[..., Any], samples: int, heads: int, q_len: int, kv_len: int, q_block: int, kv_block: int
) -> float | None:
    """Return the share of blocks in which the function lets any query see a key; None if it needs data."""
    chosen = [divmod(index, heads) for index in _evenly(samples * heads, most=_MOST_HEADS)]
    rows = _evenly(math.ceil(q_len / q_block), most=max(1, _MOST_PAIRS // (len(chosen) * q_block * kv_len)))
    try:
        with _disable_current_modes():
            computed = sum(
                _computed_count(
                    function,
                    torch.tensor(sample),
                    torch.tensor(head),
                    queries=torch.arange(row * q_block, min(q_len, (row + 1) * q_block)),
                    keys=torch.arange(kv_len),
                    kv_block=kv_block,
                )
                for sample, head in chosen
                for row in rows
            )
    except Exception:  # noqa: BLE001 - the function is the user's code, and may need values of fake tensors
        return None
    return computed / (len(chosen) * len(rows) * math.ceil(kv_len / kv_block))


def _evenly(count: int, *, most: int) -> list[int]:
    """Return all indices below `count`, or `most` of them at even distances."""
    taken = min(count, most)
    return [(2 * index + 1) * count // (2 * taken) for index in range(taken)]


def _computed_count(
    function: Callable[..., Any],
    sample: torch.Tensor,
    head: torch.Tensor,
    *,
    queries: torch.Tensor,
    keys: torch.Tensor,
    kv_block: int,
) -> int:
    """Return the number of blocks of keys in which any of the queries sees a key."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex  # as torch's `create_mask` does

    of_keys = torch.vmap(function, in_dims=(None, None, None, 0))
    with TransformGetItemToIndex():
        is_seen = torch.vmap(of_keys, in_dims=(None, None, 0, None))(sample, head, queries, keys).any(dim=0)
    return sum(bool(block.any()) for block in is_seen.split(kv_block))


def changes_of_scores(function: Callable[..., Any], query: torch.Tensor, *, recorder: Recorder) -> torch.Tensor | None:
    """Return a number that depends on the parameters in a function that changes scores, or None if there are none.

    As an operand of the composite it passes the parameters their gradients.
    """
    if not torch.is_grad_enabled():
        return None
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    with recorder.within(PAUSED), TransformGetItemToIndex():
        score, place = query.new_zeros(()), torch.zeros((), dtype=torch.int32)
        changed: torch.Tensor = function(score, place, place, place, place)
    return changed if changed.requires_grad else None
