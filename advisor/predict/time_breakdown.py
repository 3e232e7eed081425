"""Breaks down the predicted time of a step on one device by operator family, module and phase."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from advisor.predict.blocks import is_inner, is_of_experts, part_of
from advisor.predict.composite_kernels import program_of
from advisor.predict.efficiency import efficiency_of, precision_class
from advisor.predict.kernel_time import (
    UNITS,
    added_bytes,
    kernel_times,
    read_and_written_bytes,
    revisited_from_memory_bytes,
    runs_on,
)
from advisor.predict.lowering import lower
from advisor.predict.plain_roofline import row_roofline_s
from advisor.predict.precision import Width, computed_width
from advisor.predict.roofline import dispatch_times, rates_by_kernel
from advisor.predict.row_work import RowCounts, RowWork, count_rows
from advisor.predict.unfused_attention import unfused_attention
from advisor.records.answer import BOUNDS, Bound, GroupBy, QuotedDevice
from advisor.records.device import CompileMode, Device, Efficiency, Layout
from advisor.records.explained_step import ExplainedGroup, ExplainedStep, PredictedStep, SequentialChain
from advisor.records.generation import Generation
from advisor.records.prediction import PARTS, RECOMPUTED_PARTS, FloatArray
from advisor.records.scale import Plan
from advisor.records.workload import Row, Workload

INPUTS = "(inputs)"
PAGING = "(paged state)"
"""The group of the copies to the device, if they limit the step."""
LOADING = "(loading)"
"""The group of data loading: on a GPU the time it waits for data, on a CPU the time loading takes on its cores."""
EXCHANGE = "(between GPUs)"
"""The group of what the GPUs of a served model send each other."""
RECOMPUTATION = "recomputation"
"""The phase in which backward computes activations again, with activation checkpointing."""
FIRST = "(first dispatch)"
"""The group of the time until a GPU starts its first kernel."""
_RECURRENT_OPS = ("rnn", "rnn_backward")
_SUMMED = ("kernels_s", "compute_s", "memory_s", "launch_s", "dispatch_s", "flops", "moved_bytes", "roofline_s")
"""The figures of rows that groups add up, named as in `ExplainedGroup`."""


def explain_step(
    workload: Workload,
    predicted: PredictedStep,
    *,
    name: str,
    device: Device,
    device_count: int = 1,
    efficiencies: Sequence[Efficiency],
    layout: Layout = "nchw",
    compile_mode: CompileMode = "eager",
) -> ExplainedStep:
    """Break down a predicted step; `name` is shown for the device; its machine has `device_count` of them.

    For a plan it is the part of one of its GPUs.
    """
    plan = predicted.plan or Plan()
    own_batch = float(math.ceil(predicted.batch / plan.data))
    efficiency = efficiency_of(device, precision=predicted.precision, efficiencies=efficiencies)
    is_tf32 = precision_class(predicted.precision) == "tf32"
    plain = efficiency_of(device, precision="fp32", efficiencies=efficiencies) if is_tf32 else None

    def at(batch: float) -> tuple[Workload, RowCounts, Mapping[str, FloatArray], FloatArray]:
        left, counts = _counted(
            workload,
            batches=np.array([batch]),
            width=computed_width(predicted.precision, workload, kind=device.kind),
            compile_mode=compile_mode,
        )
        figures, unit_flops = _row_figures(
            counts,
            predicted,
            row_count=len(left.rows),
            device=device,
            efficiency=efficiency,
            plain_efficiency=plain,
            layout=layout,
        )
        return left, counts, figures, unit_flops

    left, counts, figures, unit_flops = at(own_batch)
    if workload.generation is not None:  # an engine's passes cost more than their kernels, in proportion
        is_expert = np.array([is_of_experts(row) for row in left.rows])
        if plan.expert > 1:  # experts get the tokens of all copies that divide them
            of_all = at(own_batch * plan.expert)[2]
            figures = {name: np.where(is_expert, of_all[name] / plan.expert, own) for name, own in figures.items()}
        if workload.generation.engine is not None and device.kind == "gpu":
            figures = _with_slower_experts(figures, is_expert / workload.generation.engine.experts.compute_ratio)
        figures = _of_one_gpu(figures, left.rows, plan, workload.generation)
        kernels_s = float(figures["kernels_s"].sum()) or 1.0
        in_kernels_s = predicted.step_s.mid - predicted.exchange_s
        ratios = dict.fromkeys(_SUMMED[:4], in_kernels_s / kernels_s) | {"dispatch_s": 0.0}
        figures = {name: values * ratios.get(name, 1.0) for name, values in figures.items()}
    in_step = dict.fromkeys(_SUMMED[:5], predicted.timed_ratio)
    figures = {name: values * in_step.get(name, 1.0) for name, values in figures.items()}
    again = [index for index, row in enumerate(left.rows) if PARTS[part_of(row)] in RECOMPUTED_PARTS]
    again = again if predicted.checkpoint_activations else []
    figures = {name: np.append(values, values[again]) for name, values in figures.items()}
    unit_flops = np.hstack([unit_flops, unit_flops[:, again]])
    transfer_bytes, rate = float(counts.transfer_bytes[0]), device.host_to_device_bytes_per_s
    parts = _Parts(
        rows=(*left.rows, *(left.rows[row] for row in again)),
        phases=(*(row.phase for row in left.rows), *(RECOMPUTATION for _ in again)),
        figures=figures,
        unit_flops=unit_flops,
        transfer_bytes=transfer_bytes,
        paged_bytes=float(counts.paged_bytes[0]),
        device=device,
        predicted=predicted,
    )
    return ExplainedStep(
        **{field.name: getattr(predicted, field.name) for field in fields(PredictedStep)},
        name=name,
        device=QuotedDevice(id=device.id, name=device.name, kind=device.kind, count=device_count),
        core_count=device.core_count,
        host_cpu=device.host_cpu,
        memory_bytes_per_s=device.memory_bytes_per_s,
        transfer_s=transfer_bytes / rate if rate else 0.0,
        paging_s=parts.paging_s,
        total=parts.total(),
        families=parts.groups("family"),
        modules=parts.groups("module"),
        phases=parts.groups("phase"),
        sequential=_chains(counts.rows) if device.kind == "gpu" else (),
        unfused=unfused_attention(workload.rows, kind=device.kind) if workload.generation is None else (),
    )


def _with_slower_experts(figures: Mapping[str, FloatArray], times_slower: FloatArray) -> Mapping[str, FloatArray]:
    """Return the figures with the compute time of some rows multiplied; others have 0 in `times_slower`."""
    before_s = figures["compute_s"]
    compute_s = np.where(times_slower > 0, before_s * times_slower, before_s)
    longer_s = np.maximum(compute_s - np.maximum(before_s, figures["memory_s"]), 0.0)
    kernels_s = figures["kernels_s"] + np.where(times_slower > 0, longer_s, 0.0)
    return {**figures, "compute_s": compute_s, "kernels_s": kernels_s}


def _of_one_gpu(
    figures: Mapping[str, FloatArray], rows: Sequence[Row], plan: Plan, generation: Generation
) -> Mapping[str, FloatArray]:
    """Return the figures of the part of one GPU: of whole heads, of a part of every matrix, of a stage of layers.

    Norms and residual additions are repeated on each GPU of a tensor-parallel group. A GPU reads at least one head of
    the KV cache.
    """
    divided = np.array([1 / plan.tensor if is_inner(row) or row.family == "attention" else 1.0 for row in rows])
    is_cached = np.array([any(operand.kept for operand in row.inputs) for row in rows])
    read = np.where(is_cached, generation.cache_share(plan.tensor), divided)
    by_name = {"compute_s": divided, "flops": divided, "launch_s": np.ones(len(rows))}
    return {name: values * by_name.get(name, read) / plan.pipeline for name, values in figures.items()}


def _counted(
    workload: Workload, *, batches: FloatArray, width: Width, compile_mode: CompileMode
) -> tuple[Workload, RowCounts]:
    """Return the workload with the decode passes that speculative decoding leaves, and the work of its rows.

    Such a pass takes the drafted tokens of each request through the model too, and reads its cache once.
    """
    generation = workload.generation
    if generation is None or not generation.draft_tokens:
        return workload, count_rows(workload, batches=batches, width=width, compile_mode=compile_mode)
    left_ratio, verified = generation.decode_passes / generation.decode_count, 1 + generation.draft_tokens
    workload = replace(
        workload,
        rows=tuple(
            replace(row, count=max(1, round(row.count * left_ratio))) if row.phase == "decode" else row
            for row in workload.rows
        ),
    )
    counts, of_tokens = (
        count_rows(workload, batches=tokens, width=width, compile_mode=compile_mode)
        for tokens in (batches, batches * verified)
    )

    def verifying(work: RowWork, of_tokens: RowWork) -> RowWork:
        if work.row.phase != "decode":
            return work
        if any(operand.kept for operand in work.row.inputs):
            return replace(work, cost=replace(work.cost, flops=work.cost.flops * verified))
        return of_tokens

    return workload, replace(counts, rows=tuple(map(verifying, counts.rows, of_tokens.rows)))


def _row_figures(
    counts: RowCounts,
    predicted: PredictedStep,
    *,
    row_count: int,
    device: Device,
    efficiency: Efficiency,
    plain_efficiency: Efficiency | None,
    layout: Layout,
) -> tuple[Mapping[str, FloatArray], FloatArray]:
    """Return the figures of all calls of each row, (rows,) each, and their FLOP by unit, (units, rows)."""
    precision = predicted.precision
    kernels = lower(counts, kind=device.kind, precision=precision, layout=layout)
    rates = rates_by_kernel(
        kernels,
        devices=[device],
        efficiencies=[efficiency],
        plain_efficiencies=None if plain_efficiency is None else [plain_efficiency],
    )
    times = kernel_times(kernels, rates)
    dispatch_s, roofline_s = np.zeros(row_count), np.zeros(row_count)
    for work in counts.rows:
        own = lower(replace(counts, rows=(work,)), kind=device.kind, precision=precision)
        dispatch_s[work.index] = dispatch_times(own, devices=[device], efficiencies=[efficiency])[0, 0]
        roofline = row_roofline_s(work, device=device, precision=precision, compile_mode=counts.compile)
        roofline_s[work.index] = np.ravel(roofline)[0]

    def by_row(of_one_call: FloatArray) -> FloatArray:
        sums = np.bincount(kernels.row, weights=of_one_call * kernels.calls, minlength=row_count)
        return sums.astype(np.float64)

    is_run = np.broadcast_to(runs_on(kernels, rates), times.total_s.shape)[0, :, 0]
    flops = kernels.flops[:, 0] * is_run
    moved_bytes = (
        read_and_written_bytes(kernels, rates)
        + added_bytes(kernels, rates)
        + revisited_from_memory_bytes(kernels, rates)
    )
    figures = {
        "kernels_s": by_row(times.total_s[0, :, 0]),
        "compute_s": by_row(times.compute_s[0, :, 0]),
        "memory_s": by_row(times.memory_s[0, :, 0]),
        "launch_s": by_row(times.launch_s[0, :, 0]),
        "dispatch_s": dispatch_s,
        "roofline_s": roofline_s,
        "flops": by_row(flops),
        "moved_bytes": by_row((kernels.weight_bytes[:, 0] + moved_bytes[0, :, 0]) * is_run),
    }
    return figures, np.stack([by_row(np.where(kernels.unit == unit, flops, 0.0)) for unit in range(len(UNITS))])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Parts:
    """The rows of a step on a device, which it sums by group."""

    rows: tuple[Row, ...]
    phases: tuple[str, ...]
    figures: Mapping[str, FloatArray]
    """As `_row_figures` returns them, like `unit_flops`."""
    unit_flops: FloatArray
    transfer_bytes: float
    paged_bytes: float
    device: Device
    predicted: PredictedStep

    def groups(self, by: GroupBy) -> tuple[ExplainedGroup, ...]:
        """Return the groups of the step, longest first; rows outside of modules are in a group like "(optimizer)"."""
        members: dict[str, list[int]] = {}
        for index, row in enumerate(self.rows):
            if row.family != "view":
                name = self.phases[index] if by == "phase" else getattr(row, by) or f"({row.phase})"
                members.setdefault(name, []).append(index)
        groups = [self._of_rows(name, indices) for name, indices in members.items()]
        if self.predicted.exchange_s:
            groups.append(self._group(EXCHANGE, [], time_s=self.predicted.exchange_s, bound="communication"))
        if self.paging_s:
            paging = self._group(PAGING, [], time_s=self.paging_s, bound="transfer")
            groups.append(replace(paging, moved_bytes=self.paged_bytes, flops_per_byte=0.0))
        if self.device.kind == "cpu" and self.predicted.loading_s:
            groups.append(self._group(LOADING, [], time_s=self.predicted.loading_s, bound="loader"))
        elif self.predicted.bound == "loader":
            groups.append(self._group(LOADING, [], time_s=self._waiting_s(), bound="loader"))
        elif self.predicted.bound == "transfer" and not self.paging_s:
            groups.append(self._inputs())
        elif self.predicted.bound != "dispatch" and self.device.kind == "gpu" and self.figures["dispatch_s"].any():
            groups.append(self._group(FIRST, [], time_s=self._waiting_s(), bound="dispatch"))
        return tuple(sorted(groups, key=lambda group: (-group.time_s, -group.kernels_s, group.name)))

    def total(self) -> ExplainedGroup:
        """Return the whole step as one group."""
        return self._group(
            "all", list(range(len(self.rows))), time_s=self.predicted.step_s.mid, bound=self.predicted.bound
        )

    def _of_rows(self, name: str, indices: Sequence[int]) -> ExplainedGroup:
        """Return the group of some rows.

        On a GPU, kernels and dispatch overhead overlap, so only the longer counts. A CPU does both on the same cores.
        """
        kernels_s, *parts_s, dispatch_s = (self.figures[name][indices].sum() for name in _SUMMED[:5])
        if self.device.kind == "cpu":
            time_s, bound = kernels_s + dispatch_s, BOUNDS[np.argmax([*parts_s, dispatch_s])]
        elif self.predicted.bound == "dispatch":
            time_s, bound = dispatch_s, "dispatch"
        else:
            time_s, bound = kernels_s, BOUNDS[np.argmax(parts_s)]
        return self._group(name, indices, time_s=float(time_s), bound=bound)

    def _inputs(self) -> ExplainedGroup:
        """Return the group of the copies, with the part of their time that the kernels do not hide."""
        nothing = self._group(INPUTS, [], time_s=self._waiting_s(), bound="transfer")
        return replace(nothing, moved_bytes=self.transfer_bytes, flops_per_byte=0.0)

    def _waiting_s(self) -> float:
        """Return the idle time of the GPU in a step."""
        return self.predicted.step_s.mid - self.paging_s - float(self.figures["kernels_s"].sum())

    @property
    def paging_s(self) -> float:
        """Return the time in which a GPU copies its optimizer's state from and to the host's memory."""
        rate = self.device.host_to_device_bytes_per_s
        return self.paged_bytes / rate * self.predicted.timed_ratio if rate and self.device.kind == "gpu" else 0.0

    def _group(self, name: str, indices: Sequence[int], *, time_s: float, bound: Bound) -> ExplainedGroup:
        sums = {name: float(self.figures[name][list(indices)].sum()) for name in _SUMMED}
        flops, moved_bytes = sums["flops"], sums["moved_bytes"]
        return ExplainedGroup(
            name=name,
            time_s=time_s,
            time_ratio=time_s / self.predicted.step_s.mid,
            bound=bound,
            **sums,
            op_count=sum(self.rows[index].count for index in indices if self.rows[index].family != "view"),
            flops_per_byte=flops / moved_bytes if moved_bytes else None,
            ridge_flops_per_byte=self._ridge(indices) if flops else None,
            roofline_ratio=sums["roofline_s"] / time_s if time_s else None,
        )

    def _ridge(self, indices: Sequence[int]) -> float:
        """Return the arithmetic intensity at the roofline's ridge, by the datasheet, of the unit with the most FLOP."""
        unit = UNITS[np.argmax(self.unit_flops[:, indices].sum(axis=1))]
        peaks = self.device.peak_flops_per_s
        return peaks.get(unit, peaks["fp32"]) / self.device.memory_bytes_per_s


def _chains(rows: Sequence[RowWork]) -> tuple[SequentialChain, ...]:
    """Return the recurrent layers: two kernels per time step, each of which needs the result of the previous one."""
    return tuple(
        SequentialChain(module=work.row.module, op=work.row.op, kernel_count=int(launches * work.row.count))
        for work in rows
        if work.row.op in _RECURRENT_OPS
        for launches in np.ravel(program_of(work.call, kind="gpu", itemsize_bytes=1.0).launches)
    )
