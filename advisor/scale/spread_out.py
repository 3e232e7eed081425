"""Finds the best parallel plan for each device and batch, and predicts the step under it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from advisor.errors import UsageError
from advisor.predict.precision import Width, width_of
from advisor.records.answer import BOUNDS
from advisor.records.device import Device, DeviceKind
from advisor.records.prediction import USES, BoolArray, FloatArray, IndexArray, Predictions, Scaling
from advisor.records.scale import Plan, Spreading
from advisor.records.workload import Workload
from advisor.scale.parallel_step import spread_part
from advisor.scale.plans import members_by_plan
from advisor.scale.sharded_memory import memory_of_one

PredictAt = Callable[[IndexArray], Predictions]
"""Predicts the step at these batch sizes on single devices."""
Lateness = Callable[[FloatArray, Plan, Sequence[int]], FloatArray]
"""Returns predicted over allowed time of steps, (members, batches), under the plan on the devices at these indices."""


_KEY_COUNT = 4
"""Sort keys of a plan: see `_Best`."""


class IndivisibleBatchError(UsageError):
    """No batch has enough samples for every pass of every GPU."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Best:
    """The best plan so far for each device and batch, (devices, batches), and its step.

    `alone` is the batch of one pass, as an index of the predicted batches. `rank` holds the sort keys, most important
    first: changes to the model's code, excess over the time limits, sharding, then cost, time or memory.
    """

    plan: IndexArray
    alone: IndexArray
    step_s: FloatArray
    waiting_s: FloatArray
    efficiency_ratio: FloatArray
    peak_bytes: FloatArray
    fits: BoolArray
    is_tight: BoolArray
    rank: FloatArray

    @classmethod
    def none_yet(cls, shape: tuple[int, int]) -> "_Best":
        """Return an empty result, worse than every plan."""
        infinite = {name: np.full(shape, np.inf) for name in ("step_s", "waiting_s", "efficiency_ratio", "peak_bytes")}
        return cls(
            plan=np.zeros(shape, dtype=np.intp),
            alone=np.zeros(shape, dtype=np.intp),
            fits=np.zeros(shape, dtype=np.bool_),
            is_tight=np.zeros(shape, dtype=np.bool_),
            rank=np.full((_KEY_COUNT, *shape), np.inf),
            **infinite,
        )

    def take(self, members: list[int], offered: "_Best") -> None:
        """Replace the entries for which `offered`, (members, batches), is better."""
        is_taken = precedes(offered.rank, self.rank[:, members])
        for field in fields(self):
            mine = getattr(self, field.name)
            mine[..., members, :] = np.where(is_taken, getattr(offered, field.name), mine[..., members, :])


def precedes(rank: FloatArray, held: FloatArray) -> BoolArray:
    """Return where `rank` is less than `held`, (keys, ...): by the first key in which they differ."""
    is_less: BoolArray = rank[-1] < held[-1]
    for new, old in zip(rank[-2::-1], held[-2::-1], strict=True):
        is_less = (new < old) | ((new == old) & is_less)
    return is_less


def never_late(step_s: FloatArray, plan: Plan, members: Sequence[int]) -> FloatArray:
    """Return 0 for every step: no time limit is set."""
    return np.zeros_like(step_s)


