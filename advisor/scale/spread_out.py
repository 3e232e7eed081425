"""Finds the best parallel plan for each device and batch, and predicts the step under it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from advisor.errors import UsageError
from advisor.predict.precision import Width, width_of
from advisor.records.answer import BOUNDS
from advisor.records.device import Device, DeviceKind
from advisor.records.prediction import BoolArray, FloatArray, IndexArray, Predictions, Scaling
from advisor.records.scale import Plan, Spreading
from advisor.records.workload import Workload
from advisor.scale.links import fabric_of
from advisor.scale.parallel_step import Alone, spread_step
from advisor.scale.plans import gpu_counts, machine_counts, plans_of
from advisor.scale.sharded_memory import memory_of_one
from advisor.scale.traffic import traffic_of

PredictAt = Callable[[IndexArray], Predictions]
"""Predicts the step at these batch sizes on single devices."""
Lateness = Callable[[FloatArray, Plan, Sequence[int]], FloatArray]
"""Returns predicted over allowed time of steps, (members, batches), under the plan on the devices at these indices."""


class IndivisibleBatchError(UsageError):
    """No batch has enough samples for every pass of every GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A plan, and the indices of the devices whose machines can run it."""

    plan: Plan
    members: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Devices of a candidate that have the same kind and store tensors in the same width."""

    plan: Plan
    members: list[int]
    kind: DeviceKind
    width: Width


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Best:
    """The best plan so far for each device and batch, (devices, batches), and its step.

    `alone` is the batch of one pass, as an index of the predicted batches. `rank` holds the sort keys, most important
    first: changes to the model's code, excess over the time limits, then cost, time or memory.
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
            rank=np.full((3, *shape), np.inf),
            **infinite,
        )

    def take(self, members: list[int], offered: "_Best") -> None:
        """Replace the entries for which `offered`, (members, batches), is better."""
        held = self.rank[:, members]
        is_better = offered.rank[2] < held[2]
        for weight in (1, 0):
            is_better = (offered.rank[weight] < held[weight]) | ((offered.rank[weight] == held[weight]) & is_better)
        for field in fields(self):
            mine = getattr(self, field.name)
            mine[..., members, :] = np.where(is_better, getattr(offered, field.name), mine[..., members, :])


def never_late(step_s: FloatArray, plan: Plan, members: Sequence[int]) -> FloatArray:
    """Return 0 for every step: no time limit is set."""
    return np.zeros_like(step_s)


def compared_plans(workload: Workload, devices: Sequence[Device], asked: Spreading) -> list[Plan]:
    """Return every plan that `spread_out` compares."""
    return [candidate.plan for candidate in _candidates(workload, devices, asked)]


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

    If no plan keeps the limits, the one closest to them is used. If every device runs alone and nothing else was
    requested, the result is that of `predict_at`. Raises `IndivisibleBatchError` if no batch can be divided as
    requested.
    """
    candidates = sorted(_candidates(workload, devices, asked), key=lambda one: _needs_code_changes(one.plan, workload))
    if all(candidate.plan == Plan() for candidate in candidates) and asked.gpus is None:
        return predict_at(batches)
    passes = {candidate.plan: pass_batches(batches, candidate.plan) for candidate in candidates}
    if not any(_divides(batches, plan).any() for plan in passes):
        raise IndivisibleBatchError(
            f"--accumulate {asked.accumulate}: the batch has too few samples", hint="increase --batch or leave it out"
        )
    sizes = np.unique(np.concatenate([batches, *passes.values()])) if workload.batch_is_affine else batches
    alone = predict_at(sizes)
    shape = (len(devices), len(batches))
    best = _Best.none_yet(shape)
    for number, candidate in enumerate(candidates):
        at = np.searchsorted(sizes, passes[candidate.plan])
        if not np.isin(passes[candidate.plan], sizes).all():
            continue  # the step is known only at its own batch size
        weight = candidate.plan.machines if by_cost else 1
        is_divided = _divides(batches, candidate.plan)
        needs_code_changes = _needs_code_changes(candidate.plan, workload)
        if needs_code_changes:  # a model that fits on one GPU is never split
            candidate = replace(candidate, members=[one for one in candidate.members if best.rank[0, one].any()])
        for group in _of_one_width(candidate, alone):
            offered = _offered(workload, group, alone=alone, at=at, is_divided=is_divided)
            late = np.maximum(1.0, lateness(offered.step_s, candidate.plan, group.members))
            last = np.where(offered.fits, offered.step_s * np.where(late > 1, 1, weight), offered.peak_bytes)
            offered.plan[:] = number
            offered.rank[:] = (
                np.where(offered.fits, float(needs_code_changes), 2.0),
                np.where(offered.fits, late, 1.0),
                last,
            )
            best.take(group.members, offered)
    return _predictions(best, alone, batches=batches, plans=tuple(candidate.plan for candidate in candidates))


