"""Finds the best parallel plan for each device and batch, and predicts the step under it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.errors import UsageError
from advisor.predict.join import join_batches
from advisor.predict.precision import Width, width_of
from advisor.records.answer import BOUNDS, Z_90
from advisor.records.device import Device, DeviceKind
from advisor.records.prediction import USES, BoolArray, FloatArray, IndexArray, Predictions, Scaling
from advisor.records.scale import Plan, Spreading
from advisor.records.workload import Workload
from advisor.scale.best_plans import BestPlans, Lateness, never_late
from advisor.scale.parallel_step import one_gpu_s, spread_part
from advisor.scale.plans import members_by_plan, too_few_gpus
from advisor.scale.sharded_memory import memory_of_one

PredictAt = Callable[[IndexArray], Predictions]
"""Predicts the step at these batch sizes on single devices."""
_INITIAL = {
    "at": 0, "step_s": np.inf, "waiting_s": np.inf, "peak_memory_bytes": np.inf, "fits": False, "is_tight": False,
    "whole_s": np.inf,
}  # fmt: skip
"""The figures of a step before any plan: `at` is the batch of one pass, as an index of the predicted batches, and
`whole_s` the time of the same step on one GPU."""

_SCALING_LOG_SPREAD = 0.05
"""Standard deviation of the log of the scaling efficiency on several GPUs: 0.043 in 38 runs of ResNet-50 with DDP. In
85 runs of MosaicML on 8 GPUs the whole step had 0.067, which includes the device's error (docs/scale.md)."""
_WAITING_LOG_SPREAD = 0.2
"""Standard deviation of the log of the time that GPUs wait for each other: collectives above 16 MiB are off by 4 to
43 %, in the mean by 18 %, if their kind of GPU is left out of the fit (docs/scale.md)."""
_SHARDING_MARGIN = 1.03
"""A sharded plan is used if it saves more than this: its calls on the host are not counted, and few change their code
for less."""


