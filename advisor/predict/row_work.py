"""Evaluates the work of a workload's rows on any device: FLOP, bytes, casts and matrix products at every batch size."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from advisor.errors import ROW_ERRORS, DocumentError, row_problem
from advisor.ops.conv import weight_of
from advisor.ops.evaluate import DtypeOf, call_at, call_cost, row_cost
from advisor.ops.optimizer import PAGED
from advisor.ops.registry import ITEMSIZE_BYTES, Call, Cost, autocast_of, formula_of, number_of
from advisor.predict.composite_kernels import CASTS
from advisor.predict.precision import (
    AUTOCASTS,
    FLOATS,
    NARROW_UNITS,
    Width,
    compiled_dtype,
    computed_dtype,
    stored_dtype,
)
from advisor.predict.products import Product, products_of
from advisor.records.device import CompileMode
from advisor.records.prediction import FloatArray
from advisor.records.workload import Mode, Operand, Row, Workload

_FLOAT_DTYPES = FLOATS | {"complex128", "complex64"}
_WITH_IMAGES = (True,)
"""The start of the `output_mask` of a convolution that has none."""
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowWork:
    """The work of one call of a row, with its operands at one width; arrays are (batches,)."""

    index: int
    """Index of the workload's rows."""
    row: Row
    call: Call
    cost: Cost
    dtype: str
    """The dtype it computes in."""
    read_bytes: FloatArray
    """Bytes read, without parameters and repeated reads."""
    parameter_bytes: FloatArray
    """Bytes read of parameters, of convolutions' weights, even if computed, and of what is kept between passes."""
    cast_bytes: FloatArray
    """Bytes of the casts before or after the call."""
    cast_count: int
    parameter_cast_bytes: FloatArray
    """Bytes of the casts of parameters, which torch.compile cannot fuse."""
    parameter_cast_count: int
    compiled_bytes: FloatArray
    """Bytes that torch.compile reads and writes, without parameters; zero in eager mode."""
    compiled_read_bytes: FloatArray
    """Bytes of all inputs but parameters as torch.compile reads them, fused or not; zero in eager mode."""
    image_bytes: FloatArray
    """Bytes of all images of a convolution."""
    products: tuple[Product, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowCounts:
    """The work of the rows of a step, in one compile mode; arrays are (batches,)."""

    rows: tuple[RowWork, ...]
    """The rows that move bytes; a view does not."""
    transfer_bytes: FloatArray
    """Bytes that the step copies to the device."""
    paged_bytes: FloatArray
    """Bytes of the optimizer's state that it copies from and to the host's memory."""
    batches: FloatArray
    compile: CompileMode
    pass_count: int = 1
    """How often the step reads its parameters."""


def count_rows(
    workload: Workload, *, batches: FloatArray, width: Width, compile_mode: CompileMode = "eager"
) -> RowCounts:
    """Evaluate the formula of every row once for all batch sizes."""
    rows = (
        _row_work(row, index=index, batches=batches, width=width, compile_mode=compile_mode, mode=workload.mode)
        for index, row in enumerate(workload.rows)
        if row.family != "view"
    )
    paged_bytes = sum(
        row.count * number_of(row.attributes, "element_count") * number_of(row.attributes, PAGED)
        for row in workload.rows
        if PAGED in row.attributes
    )
    return RowCounts(
        rows=tuple(work for work in rows if work is not None),
        transfer_bytes=_operands_bytes(workload.inputs, batches=batches, dtype_of=lambda operand: operand.dtype),
        paged_bytes=np.full_like(batches, paged_bytes),
        batches=batches,
        compile=compile_mode,
        pass_count=1 if workload.generation is None else 1 + workload.generation.decode_passes,
    )


def refusing_rows(function: Callable[Concatenate[Row, _P], _T]) -> Callable[Concatenate[Row, _P], _T]:
    """Decorate `function` to raise `DocumentError` if it cannot handle the row, as in a file that a user edited."""

    @wraps(function)
    def refusing(row: Row, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(row, *args, **kwargs)
        except ROW_ERRORS as error:
            where = f" in {row.module}" if row.module else ""
            raise DocumentError(f"{row.op}{where}: {row_problem(error)}", where="workload", key="rows") from error

    return refusing


@refusing_rows
def _row_work(
    row: Row, *, index: int, batches: FloatArray, width: Width, compile_mode: CompileMode, mode: Mode
) -> RowWork | None:
    """Return the work of a row, or None if it moves no byte."""
    dtype_of = computed_dtype(
        width=width, autocast=autocast_of(row.op, row.attributes, on_cpu=width == "autocast on CPUs")
    )
    call = call_at(row, batch=batches, dtype_of=dtype_of)
    if row.family == "rnn" and width in AUTOCASTS:
        call = replace(call, attributes={**call.attributes, CASTS: "kept" if mode == "training" else "repeated"})
    cost = call_cost(row, call)
    products = () if is_vector_attention(row) else products_of(call)
    images = _images(row, call) if row.family == "conv" else ()
    if len(products) > 1:  # two gradients of a convolution, each of which reads the output's gradient
        images += images[:1]
    # Fused attention keeps the sums of its softmax in fp32.
    computed = row.inputs[:1] if row.family == "attention" else (*row.inputs, *row.outputs)
    casts = _cast_operands(row, width=width, dtype_of=dtype_of)
    parameter_casts = [operand for operand in casts if is_constant(operand)]
    nothing = np.zeros(len(batches))
    cast_bytes = _cast_bytes(casts, batches=batches)
    if not (nothing + cost.read_bytes + cost.write_bytes + cast_bytes).any():
        return None
    read_bytes = nothing + cost.read_bytes - cost.revisited_bytes
    parameter_bytes = np.minimum(_streamed_bytes(row, batches=batches, dtype_of=dtype_of), read_bytes)
    compiled_bytes, compiled_read_bytes = nothing, nothing
    if compile_mode == "compile":
        compiled_bytes, compiled_read_bytes = _compiled_bytes(
            row, casts, batches=batches, width=width, dtype_of=dtype_of
        )
    return RowWork(
        index=index,
        row=row,
        call=call,
        cost=cost,
        dtype=row.inputs[0].dtype if multiplies_narrow(row) else _widest_float([dtype_of(one) for one in computed]),
        read_bytes=read_bytes - parameter_bytes,
        parameter_bytes=parameter_bytes,
        cast_bytes=cast_bytes,
        cast_count=len(casts),
        parameter_cast_bytes=_cast_bytes(parameter_casts, batches=batches),
        parameter_cast_count=len(parameter_casts),
        compiled_bytes=compiled_bytes,
        compiled_read_bytes=compiled_read_bytes,
        image_bytes=_operands_bytes(images, batches=batches, dtype_of=dtype_of),
        products=products,
    )


def _compiled_bytes(
    row: Row, casts: Sequence[Operand], *, batches: FloatArray, width: Width, dtype_of: DtypeOf
) -> tuple[FloatArray, FloatArray]:
    """Return the bytes that torch.compile reads and writes for the row, and all that it reads, without parameters.

    A fused kernel casts its operands on the fly. A result that it keeps in fp32 and other kernels read in 16 bits is
    written twice. Parts of a concatenation that are computed in place are neither read nor written again.
    """
    formula = formula_of(row.op)
    is_fusable = formula is not None and formula.fusable
    stored: DtypeOf = (lambda operand: compiled_dtype(operand, width=width)) if is_fusable else dtype_of
    cost = row_cost(row, batch=batches, dtype_of=stored)
    inside = [operand for operand in (*row.inputs, *row.outputs) if operand.fused]
    inside_bytes = _operands_bytes(inside, batches=batches, dtype_of=stored)
    read_bytes = np.zeros(len(batches)) + cost.read_bytes - cost.revisited_bytes
    read_bytes = read_bytes - np.minimum(_streamed_bytes(row, batches=batches, dtype_of=stored), read_bytes)
    moved_bytes = read_bytes + cost.write_bytes - inside_bytes
    if row.op == "aten.cat" and not row.outputs[0].fused:
        moved_bytes = moved_bytes - inside_bytes
    if not is_fusable:
        copied = [operand for operand in casts if not is_constant(operand) and not operand.narrowed]
        moved_bytes = moved_bytes + _operands_bytes(copied, batches=batches, dtype_of=dtype_of)
    return np.maximum(moved_bytes, 0.0), read_bytes


def is_vector_attention(row: Row) -> bool:
    """Return whether the row is attention of a single query token, which splits the keys over all SMs (Flash-Decoding).

    Tiles and waves do not apply to it.
    """
    return row.phase == "decode" and row.family == "attention"


def multiplies_narrow(row: Row) -> bool:
    """Return whether both operands of the row's product have 8 bits, as in `_int_mm` and `_scaled_mm`."""
    return row.family == "matmul" and len(row.inputs) > 1 and all(one.dtype in NARROW_UNITS for one in row.inputs[:2])


def is_constant(operand: Operand) -> bool:
    """Return whether the operand's size is independent of the batch: a parameter, as far as the trace can tell."""
    return not operand.varies and all(isinstance(dim, int) or dim[1] == 0 for dim in operand.shape)


def image_result_count(call: Call) -> int:
    """Return how many results of a convolution, or of its gradient, are images: the first one, if it is computed."""
    return int(call.attributes.get("output_mask", _WITH_IMAGES)[0])


def _images(row: Row, call: Call) -> tuple[Operand, ...]:
    """Return the images of a convolution and their gradients: not its weight, even if computed, nor its bias."""
    weight = weight_of(row.op, row.inputs)
    operands = (*(operand for operand in row.inputs if operand is not weight), *row.outputs[: image_result_count(call)])
    return tuple(operand for operand in operands if not is_constant(operand))


def _cast_operands(row: Row, *, width: Width, dtype_of: DtypeOf) -> list[Operand]:
    """Return the operands that autocast converts: inputs stored in another dtype and, in backward, parameter gradients.

    Backward reuses the 16-bit copies of the parameters from forward and converts their gradients to fp32.
    """
    if width not in AUTOCASTS:
        return []
    is_backward = row.phase == "backward"
    inputs = [operand for operand in row.inputs if not (is_backward and is_constant(operand))]
    gradients = [operand for operand in row.outputs if is_backward and is_constant(operand)]
    return [operand for operand in inputs if stored_dtype(operand, width=width) != dtype_of(operand)] + [
        operand for operand in gradients if operand.dtype == "float32" and dtype_of(operand) == "float16"
    ]


def _cast_bytes(operands: Sequence[Operand], *, batches: FloatArray) -> FloatArray:
    """Return the bytes of casts, which read one of fp32 and fp16 and write the other."""
    numel = _operands_bytes(operands, batches=batches, dtype_of=lambda _: "int8")
    return numel * (ITEMSIZE_BYTES["float32"] + ITEMSIZE_BYTES["float16"])


def _streamed_bytes(row: Row, *, batches: FloatArray, dtype_of: DtypeOf) -> FloatArray:
    """Return the bytes of the inputs that stay in memory between passes, so that every pass reads them from there.

    The weights of a convolution count as such even if the model computes them, as CPUs copy them into an order of their
    own like parameters, and a large one displaces no image from the cache.
    """
    weight = weight_of(row.op, row.inputs) if row.family == "conv" else None
    streamed = [operand for operand in row.inputs if operand.kept or is_constant(operand) or operand is weight]
    return _operands_bytes(streamed, batches=batches, dtype_of=dtype_of)


def _operands_bytes(operands: Sequence[Operand], *, batches: FloatArray, dtype_of: DtypeOf) -> FloatArray:
    total = np.zeros(len(batches))
    for operand in operands:
        total = total + operand_bytes(operand, batches=batches, dtype=dtype_of(operand))
    return total


def constant_bytes(operand: Operand, *, dtype: str) -> float:
    """Return the bytes of an operand whose size does not depend on the batch."""
    return (
        math.prod((dim if isinstance(dim, int) else dim[0] for dim in operand.shape), start=1.0) * ITEMSIZE_BYTES[dtype]
    )


def operand_bytes(operand: Operand, *, batches: FloatArray, dtype: str) -> FloatArray:
    """Return the bytes of one operand at every batch size."""
    numel = np.ones(len(batches))
    for dim in operand.shape:
        numel = numel * (dim if isinstance(dim, int) else dim[0] + dim[1] * batches)
    return numel * ITEMSIZE_BYTES[dtype]


def _widest_float(dtypes: Sequence[str]) -> str:
    floats = [dtype for dtype in dtypes if dtype in _FLOAT_DTYPES]
    return max(floats, key=lambda dtype: ITEMSIZE_BYTES[dtype], default="float32")
