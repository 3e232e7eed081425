"""Computes the memory that a step's rows need beyond the traced tensors, at every batch size."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from advisor.ops.evaluate import call_at
from advisor.ops.registry import ITEMSIZE_BYTES, Number, autocast_of
from advisor.predict.precision import Width, computed_dtype, stored_dtype
from advisor.predict.row_work import constant_bytes, is_constant, refusing_rows
from advisor.records.prediction import FloatArray
from advisor.records.workload import Row, Workload

_KEPT_COUNT = 8
"""Cached tables: one answer reads the same few, of a few workloads at three widths, hundreds of times."""
_ELEMENTS_AT_ONCE = 2**20
"""Calls x batches computed at once, so that an array takes 8 MiB however many rows there are. Chosen to bound the
memory; results do not depend on it."""
_DROPOUT_SCORES = 3
"""Tensors of the size of the attention scores that the math path keeps for backward: softmax, mask, their product."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sizes:
    """The sizes of one operand in several calls: its dimensions are a + b x batch, (calls, dims), padded with ones."""

    a: FloatArray
    b: FloatArray
    element_bytes: FloatArray
    """Bytes of an element; 0 if a call has no such operand."""

    def at(self, batches: FloatArray, calls: slice) -> FloatArray:
        """Return the bytes of these calls, (calls, batches)."""
        numel = np.ones((len(self.element_bytes[calls]), len(batches)))
        for index in range(self.a.shape[1]):
            numel *= self.a[calls, index, None] + self.b[calls, index, None] * batches
        return numel * self.element_bytes[calls, None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowMemory:
    """The memory that rows need beyond the traced tensors."""

    half_copies_bytes: float
    """Bytes of autocast's 16-bit copies of the fp32 parameters that low-precision operators of forward read."""
    has_product: bool
    """True if a matmul library is used."""
    _score_bytes: float
    _scores: tuple[tuple[Row, int], ...]
    _convolution_count: int
    _convolutions: tuple[_Sizes, ...]

    def dropout_scores_bytes(self, batches: FloatArray) -> FloatArray:
        """Return the bytes that attention with dropout keeps on a CPU, where torch has no fused kernel for it."""
        total = np.zeros(len(batches))
        for row, count in self._scores:
            total = total + count * _DROPOUT_SCORES * _score_count(row, batches) * self._score_bytes
        return total

    def largest_convolution_bytes(self, batches: FloatArray) -> FloatArray:
        """Return the bytes of all operands of the convolution with the most."""
        largest = np.zeros(len(batches))
        calls_at_once = max(1, _ELEMENTS_AT_ONCE // len(batches))
        for first in range(0, self._convolution_count, calls_at_once):
            calls = slice(first, first + calls_at_once)
            size_bytes = np.sum([sizes.at(batches, calls) for sizes in self._convolutions], axis=0)
            largest = np.maximum(largest, size_bytes.max(axis=0))
        return largest


def row_memory(workload: Workload, *, width: Width) -> RowMemory:
    """Return the memory that the rows of `workload` need at this width."""
    return _of_rows(_Rows(workload.rows), width)


class _Rows:
    """The rows of a workload, hashed and compared by identity."""

    def __init__(self, rows: tuple[Row, ...]) -> None:
        self.rows = rows

    def __hash__(self) -> int:
        return id(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rows) and self.rows is other.rows


@lru_cache(maxsize=_KEPT_COUNT)
def _of_rows(of: _Rows, width: Width) -> RowMemory:
    dtype_of = computed_dtype(width=width, autocast="low")
    convolutions = {
        tuple((operand.shape, ITEMSIZE_BYTES[dtype_of(operand)]) for operand in (*row.inputs, *row.outputs))
        for row in of.rows
        if row.family == "conv"
    }
    place_count = max(map(len, convolutions), default=0)
    filled = [[*call, *[((), 0.0)] * (place_count - len(call))] for call in convolutions]
    return RowMemory(
        half_copies_bytes=sum(map(_half_copies_bytes, of.rows)) if width == "autocast" else 0.0,
        has_product=any(row.family in ("matmul", "attention", "rnn") for row in of.rows),
        _score_bytes=4.0 if width == "full" else 2.0,
        _scores=_distinct_scores(of.rows),
        _convolution_count=len(filled),
        _convolutions=tuple(_sizes([call[place] for call in filled]) for place in range(place_count)),
    )


def _sizes(operands: Sequence[tuple[tuple[Any, ...], float]]) -> _Sizes:
    dims = np.zeros((len(operands), max(len(shape) for shape, _ in operands), 2))
    dims[..., 0] = 1.0
    for index, (shape, _) in enumerate(operands):
        for place, dim in enumerate(shape):
            dims[index, place] = dim if isinstance(dim, tuple) else (dim, 0.0)
    return _Sizes(a=dims[..., 0], b=dims[..., 1], element_bytes=np.array([size for _, size in operands]))


def _half_copies_bytes(row: Row) -> float:
    if row.phase != "forward" or autocast_of(row.op, row.attributes, on_cpu=False) != "low":
        return 0.0
    constant = [operand for operand in row.inputs if is_constant(operand)]
    return sum(
        row.count * constant_bytes(operand, dtype="float16")
        for operand in constant
        if stored_dtype(operand, width="autocast") == "float32"
    )


def _distinct_scores(rows: Iterable[Row]) -> tuple[tuple[Row, int], ...]:
    """Return a row for each set of attention shapes with dropout, with its calls; empty without a backward pass."""
    if all(row.op != "attention_backward" for row in rows):
        return ()
    found: dict[Any, tuple[Row, int]] = {}
    for row in rows:
        if row.op == "attention" and row.attributes.get("dropout_ratio") and row.phase == "forward":
            shapes = tuple(operand.shape for operand in row.inputs)
            first, count = found.get(shapes, (row, 0))
            found[shapes] = first, count + row.count
    return tuple(found.values())


@refusing_rows
def _score_count(row: Row, batches: FloatArray) -> Number:
    query, key = call_at(row, batch=batches).inputs[:2]
    return query.numel / query.shape[-1] * key.shape[-2]
