"""Finds the best plan of a served language model for each device and batch, and what it gives."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from advisor.predict.narrow_kernels import narrow_kernels
from advisor.predict.precision import Width
from advisor.predict.served_pass import EngineRates, costs_of, known_of
from advisor.predict.step_memory import stored_bytes, usable_bytes
from advisor.predict.step_time import time_source
from advisor.records.answer import BOUNDS, Z_90
from advisor.records.device import Device, DeviceKind, Precision
from advisor.records.engine import BatchLimits
from advisor.records.options import Options
from advisor.records.prediction import USES, FloatArray, IndexArray, PassesAt, Predictions, Scaling, TokenTimes
from advisor.records.scale import Plan
from advisor.scale.links import fabric_of
from advisor.scale.request_times import RequestTimes, request_times
from advisor.scale.served_model import ServedModel
from advisor.scale.sharded_memory import memory_of_one
from advisor.scale.spread_out import precedes

Lateness = Callable[[FloatArray, TokenTimes, Sequence[int]], FloatArray]
"""Returns predicted over allowed time of steps, (members, batches), on the devices at these indices."""
_TOKEN_TIMES = (
    "first_s", "between_s", "pass_s", "compute_bound_from", "kv_cache_bytes", "weight_bytes", "undrafted_between_s"
)  # fmt: skip
"""The arrays of `TokenTimes` that depend on the plan."""


def offered(
    model: ServedModel,
    plan: Plan,
    devices: Sequence[Device],
    *,
    kind: DeviceKind,
    width: Width,
    rates: EngineRates,
    limits: BatchLimits,
    batches: IndexArray,
    compute_from: FloatArray,
    members: Sequence[int],
    lateness: Lateness | None,
) -> tuple[Plan, dict[str, FloatArray]]:
    """Return the plan, and what it gives on these devices, arrays (devices, batches).

    `members` are the indices of the devices; decode is compute-bound from `compute_from` requests on, (devices, 1).
    """
    generation, workload = model.generation, model.workload
    in_flight = np.ceil(batches / plan.data)

    def under(plan: Plan, model: ServedModel = model) -> RequestTimes:
        return request_times(
            model,
            rates=rates,
            width=width,
            in_flight=in_flight,
            plan=plan,
            fabric=fabric_of(devices, plan) if plan.gpu_count > 1 else None,
            chunk_tokens=limits.max_num_batched_tokens,
        )

    times = under(plan)
    memory = memory_of_one(workload, plan, batches=in_flight, width=width, kind=kind).total
    usable = np.array([usable_bytes(device, workload) for device in devices])[:, np.newaxis]
    is_possible = (batches >= plan.data) & (in_flight <= limits.max_num_seqs) & np.isfinite(times.first_s)
    shape = is_possible.shape
    first_s, between_s = np.broadcast_to(times.first_s, shape), np.broadcast_to(times.between_s, shape)
    step_s = first_s + generation.decode_count * between_s
    efficiency_ratio = np.ones(shape)
    if (shares := plan.tensor * plan.pipeline) > 1:
        alone = under(Plan())
        efficiency_ratio = (alone.first_s + generation.decode_count * alone.between_s) / shares / step_s
    held = plan.tensor * generation.cache_share(plan.tensor)
    memory_line = workload.memory[0]
    flight = batches.astype(np.float64)
    tokens: dict[str, Any] = {
        "first_s": first_s,
        "between_s": between_s,
        "pass_s": np.broadcast_to(times.passed.total_s, shape),
        "compute_bound_from": np.broadcast_to(compute_from * plan.data, shape),
        "kv_cache_bytes": np.broadcast_to(
            held * stored_bytes(memory_line.kv_cache, batches=flight, width=width), shape
        ),
        "weight_bytes": np.broadcast_to(stored_bytes(memory_line.parameters, batches=0 * flight, width=width), shape),
    }
    if generation.draft_tokens:
        tokens["undrafted_between_s"] = np.broadcast_to(under(plan, model.without_drafts).between_s, shape)
    passed = times.passed
    # Communication is the larger part of it with several GPUs.
    waiting_s = times.between_s * generation.tokens_per_pass - passed.total_s
    parts = {"compute": passed.compute_s, "memory": passed.memory_s, "launch": passed.overhead_s}
    if plan.tensor > 1 or plan.expert > 1:
        parts["communication"] = waiting_s
    names = np.array([BOUNDS.index(name) for name in parts])
    bound = names[np.argmax([np.broadcast_to(part, shape) for part in parts.values()], axis=0)]
    fits = is_possible & (memory.mid <= usable)
    late = np.ones(shape)
    if lateness is not None:
        late = np.maximum(1.0, lateness(step_s, TokenTimes(**tokens), members))
    return plan, {
        "step_s": np.where(is_possible, step_s, np.inf),
        "peak_bytes": np.where(is_possible, memory.mid, np.inf),
        "fits": fits,
        "is_tight": is_possible & (memory.low <= usable) & (memory.high > usable),
        "bound": bound,
        "efficiency_ratio": efficiency_ratio,
        **{
            name: np.broadcast_to(part_s / times.round_s, shape)
            for name, part_s in zip(USES, times.round_parts_s, strict=True)
        },
        "rank": np.stack(
            [np.where(fits, 0.0, 2.0), np.where(fits, late, 1.0), np.where(fits, step_s * plan.machines, memory.mid)]
        ),
        **tokens,
    }


class Best:
    """The best plan so far for each device and batch, and its numbers; the batches of each family one after another."""

    def __init__(self, devices: Sequence[Device], batches: IndexArray, *, family_count: int) -> None:
        self.devices, self.batches = devices, np.tile(batches, max(1, family_count))
        self.batch_count, self.family_count = len(batches), family_count
        self.shape = (len(devices), len(self.batches))
        self.plans: list[Plan] = []
        self.plan = np.zeros(self.shape, dtype=np.intp)
        self.rank = np.full((3, *self.shape), np.inf)
        self.held: dict[str, Any] = {
            **{name: np.full(self.shape, np.inf) for name in ("step_s", "peak_bytes", *_TOKEN_TIMES[:-1])},
            **{name: np.zeros(self.shape, dtype=np.bool_) for name in ("fits", "is_tight")},
            "bound": np.zeros(self.shape, dtype=np.intp),
            "efficiency_ratio": np.ones(self.shape),
            **{name: np.zeros(self.shape) for name in USES},
        }

    def take(self, members: Sequence[int], family: int, offered: tuple[Plan, Mapping[str, Any]]) -> None:
        """Replace the entries of the family for which the offered plan is better."""
        plan, values = offered
        columns = slice(family * self.batch_count, (family + 1) * self.batch_count)
        if plan not in self.plans:
            self.plans.append(plan)
        rank, held = values["rank"], self.rank[:, members, columns]
        is_better = precedes(rank, held)
        is_better &= np.isfinite(values["step_s"]) | ~np.isfinite(held[0])
        self.rank[:, members, columns] = np.where(is_better, rank, held)
        self.plan[members, columns] = np.where(is_better, self.plans.index(plan), self.plan[members, columns])
        for name, value in values.items():
            if name != "rank":
                mine = self.held.setdefault(name, np.full(self.shape, np.inf))
                mine[members, columns] = np.where(is_better, value, mine[members, columns])

    def predictions(
        self,
        precisions: Sequence[Precision | None],
        *,
        model: ServedModel,
        options: Options,
        passes_at: PassesAt,
    ) -> Predictions:
        """Return the predictions under the best plans, with the spreads of the engine."""
        held, shape, engine = self.held, self.shape, model.engine
        of_experts = engine.experts.log_spread if model.experts_per_token else 0.0
        is_alone = self.batches == 1
        spreads = np.zeros((3, *shape))
        sources, runs = [], []
        for index, device in enumerate(self.devices):
            costs = costs_of(device, engine)
            known = known_of(device, engine)
            kernels = narrow_kernels(device, engine, model.generation)
            of_kernels = math.hypot(
                engine.vendor_log_spread(device), max(of_experts, math.hypot(*(one.log_spread for one in kernels)))
            )
            alone = costs.known_log_spread if known == "device" else costs.tpot_log_spread
            spreads[0, index] = np.hypot(np.where(is_alone, alone, max(costs.load_log_spread, alone)), of_kernels)
            spreads[1, index] = math.hypot(costs.ttft_log_spread, of_kernels)
            spreads[2, index] = math.hypot(
                math.sqrt(max(costs.tpot_log_spread**2 - costs.known_log_spread**2 / 2, 1e-4)),
                engine.vendor_log_spread(device),
            )
            runs.append("; ".join(one.runs for one in kernels))
            sources.append(time_source(device, is_fitted=known != "vendor"))
        step_s = held["step_s"]
        time_ratio = np.array([device.time_ratio for device in self.devices])[:, np.newaxis]
        is_possible = np.isfinite(step_s)
        tokens = TokenTimes(
            **{name: np.where(is_possible, held[name], np.inf) for name in _TOKEN_TIMES if name in held},
            first_log_spread=spreads[1],
            passes_at=passes_at,
            kernels=tuple(runs),
        )
        plans = tuple(self.plans) or (Plan(),)
        return Predictions(
            devices=tuple(self.devices),
            precisions=np.repeat(np.array(precisions, dtype=np.object_)[:, np.newaxis], shape[1], axis=1),
            time_sources=np.repeat(np.array(sources, dtype=np.object_)[:, np.newaxis], shape[1], axis=1),
            compile=options.compile,
            batches=self.batches,
            step_s=step_s,
            step_low_s=step_s * time_ratio * np.exp(-Z_90 * spreads[0]),
            step_high_s=step_s * np.exp(Z_90 * spreads[0]),
            log_spread=spreads[0],
            own_log_spread=np.minimum(spreads[2], spreads[0]),
            bound=held["bound"],
            **{name: held[name] for name in USES},
            peak_memory_bytes=held["peak_bytes"],
            fits=held["fits"],
            is_tight=held["is_tight"],
            scaling=None
            if plans == (Plan(),)
            else Scaling(
                plans=plans,
                plan=self.plan,
                efficiency_ratio=held["efficiency_ratio"],
                family=np.repeat(np.arange(self.family_count), self.batch_count) if self.family_count > 1 else None,
            ),
            tokens=tokens,
        )