def spread_out(
    workload: Workload,
    *,
    devices: Sequence[Device],
    batches: IndexArray,
    predict_at: PredictAt,
    asked: Spreading,
    lateness: Lateness = never_late,
    by_cost: bool = True,
) -> Predictions:
    """Predict the step at each global batch under the cheapest (or fastest) plan that fits and keeps the time limits.

    If no plan keeps the limits, the one closest to them is used. Nothing is sharded if the model fits each GPU safely
    and the limits are kept without, unless that was requested. If every device runs alone and nothing else was
    requested, the result is that of `predict_at`. Raises `IndivisibleBatchError` if no batch can be divided as
    requested.
    """
    members_of = members_by_plan(workload, devices, asked)
    plans = sorted(members_of, key=_needs_code_changes)
    if all(plan == Plan() for plan in plans) and asked.gpus is None:
        return predict_at(batches)
    passes = {plan: pass_batches(batches, plan) for plan in plans}
    if not any(_divides(batches, plan).any() for plan in plans):
        least = min(plan.data * plan.accumulate for plan in plans)
        asked_for = f"--accumulate {asked.accumulate}: " if asked.accumulate > 1 else ""
        raise IndivisibleBatchError(
            f"{asked_for}a batch of {batches.max():,} has too few samples for {least:,}, one for each pass of each GPU",
            hint="increase --batch or leave it out",
        )
    sizes = np.unique(np.concatenate([batches, *passes.values()])) if workload.batch_is_affine else batches
    alone = predict_at(sizes)
    best = _Best.none_yet((len(devices), len(batches)))
    for number, plan in enumerate(plans):
        at = np.searchsorted(sizes, passes[plan])
        if not np.isin(passes[plan], sizes).all():
            continue  # the step is known only at its own batch size
        weight = plan.machines if by_cost else 1
        is_divided = _divides(batches, plan)
        needs_code_changes = _needs_code_changes(plan)
        members = members_of[plan]
        if needs_code_changes:  # a model that fits on one GPU is never split
            members = [one for one in members if best.rank[0, one].any()]
        for (kind, width), group in _by_kind_and_width(workload, members, alone).items():
            offered = _offered(workload, plan, group, kind=kind, width=width, alone=alone, at=at, is_divided=is_divided)
            late = np.maximum(1.0, lateness(offered.step_s, plan, group))
            last = np.where(offered.fits, offered.step_s * np.where(late > 1, 1, weight), offered.peak_bytes)
            offered.plan[:] = number
            offered.rank[:] = (
                np.where(offered.fits, float(needs_code_changes), 2.0),
                np.where(offered.fits, late, 1.0),
                np.where(offered.fits & ~offered.is_tight, float(plan.sharding != "none"), 1.0),
                last,
            )
            best.take(group, offered)
    return _predictions(best, alone, batches=batches, plans=tuple(plans))


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
    is_divided: BoolArray,
) -> _Best:
    """Return the step under the plan, (members, batches); `is_divided`: every pass of every GPU has a sample."""
    shape = (len(members), len(at))
    spread = spread_part(workload, plan, alone=alone, rows=members, at=at, width=width)
    batches = alone.batches[at].astype(np.float64)
    memory = memory_of_one(workload, plan, batches=batches, width=width, kind=kind).total
    memory_bytes = np.array([alone.devices[index].memory_bytes for index in members])[:, np.newaxis]
    is_possible = is_divided & np.isfinite(spread.step_s)
    return _Best(
        plan=np.zeros(shape, dtype=np.intp),
        alone=np.broadcast_to(at, shape),
        step_s=np.where(is_possible, spread.step_s, np.inf),
        waiting_s=spread.waiting_s,
        efficiency_ratio=spread.efficiency_ratio,
        peak_bytes=np.where(is_possible, memory.mid, np.inf),
        fits=is_possible & (memory.mid <= memory_bytes),
        is_tight=is_possible & (memory.low <= memory_bytes) & (memory.high > memory_bytes),
        rank=np.zeros((_KEY_COUNT, *shape)),
    )


def _predictions(best: _Best, alone: Predictions, *, batches: IndexArray, plans: tuple[Plan, ...]) -> Predictions:
    """Return the steps under the best plans, with the relative errors of the device: those of links are unknown."""
    rows = np.arange(len(alone.devices))[:, np.newaxis]

    def at(array: Any) -> Any:
        return array[rows, best.alone]

    ratio = np.divide(best.step_s, at(alone.step_s), out=np.ones_like(best.step_s), where=np.isfinite(best.step_s))
    is_waiting = best.waiting_s > best.step_s / 2
    waiting = np.divide(best.waiting_s, best.step_s, out=np.zeros_like(best.step_s), where=np.isfinite(best.step_s))
    uses = {name: getattr(alone, name) for name in USES}
    is_alone = np.array([plan == Plan() for plan in plans])[best.plan]
    return replace(
        alone,
        precisions=at(alone.precisions),
        time_sources=at(alone.time_sources),
        batches=batches,
        step_s=best.step_s,
        step_low_s=at(alone.step_low_s) * ratio,
        step_high_s=at(alone.step_high_s) * ratio,
        log_spread=at(alone.log_spread),
        own_log_spread=at(alone.own_log_spread),
        host_log_spread=None if alone.host_log_spread is None else at(alone.host_log_spread),
        bound=np.where(is_waiting, BOUNDS.index("communication"), at(alone.bound)),
        peak_memory_bytes=best.peak_bytes,
        fits=best.fits,
        is_tight=best.is_tight,
        measured=None if alone.measured is None else at(alone.measured) & is_alone,
        part_ratio=None,
        **{name: at(ratio) * (1 - waiting) for name, ratio in uses.items() if ratio is not None},
        scaling=Scaling(plans=plans, plan=best.plan, efficiency_ratio=best.efficiency_ratio),
    )
