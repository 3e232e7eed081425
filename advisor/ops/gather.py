"""Costs of indexed reads and writes, which move the indexed elements and the indices, not the whole tensor.

Writes are counted as in place, unless `COPIES_DESTINATION` is set.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce, wraps
from typing import Any

from advisor.ops.registry import (
    COPIES_DESTINATION,
    Call,
    Cost,
    Number,
    Tensor,
    aten,
    counted_as,
    formula,
    is_one,
    larger,
    streaming,
)


@formula(
    *aten("index index_select gather take take_along_dim _unsafe_index _unsafe_masked_index masked_select"),
    family="gather",
)
def _gather(call: Call) -> Cost:
    """Inputs (source, indices or mask...): reads as many elements of the source as the result has."""
    source, *indices = call.inputs
    return call.reading(*indices, read_bytes=call.output_numel * source.itemsize_bytes)


EXPANDED_INDEX = frozenset(aten("gather scatter scatter_add scatter_reduce"))
"""The operators whose second operand, the index, may be expanded by strides of 0 if it has a source or a result."""
INDEXED_WRITES: set[str] = set()
"""The operators that write at indices of their first input."""


def _indexed_write(*ops: str, **traits: Any) -> Callable[[Callable[[Call], Cost]], None]:
    """Register the decorated function as the cost of writes in place, to which that of the copy is added, if any."""

    def register(in_place: Callable[[Call], Cost]) -> None:
        @wraps(in_place)
        def cost(call: Call) -> Cost:
            found = in_place(call)
            if not call.attributes.get(COPIES_DESTINATION):
                return found
            copied_bytes = call.inputs[0].size_bytes
            return replace(
                found, read_bytes=found.read_bytes + copied_bytes, write_bytes=found.write_bytes + copied_bytes
            )

        formula(*ops, family="gather", **traits)(cost)
        INDEXED_WRITES.update(ops)

    return register


@_indexed_write(*aten("index_put _index_put_impl _unsafe_index_put"), attributes=("accumulate",))
def _index_put(call: Call) -> Cost:
    """Inputs (destination, indices..., values): writes in place at the indices."""
    destination, *indices, values = call.inputs
    touched = _indexed_numel(destination, indices=indices, values=values)
    return _write_touched(call, touched=touched, adds=bool(call.attributes.get("accumulate")))


@_indexed_write(*aten("scatter scatter_add scatter_reduce"))
def _scatter(call: Call) -> Cost:
    """Inputs (destination, index[, source]): one element is written, or added to, for each index.

    An expanded index has the sizes in which it is stored: a length of 1 counts as that of the source.
    """
    destination, index, *source = call.inputs
    lengths = zip(index.shape, source[0].shape if source else index.shape, strict=False)
    touched = math.prod(own if not is_one(own) else given for own, given in lengths)
    read_bytes = index.size_bytes + touched * sum(tensor.itemsize_bytes for tensor in source)
    return _write(destination, touched=touched, read_bytes=read_bytes, adds=counted_as(call.op) != "aten.scatter")


@_indexed_write(*aten("index_fill"), attributes=("dim",))
def _index_fill(call: Call) -> Cost:
    """Inputs (destination, index[, value]): writes the indexed slices of dimension `dim`."""
    destination, index = call.inputs[:2]
    dim = call.attributes["dim"] % len(destination.shape)
    slice_numel = math.prod(destination.shape[:dim]) * math.prod(destination.shape[dim + 1 :])
    touched_bytes = index.numel * slice_numel * destination.itemsize_bytes
    return Cost(read_bytes=index.size_bytes, write_bytes=touched_bytes)


def _write_touched(call: Call, *, touched: Number, adds: bool) -> Cost:
    """Return the cost of writing `touched` elements of the first input; the other inputs are read whole."""
    destination, *others = call.inputs
    return _write(destination, touched=touched, read_bytes=sum(tensor.size_bytes for tensor in others), adds=adds)


def _write(destination: Tensor, *, touched: Number, read_bytes: Number, adds: bool) -> Cost:
    """Return the cost of writing elements of `destination`; `adds` reads each first and adds to it (1 FLOP)."""
    touched_bytes = touched * destination.itemsize_bytes
    return Cost(flops=touched * adds, read_bytes=read_bytes + touched_bytes * adds, write_bytes=touched_bytes)


# Inputs (destination, mask or index..., values): each value goes to one element of the destination.
_ADDED = aten("_unsafe_masked_index_put_accumulate index_add index_reduce")
_indexed_write(*_ADDED)(lambda call: _write_touched(call, touched=call.inputs[-1].numel, adds=True))
_indexed_write(*aten("index_copy"))(lambda call: _write_touched(call, touched=call.inputs[-1].numel, adds=False))
# Inputs (destination, index, source).
_indexed_write(*aten("put"), attributes=("accumulate",))(
    lambda call: _write_touched(call, touched=call.inputs[1].numel, adds=bool(call.attributes.get("accumulate")))
)
# All elements are read and written: those with a false mask keep their value.
streaming(*aten("masked_scatter masked_scatter_backward"), family="gather", fusable=True, flops=0)
# One comparison per element.
streaming(*aten("nonzero argwhere nonzero_static"), family="gather", flops=1, per=0)


def _indexed_numel(destination: Tensor, *, indices: list[Tensor], values: Tensor) -> Number:
    """Return the number of elements in `destination[indices]`, at least as many as there are values.

    A single value is broadcast: the count is then the indices' elements times the dimensions that are not indexed. The
    trace does not say which dimensions are indexed; they are taken to be the first. A mask counts as all true. A length
    that depends on the batch is an array or not 1, so it never makes a value a single one.
    """
    if not all(map(is_one, values.shape)):
        return larger(values.numel, _broadcast_numel(indices))
    indexed_dims = sum(len(index.shape) if index.dtype in ("bool", "uint8") else 1 for index in indices)
    return _broadcast_numel(indices) * math.prod(destination.shape[indexed_dims:])


def _broadcast_numel(tensors: list[Tensor]) -> Number:
    """Return the number of elements of the broadcast shape."""
    rank = max((len(tensor.shape) for tensor in tensors), default=0)
    numel: Number = 1.0
    for position in range(1, rank + 1):
        lengths = (tensor.shape[-position] for tensor in tensors if len(tensor.shape) >= position)
        numel = numel * reduce(larger, lengths)
    return numel
