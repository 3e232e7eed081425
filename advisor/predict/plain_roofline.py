"""Computes the plain roofline of a step, max(FLOP / peak, bytes / bandwidth) per operator, as a baseline."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.ops.evaluate import call_at, row_cost
from advisor.ops.registry import ITEMSIZE_BYTES, autocast_of
from advisor.predict.precision import Width, computed_dtype, computing_family, unit_of, width_of
from advisor.records.device import CompileMode, Device, Precision
from advisor.records.prediction import FloatArray, IndexArray
from advisor.records.workload import Row, Workload

_FLOATS = ("float", "bfloat", "complex")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlainRoofline:
    """The roofline's `step_s` and `flops`, (devices, batches); NaN and 0 on a device that cannot run the step."""

    step_s: FloatArray
    flops: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Work:
    """The work of all calls of one row; arrays are (batches,)."""

    row: Row
    dtype: str
    """The dtype it computes in."""
    flops: FloatArray
    moved_bytes: FloatArray


def plain_roofline(
    workload: Workload,
    *,
    devices: Sequence[Device],
    precisions: Sequence[Precision | None],
    batches: IndexArray,
    compile_mode: CompileMode,
) -> PlainRoofline:
    """Return the sum of the operators' rooflines, with the datasheet's peak of each unit and its memory bandwidth.

    Williams, Waterman and Patterson, "Roofline" (2009); the sum over operators is the usual baseline for predictors of
    step times. Repeated reads are not counted. Under torch.compile, data inside a fused kernel moves no bytes.
    """
    step_s = np.full((len(devices), len(batches)), np.nan)
    flops = np.zeros_like(step_s)
    float_batches = batches.astype(np.float64)
    work_by_width = {
        width: [
            _work(row, batches=float_batches, width=width, compile_mode=compile_mode)
            for row in workload.rows
            if row.family != "view"
        ]
        for width in {width_of(precision) for precision in precisions if precision is not None}
    }
    for index, (device, precision) in enumerate(zip(devices, precisions, strict=True)):
        if precision is None:
            continue
        step_s[index] = 0.0
        peaks = device.peak_flops_per_s
        for work in work_by_width[width_of(precision)]:
            unit = unit_of(computing_family(work.row), kind=device.kind, dtype=work.dtype, precision=precision)
            peak = peaks.get(unit, peaks["fp32"])
            step_s[index] += np.maximum(work.flops / peak, work.moved_bytes / device.memory_bytes_per_s)
            flops[index] += work.flops
    return PlainRoofline(step_s=step_s, flops=flops)


def _work(row: Row, *, batches: FloatArray, width: Width, compile_mode: CompileMode) -> _Work:
    dtype_of = computed_dtype(width=width, autocast=autocast_of(row.op, row.attributes))
    cost = row_cost(row, batch=batches, dtype_of=dtype_of)
    moved_bytes = cost.read_bytes - cost.revisited_bytes + cost.write_bytes
    if compile_mode == "compile":
        call = call_at(row, batch=batches, dtype_of=dtype_of)
        pairs = zip((*row.inputs, *row.outputs), (*call.inputs, *call.outputs), strict=True)
        moved_bytes = moved_bytes - sum(tensor.size_bytes for operand, tensor in pairs if operand.fused)
    floats = [name for name in map(dtype_of, (*row.inputs, *row.outputs)) if name.startswith(_FLOATS)]
    return _Work(
        row=row,
        dtype=max(floats, key=lambda name: ITEMSIZE_BYTES[name], default="float32"),
        flops=np.broadcast_to(row.count * np.asarray(cost.flops, dtype=np.float64), batches.shape),
        moved_bytes=np.broadcast_to(row.count * np.maximum(moved_bytes, 0.0), batches.shape),
    )
