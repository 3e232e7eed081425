"""Evaluates rows and memory of a workload at a batch size, as operator calls, costs or bytes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter

from advisor.ops.registry import Call, Cost, Number, Tensor, counted_as, formula_of
from advisor.records.workload import Growth, Operand, Row

DtypeOf = Callable[[Operand], str]
"""Returns the dtype in which an operand is stored at the requested precision."""

_COMPLEX_FLOPS: Mapping[str, float] = {
    **dict.fromkeys(("matmul", "conv", "linalg"), 4.0),
    **dict.fromkeys(("aten.mul", "aten.prod", "aten.cumprod"), 6.0),
    "fft": 1.0,
}
"""FLOP of complex numbers relative to real ones, by operator or family, 2 in the others: a product has four
multiplications and two additions, a sum two, and a multiply-add eight instead of two. Fourier transforms count real
FLOP themselves."""


def row_cost(row: Row, *, batch: Number, dtype_of: DtypeOf = attrgetter("dtype")) -> Cost:
    """Return the FLOP and bytes of one of the row's calls at `batch`, a number or a numpy array.

    An operator without a formula is counted as moving its operands, with no FLOP, or 1 FLOP per output element if the
    row's family is pointwise. The caller must list such operators; see `formula_of`.
    """
    return call_cost(row, call_at(row, batch=batch, dtype_of=dtype_of))


def call_cost(row: Row, call: Call) -> Cost:
    """Return the `row_cost` of a call made by `call_at`."""
    formula = formula_of(row.op)
    if formula is not None:
        cost = formula.cost(call)
    else:
        cost = call.streamed(flops=call.output_numel if row.family == "pointwise" else 0.0)
    if any(tensor.dtype.startswith("complex") for tensor in call.inputs):
        cost = replace(cost, flops=cost.flops * _COMPLEX_FLOPS.get(call.op, _COMPLEX_FLOPS.get(row.family, 2.0)))
    return cost


def call_at(row: Row, *, batch: Number, dtype_of: DtypeOf = attrgetter("dtype")) -> Call:
    """Return the row's operator call at `batch`, with the operands' dtypes taken from `dtype_of`.

    An in-place operator without a formula of its own gets the name of its out-of-place form, so that a search by name
    finds both.
    """
    return Call(
        op=counted_as(row.op),
        inputs=tuple([_tensor(operand, batch=batch, dtype=dtype_of(operand)) for operand in row.inputs]),
        outputs=tuple([_tensor(operand, batch=batch, dtype=dtype_of(operand)) for operand in row.outputs]),
        attributes=row.attributes,
    )


def bytes_at(growth: Growth, *, batch: Number) -> Number:
    """Return the bytes at `batch`, a number or a numpy array."""
    start, per_sample, *squared = growth
    size: Number = start + per_sample * batch
    return size + squared[0] * batch * batch if squared else size


def falls(growth: Growth) -> bool:
    """Return whether the bytes, or a dimension, are fewer at some batch than at the one before, of at least 1.

    From n to n + 1 they grow by b + c x (2 n + 1), the least of which is b + 3 c, unless c is negative.
    """
    _, per_sample, *squared = growth
    return min(squared, default=0.0) < 0 or per_sample + 3 * sum(squared) < 0


def _tensor(operand: Operand, *, batch: Number, dtype: str) -> Tensor:
    # Floats, because a product of numpy integers can overflow. One expression for speed: an answer evaluates thousands.
    shape = [float(dim) if isinstance(dim, int) else dim[0] + dim[1] * batch for dim in operand.shape]
    return Tensor(shape=tuple(shape), dtype=dtype)