class IndivisibleBatchError(UsageError):
    """No batch has enough samples for every pass of every GPU."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedSteps:
    """The steps of all plans, of which limits and prices make one the best for each device and batch.

    - `alone`: the passes on single devices, at the batches of all plans, then those of the step under FSDP if that
      differs; the whole answer if there are no `plans`
    - `offers`: for each plan and group of devices, by index, the figures of the step, (members, batches)
    """

    alone: Predictions
    batches: IndexArray
    plans: tuple[Plan, ...] = ()
    offers: tuple[tuple[Plan, list[int], dict[str, Any]], ...] = ()


def planned_steps(
    workload: Workload,
    *,
    devices: Sequence[Device],
    batches: IndexArray,
    predict_at: PredictAt,
    asked: Spreading,
    predict_under_fsdp: PredictAt | None = None,
) -> PlannedSteps:
    """Predict the step at each global batch under all plans that were asked for.

    `predict_under_fsdp` predicts `workload.under_fsdp` if there is one. If every device runs alone and nothing else
    was requested, there are no plans. Raises `UsageError` if no machine has as many GPUs as requested, and
    `IndivisibleBatchError` if no batch can be divided as requested.
    """
    members_of = members_by_plan(workload, devices, asked)
    plans = sorted(members_of, key=_needs_code_changes)
    if all(plan == Plan() for plan in plans) and asked.gpus is None:
        return PlannedSteps(alone=predict_at(batches), batches=batches)
    if not plans:
        raise too_few_gpus(asked, most=max(device.gpu_count for device in devices))
    passes = {plan: pass_batches(batches, plan) for plan in plans}
    if not any(_divides(batches, plan).any() for plan in plans):
        least = min(plan.data * plan.accumulate for plan in plans)
        asked_for = f"--accumulate {asked.accumulate}: " if asked.accumulate > 1 else ""
        raise IndivisibleBatchError(
            f"{asked_for}a batch of {batches.max():,} has too few samples for {least:,}, one for each pass of each GPU",
            hint="increase --batch or leave it out",
        )
    is_affine = workload.batch_is_affine  # or the step is known only at its own batch size
    on_one = Plan(
        accumulate=asked.accumulate if is_affine else int(batches.max()) // workload.batch,
        checkpoint_activations=asked.checkpoint_activations,
    )
    of_one = pass_batches(batches, on_one)
    sizes = np.unique(np.concatenate([batches, of_one, *passes.values()])) if is_affine else np.array([workload.batch])
    alone, fsdp_at = predict_at(sizes), 0
    if predict_under_fsdp is not None:
        alone, fsdp_at = join_batches([alone, predict_under_fsdp(sizes)]), len(sizes)
    offers: list[tuple[Plan, list[int], dict[str, Any]]] = []
    fits_whole = np.zeros((len(devices), len(batches)), dtype=np.bool_)
    at_one = np.searchsorted(sizes, of_one)
    if not is_affine:
        for (kind, width), group in _by_kind_and_width(workload, range(len(devices)), alone).items():
            whole = _offered(workload, on_one, group, kind=kind, width=width, alone=alone, at=at_one, is_divided=True)
            fits_whole[group] = whole["fits"]
    for plan in plans:
        run = workload.under(plan)
        offset = 0 if run is workload else fsdp_at
        at = np.searchsorted(sizes, passes[plan]) + offset
        if not np.isin(passes[plan], sizes).all():
            continue
        is_divided = _divides(batches, plan)
        members = members_of[plan]
        if _needs_code_changes(plan):  # a model that fits on one GPU is never split
            members = [one for one in members if not fits_whole[one].all()]
        for (kind, width), group in _by_kind_and_width(run, members, alone).items():
            offered = _offered(run, plan, group, kind=kind, width=width, alone=alone, at=at, is_divided=is_divided)
            offered["whole_s"] = one_gpu_s(on_one, alone=alone, rows=group, at=at_one + offset)
            offers.append((plan, group, offered))
            if not _needs_code_changes(plan):
                fits_whole[group] |= offered["fits"]
    is_only_split = all(_needs_code_changes(plan) for plan, _, _ in offers)
    is_needed = not fits_whole.any() and any(offered["fits"].any() for _, _, offered in offers)
    if not is_affine and is_only_split and not is_needed:  # a model that one GPU holds is not split for its batch
        raise IndivisibleBatchError(
            f"how the step grows with the batch is not known, so its batch of {batches.max():,} cannot be divided",
            hint="leave --batch out: every GPU then takes the step's own batch",
        )
    return PlannedSteps(alone=alone, batches=batches, plans=tuple(plans), offers=tuple(offers))


def under_best_plans(
    steps: PlannedSteps,
    *,
    lateness: Lateness = never_late,
    by_cost: bool = True,
    is_service: bool = False,
    start_up_s: FloatArray | float = 0.0,
) -> Predictions:
    """Return the step at each global batch under the cheapest (or fastest) plan that fits and keeps the limits.

    `start_up_s`, (devices, batches), is a machine's start-up time over the steps of the job, paid for each machine.
    If no plan keeps the limits, the one closest to them is used. In a service by time, requests wait less for more
    copies of the model, so the plan with the most is used of those with equal steps.
    """
    device_count = len(steps.alone.devices)
    if not steps.plans:
        return steps.alone
    start_up_s = np.broadcast_to(start_up_s, (device_count, len(steps.batches)))
    best = BestPlans(steps.plans, device_count=device_count, batches=steps.batches, key_count=4, initial=_INITIAL)
    for plan, group, offered in steps.offers:
        step_s, fits = offered["step_s"], offered["fits"]
        margin = _SHARDING_MARGIN if plan.sharding != "none" else 1.0
        machine_s = (step_s + start_up_s[group]) * (plan.machines if by_cost else 1) * margin
        servers, machines = np.array(float(plan.data)), np.array(float(plan.machines))
        late = np.maximum(1.0, lateness(step_s, group, servers, machines, None))
        rank = np.stack(
            [
                np.where(fits, float(_needs_code_changes(plan)), 2.0),
                np.where(fits, late, 1.0),
                np.where(fits, np.where(late > 1, step_s, machine_s), offered["peak_memory_bytes"]),
                np.full_like(step_s, -plan.data if is_service and not by_cost else 0.0),
            ]
        )
        best.take(plan, group, rank=rank, figures=offered)
    return _predictions(best, steps.alone)


def _needs_code_changes(plan: Plan) -> bool:
    """Return whether the plan splits the model, which needs changes to its code."""
    return plan.tensor > 1 or plan.pipeline > 1


def pass_batches(batches: IndexArray, plan: Plan) -> IndexArray:
    """Return the samples per pass of the fullest data-parallel GPU, which sets the pace."""
    parts = plan.data * plan.accumulate
    return -(-batches // parts)


def _divides(batches: IndexArray, plan: Plan) -> BoolArray:
    """Return whether every pass of every GPU gets at least one sample."""
    return batches >= plan.data * plan.accumulate


def _by_kind_and_width(
    workload: Workload, members: Sequence[int], alone: Predictions
) -> dict[tuple[DeviceKind, Width], list[int]]:
    """Group devices by their kind and by the width in which they store tensors; leave out those without a precision."""
    groups: dict[tuple[DeviceKind, Width], list[int]] = {}
    for index in members:
        precision = alone.precisions[index, 0]
        if precision is not None:
            groups.setdefault((alone.devices[index].kind, width_of(precision, workload)), []).append(index)
    return groups


def _offered(
    workload: Workload,
    plan: Plan,
    members: list[int],
    *,
    kind: DeviceKind,
    width: Width,
    alone: Predictions,
    at: IndexArray,
    is_divided: BoolArray | bool,
) -> dict[str, Any]:
    """Return the figures of the step, (members, batches); `is_divided`: every pass of every GPU has a sample."""
    spread = spread_part(workload, plan, alone=alone, rows=members, at=at, width=width)
    batches = alone.batches[at].astype(np.float64)
    memory = memory_of_one(workload, plan, batches=batches, width=width, kind=kind).total
    memory_bytes = np.array([alone.devices[index].memory_bytes for index in members])[:, np.newaxis]
    is_possible = is_divided & np.isfinite(spread.step_s)
    return {
        "at": at,
        "step_s": np.where(is_possible, spread.step_s, np.inf),
        "waiting_s": spread.waiting_s,
        "peak_memory_bytes": np.where(is_possible, memory.mid, np.inf),
        "fits": is_possible & (memory.mid <= memory_bytes),
        "is_tight": is_possible & (memory.low <= memory_bytes) & (memory.high > memory_bytes),
    }


def _predictions(best: BestPlans, alone: Predictions) -> Predictions:
    """Return the steps under the best plans, with the relative errors of the device, of scaling and of links."""
    rows, figures = np.arange(len(alone.devices))[:, np.newaxis], best.figures

    def at(array: Any) -> Any:
        return array[rows, figures["at"]]

    step_s, is_possible = figures["step_s"], np.isfinite(figures["step_s"])
    ratio = np.divide(step_s, at(alone.step_s), out=np.ones_like(step_s), where=is_possible)
    waiting = np.divide(figures["waiting_s"], step_s, out=np.zeros_like(step_s), where=is_possible)
    is_waiting = figures["waiting_s"] > step_s / 2
    uses = {name: getattr(alone, name) for name in USES}
    is_alone = np.array([plan == Plan() for plan in best.plans])[best.plan]
    gpu_count = np.array([plan.gpu_count for plan in best.plans])[best.plan]
    of_scaling = np.where(gpu_count > 1, np.hypot(_SCALING_LOG_SPREAD, _WAITING_LOG_SPREAD * waiting), 0.0)
    of_device = at(alone.log_spread)
    log_spread = np.hypot(of_device, of_scaling)
    added = np.subtract(log_spread, of_device, out=np.zeros_like(step_s), where=np.isfinite(of_device))
    wider = np.exp(Z_90 * added)
    return replace(
        alone,
        precisions=at(alone.precisions),
        time_sources=at(alone.time_sources),
        batches=best.batches,
        step_low_s=at(alone.step_low_s) * ratio / wider,
        step_high_s=at(alone.step_high_s) * ratio * wider,
        log_spread=log_spread,
        own_log_spread=np.hypot(at(alone.own_log_spread), of_scaling),
        host_log_spread=None if alone.host_log_spread is None else at(alone.host_log_spread),
        bound=np.where(is_waiting, BOUNDS.index("communication"), at(alone.bound)),
        **{name: figures[name] for name in ("step_s", "peak_memory_bytes", "fits", "is_tight")},
        measured=None if alone.measured is None else at(alone.measured) & is_alone,
        part_ratio=None,
        **{name: at(ratio) * (1 - waiting) for name, ratio in uses.items() if ratio is not None},
        scaling=Scaling(
            plans=best.plans,
            plan=best.plan,
            efficiency_ratio=np.divide(
                figures["whole_s"], step_s * gpu_count, out=np.ones_like(step_s), where=is_possible
            ),
        ),
    )
