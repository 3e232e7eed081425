"""Evaluates a row of a workload at a batch size: row in, operator call or cost out."""

from collections.abc import Callable

from advisor.ops.registry import Call, Cost, Number, Tensor, counted_as, formula_of
from advisor.records.workload import Operand, Row

DtypeOf = Callable[[Operand], str]
"""The dtype in which an operand is stored at the precision asked for."""


def row_cost(row: Row, *, batch: Number, dtype_of: DtypeOf | None = None) -> Cost:
    """FLOP and bytes of one of the row's calls at `batch`, a number or a numpy array.

    An operator without a formula is counted as moving its operands, with no FLOP (1 per output element in a row of the
    pointwise family): the caller lists it, see `formula_of`.
    """
    return call_cost(row, call_at(row, batch=batch, dtype_of=dtype_of))


def call_cost(row: Row, call: Call) -> Cost:
    """`row_cost` of a call that `call_at` gave."""
    formula = formula_of(row.op)
    if formula is not None:
        return formula.cost(call)
    return call.streamed(flops=call.output_numel if row.family == "pointwise" else 0.0)


def call_at(row: Row, *, batch: Number, dtype_of: DtypeOf | None = None) -> Call:
    """The operator call that the row stands for at `batch`, its operands rewritten to the dtypes of `dtype_of`.

    An operator in place goes by the name of the one that counts it, so that all that looks for it finds both.
    """
    dtype = dtype_of or _traced_dtype
    return Call(
        op=counted_as(row.op),
        inputs=tuple([_tensor(operand, batch=batch, dtype=dtype(operand)) for operand in row.inputs]),
        outputs=tuple([_tensor(operand, batch=batch, dtype=dtype(operand)) for operand in row.outputs]),
        attributes=row.attributes,
    )


def _tensor(operand: Operand, *, batch: Number, dtype: str) -> Tensor:
    # Floats: numpy would overflow on a product of integers. In one expression: an answer evaluates thousands.
    shape = [float(dim) if isinstance(dim, int) else dim[0] + dim[1] * batch for dim in operand.shape]
    return Tensor(shape=tuple(shape), dtype=dtype)


def _traced_dtype(operand: Operand) -> str:
    return operand.dtype
