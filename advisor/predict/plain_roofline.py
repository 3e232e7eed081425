"""Computes the plain roofline of a step, max(FLOP / peak, bytes / bandwidth) per operator, as a baseline."""

from collections.abc import Sequence

import numpy as np

from advisor.ops.registry import Number
from advisor.predict.precision import computed_width, computing_family, unit_of
from advisor.predict.row_work import RowWork, count_rows
from advisor.records.device import CompileMode, Device, Precision
from advisor.records.prediction import FloatArray, IndexArray
from advisor.records.workload import Workload


def plain_roofline(
    workload: Workload,
    *,
    devices: Sequence[Device],
    precisions: Sequence[Precision | None],
    batches: IndexArray,
    compile_mode: CompileMode,
) -> tuple[FloatArray, FloatArray]:
    """Return the sum of the operators' rooflines in seconds, and their FLOP; both are (devices, batches).

    NaN and 0 stand for a device that cannot run the step. The sum over operators is the usual baseline for predictors
    of step times.
    """
    step_s = np.full((len(devices), len(batches)), np.nan)
    flops = np.zeros_like(step_s)
    asked = list(zip(devices, precisions, strict=True))
    widths = {computed_width(one, workload, kind=device.kind) for device, one in asked if one is not None}
    counts = {width: count_rows(workload, batches=batches.astype(np.float64), width=width) for width in widths}
    for index, (device, precision) in enumerate(asked):
        if precision is None:
            continue
        step_s[index] = 0.0
        for work in counts[computed_width(precision, workload, kind=device.kind)].rows:
            step_s[index] += row_roofline_s(work, device=device, precision=precision, compile_mode=compile_mode)
            flops[index] += work.row.count * work.cost.flops
    return step_s, flops


def row_roofline_s(work: RowWork, *, device: Device, precision: Precision, compile_mode: CompileMode) -> Number:
    """Return the roofline of all calls of a row, with the datasheet's peak of its unit and its memory bandwidth.

    Williams, Waterman and Patterson, "Roofline" (2009). Repeated reads are not counted. Under torch.compile, data
    inside a fused kernel moves no bytes.
    """
    row, call, cost, peaks = work.row, work.call, work.cost, device.peak_flops_per_s
    moved_bytes = cost.read_bytes - cost.revisited_bytes + cost.write_bytes
    if compile_mode == "compile":
        pairs = zip((*row.inputs, *row.outputs), (*call.inputs, *call.outputs), strict=True)
        moved_bytes = np.maximum(moved_bytes - sum(tensor.size_bytes for operand, tensor in pairs if operand.fused), 0)
    unit = unit_of(computing_family(row, kind=device.kind), kind=device.kind, dtype=work.dtype, precision=precision)
    compute_s = row.count * cost.flops / peaks.get(unit, peaks["fp32"])
    return np.maximum(compute_s, row.count * moved_bytes / device.memory_bytes_per_s)