def _candidates(workload: Workload, devices: Sequence[Device], asked: Spreading) -> Iterator[_Candidate]:
    """Return every plan once, with all devices that can run it."""
    members: dict[Plan, list[int]] = {}
    plans: dict[tuple[int, bool], list[Plan]] = {}  # hundreds of devices have the same key
    for index, device in enumerate(devices):
        key = (device.gpu_count, device.network_bytes_per_s is not None)
        if key not in plans:
            plans[key] = list(_plans(workload, gpu_count=key[0], has_network=key[1], asked=asked))
        for plan in plans[key]:
            members.setdefault(plan, []).append(index)
    return (_Candidate(plan=plan, members=indices) for plan, indices in members.items())


def _plans(workload: Workload, *, gpu_count: int, has_network: bool, asked: Spreading) -> Iterator[Plan]:
    """Yield every plan for one or more machines with `gpu_count` GPUs each."""
    for machines in machine_counts(has_network=has_network, asked=asked):
        for used in gpu_counts(gpu_count, asked=asked):
            if machines == 1 or used == gpu_count:
                yield from plans_of(workload, gpu_count=used, machines=machines, asked=asked)


def _needs_code_changes(plan: Plan, workload: Workload) -> bool:
    """Return whether the plan splits the model, which needs changes to its code; serving engines do it themselves."""
    return workload.generation is None and (plan.tensor > 1 or plan.pipeline > 1)


def pass_batches(batches: IndexArray, plan: Plan) -> IndexArray:
    """Return the samples per pass of the fullest data-parallel GPU, which sets the pace."""
    parts = plan.data * plan.accumulate
    return -(-batches // parts)


def _divides(batches: IndexArray, plan: Plan) -> BoolArray:
    """Return whether every pass of every GPU gets at least one sample."""
    return batches >= plan.data * plan.accumulate


def _of_one_width(candidate: _Candidate, alone: Predictions) -> Iterator[_Group]:
    """Group the candidate's devices by kind and by the width of their tensors."""
    groups: dict[tuple[DeviceKind, Width], list[int]] = {}
    for index in candidate.members:
        precision = alone.precisions[index]
        if precision is not None:
            groups.setdefault((alone.devices[index].kind, width_of(precision)), []).append(index)
    for (kind, width), members in groups.items():
        yield _Group(plan=candidate.plan, members=members, kind=kind, width=width)


def _offered(workload: Workload, group: _Group, *, alone: Predictions, at: IndexArray, is_divided: BoolArray) -> _Best:
    """Return the step under the plan, (members, batches); `is_divided`: every pass of every GPU has a sample."""
    shape = (len(group.members), len(at))
    devices = [alone.devices[index] for index in group.members]
    batches = alone.batches[at].astype(np.float64)
    if alone.part_ratio is None:
        raise ValueError("the parts of the step were not counted")
    step_s = alone.step_s[group.members][:, at]
    spread = spread_step(
        Alone(
            step_s=step_s,
            part_s=alone.part_ratio[:, group.members][..., at] * step_s,
            kv_head_count=1 if workload.generation is None else workload.generation.kv_head_count,
        ),
        group.plan,
        traffic=traffic_of(workload, batches=batches, width=group.width),
        fabric=fabric_of(devices, group.plan),
    )
    memory = memory_of_one(workload, group.plan, batches=batches, width=group.width, kind=group.kind).total
    memory_bytes = np.array([device.memory_bytes for device in devices])[:, np.newaxis]
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
        rank=np.zeros((3, *shape)),
    )


def _predictions(best: _Best, alone: Predictions, *, batches: IndexArray, plans: tuple[Plan, ...]) -> Predictions:
    """Return the steps under the best plans, with the relative errors of the device: those of links are unknown."""
    rows = np.arange(len(alone.devices))[:, np.newaxis]

    def at(array: Any) -> Any:
        return array[rows, best.alone]

    ratio = np.divide(best.step_s, at(alone.step_s), out=np.ones_like(best.step_s), where=np.isfinite(best.step_s))
    is_waiting = best.waiting_s > best.step_s / 2
    is_alone = np.array([plan == Plan() for plan in plans])[best.plan]
    return replace(
        alone,
        batches=batches,
        step_s=best.step_s,
        step_low_s=at(alone.step_low_s) * ratio,
        step_high_s=at(alone.step_high_s) * ratio,
        log_spread=at(alone.log_spread),
        own_log_spread=at(alone.own_log_spread),
        bound=np.where(is_waiting, BOUNDS.index("communication"), at(alone.bound)),
        peak_memory_bytes=best.peak_bytes,
        fits=best.fits,
        is_tight=best.is_tight,
        measured=None if alone.measured is None else at(alone.measured) & is_alone,
        part_ratio=None,
        scaling=Scaling(plans=plans, plan=best.plan, efficiency_ratio=best.efficiency_ratio),
    )
