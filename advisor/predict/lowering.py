"""A device-neutral workload in, the kernels that one kind of device runs for it out, as arrays."""

from dataclasses import dataclass

import numpy as np

from advisor.ops.evaluate import DtypeOf, row_cost
from advisor.ops.registry import ITEMSIZE_BYTES, formula_of
from advisor.predict.composites import program_of
from advisor.predict.precision import Width, computed_dtype, stored_dtype, unit_of
from advisor.records.device import CompileMode, DeviceKind, Precision
from advisor.records.prediction import FloatArray, IndexArray
from advisor.records.workload import Operand, Row, Workload

UNITS = ("fp32", "tf32", "fp16", "bf16", "fp64", "vector")
"""The units of `Device.peak_flops_per_s`."""
_HALF_DTYPES = frozenset({"float16", "bfloat16"})
_FLOAT_DTYPES = frozenset({"float64", "float32", "float16", "bfloat16", "complex128", "complex64"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowCounts:
    """FLOP, bytes and casts of every row, all its calls together, with operands of one width on any device.

    Arrays are (rows, batches) but for `casts`, the operands converted before or after the calls. Rows are ordered by
    family.
    """

    rows: tuple[Row, ...]
    dtypes: tuple[str, ...]
    flops: FloatArray
    moved_bytes: FloatArray
    casts: FloatArray
    transfer_bytes: FloatArray
    batches: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kernels:
    """One step on one kind of device at one precision.

    `flops` and `moved_bytes` are (rows, batches), of all calls of a row; `unit` and `family` are (rows,) and index
    `UNITS` and `families`. Of the whole step, (batches,): `launches` of kernels, `dispatches` of operators by the host
    and `transfer_bytes` to the device.
    """

    families: tuple[str, ...]
    family: IndexArray
    unit: IndexArray
    flops: FloatArray
    moved_bytes: FloatArray
    launches: FloatArray
    dispatches: FloatArray
    transfer_bytes: FloatArray


def count_rows(workload: Workload, *, batches: FloatArray, width: Width, compile_mode: CompileMode) -> RowCounts:
    """Evaluate the formula of every row once for all batch sizes. Views do nothing and are left out."""
    rows = tuple(sorted((row for row in workload.rows if row.family != "view"), key=lambda row: row.family))
    flops = np.zeros((len(rows), len(batches)))
    moved_bytes = np.zeros_like(flops)
    casts = np.zeros(len(rows))
    dtypes: list[str] = []
    for index, row in enumerate(rows):
        formula = formula_of(row.op)
        dtype_of = computed_dtype(width=width, autocast=formula.autocast if formula else "widest")
        cost = row_cost(row, batch=batches, dtype_of=dtype_of)
        cast_operands = _cast_operands(row, width=width, dtype_of=dtype_of)
        flops[index] = row.count * cost.flops
        moved_bytes[index] = row.count * (
            cost.read_bytes
            + cost.write_bytes
            + sum(_cast_bytes(operand, batches=batches) for operand in cast_operands)
            - (_fused_bytes(row, batches=batches, dtype_of=dtype_of) if compile_mode == "compile" else 0.0)
        )
        casts[index] = row.count * len(cast_operands)
        dtypes.append(_widest_float([dtype_of(operand) for operand in (*row.inputs, *row.outputs)]))
    return RowCounts(
        rows=rows,
        dtypes=tuple(dtypes),
        flops=flops,
        moved_bytes=np.maximum(moved_bytes, 0.0),
        casts=casts,
        transfer_bytes=_operands_bytes(workload.inputs, batches=batches, dtype_of=lambda operand: operand.dtype),
        batches=batches,
    )


def lower(
    counts: RowCounts,
    *,
    kind: DeviceKind,
    precision: Precision,
    compile_mode: CompileMode,
    transposed_ratio: float = 0.0,
) -> Kernels:
    """The kernels that a kind of device runs for the rows: composites become that device's own programs.

    Under torch.compile a row whose results all stay inside a fused kernel launches none of its own, and the host
    dispatches kernels, not operators. `transposed_ratio` of what convolutions in half take and give is transposed: one
    more read and write.
    """
    families = tuple(sorted({row.family for row in counts.rows}))
    moved_bytes = counts.moved_bytes.copy()
    launches = np.zeros(len(counts.batches))
    dispatches = np.zeros_like(launches)
    for index, (row, dtype) in enumerate(zip(counts.rows, counts.dtypes, strict=True)):
        if compile_mode == "compile" and row.outputs and all(operand.fused for operand in row.outputs):
            continue
        if not moved_bytes[index].any():
            continue
        program = program_of(row, kind=kind, itemsize_bytes=ITEMSIZE_BYTES[dtype], batches=counts.batches)
        moved_bytes[index] += row.count * program.extra_bytes
        if transposed_ratio and row.family == "conv" and dtype in _HALF_DTYPES:
            images = tuple(operand for operand in (*row.inputs, *row.outputs) if not is_constant(operand))
            images_bytes = _operands_bytes(images, batches=counts.batches, dtype_of=lambda _: "float16")
            moved_bytes[index] += row.count * 2 * transposed_ratio * images_bytes
        launches += row.count * program.launches + counts.casts[index]
        is_compiled = compile_mode == "compile" and row.phase != "optimizer"
        dispatches += row.count * (program.launches if is_compiled else program.dispatches) + counts.casts[index]
    return Kernels(
        families=families,
        family=np.array([families.index(row.family) for row in counts.rows], dtype=np.intp),
        unit=np.array(
            [
                UNITS.index(unit_of(row.family, dtype=dtype, precision=precision))
                for row, dtype in zip(counts.rows, counts.dtypes, strict=True)
            ],
            dtype=np.intp,
        ),
        flops=counts.flops,
        moved_bytes=moved_bytes,
        launches=launches,
        dispatches=dispatches,
        transfer_bytes=counts.transfer_bytes,
    )


def is_constant(operand: Operand) -> bool:
    """Whether the operand is as large at every batch size: a parameter, as far as the trace can tell."""
    return all(isinstance(dim, int) or dim[1] == 0 for dim in operand.shape)


def _cast_operands(row: Row, *, width: Width, dtype_of: DtypeOf) -> list[Operand]:
    """The operands that autocast converts: inputs stored in another dtype, and in backward the gradients of parameters.

    Backward finds the half copies of the parameters that forward made, and converts their gradients to fp32.
    """
    if width != "autocast":
        return []
    is_backward = row.phase == "backward"
    inputs = [operand for operand in row.inputs if not (is_backward and is_constant(operand))]
    gradients = [operand for operand in row.outputs if is_backward and is_constant(operand)]
    return [operand for operand in inputs if stored_dtype(operand, width=width) != dtype_of(operand)] + [
        operand for operand in gradients if operand.dtype == "float32" and dtype_of(operand) == "float16"
    ]


def _cast_bytes(operand: Operand, *, batches: FloatArray) -> FloatArray:
    """A cast reads one width and writes the other."""
    numel = _operands_bytes((operand,), batches=batches, dtype_of=lambda _: "int8")
    return numel * (ITEMSIZE_BYTES["float32"] + ITEMSIZE_BYTES["float16"])


def _fused_bytes(row: Row, *, batches: FloatArray, dtype_of: DtypeOf) -> FloatArray:
    fused = tuple(operand for operand in (*row.inputs, *row.outputs) if operand.fused)
    return _operands_bytes(fused, batches=batches, dtype_of=dtype_of)


def _operands_bytes(operands: tuple[Operand, ...], *, batches: FloatArray, dtype_of: DtypeOf) -> FloatArray:
    total = np.zeros(len(batches))
    for operand in operands:
        total = total + operand_bytes(operand, batches=batches, dtype=dtype_of(operand))
    return total


def operand_bytes(operand: Operand, *, batches: FloatArray, dtype: str) -> FloatArray:
    """Bytes of one operand at every batch size."""
    numel = np.ones(len(batches))
    for dim in operand.shape:
        numel = numel * (dim if isinstance(dim, int) else dim[0] + dim[1] * batches)
    return numel * ITEMSIZE_BYTES[dtype]


def _widest_float(dtypes: list[str]) -> str:
    floats = [dtype for dtype in dtypes if dtype in _FLOAT_DTYPES]
    return max(floats, key=lambda dtype: ITEMSIZE_BYTES[dtype], default="float32")
