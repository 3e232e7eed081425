"""Finds the best plan of a served language model for each device and batch, and what it gives."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.predict.narrow_kernels import narrow_kernels
from advisor.predict.precision import Width
from advisor.predict.served_pass import EngineRates, costs_of, is_backed, known_of
from advisor.predict.step_memory import stored_bytes, usable_bytes
from advisor.predict.step_time import by_batch, time_source
from advisor.records.answer import BOUNDS, Z_90
from advisor.records.device import Device, DeviceKind, Precision
from advisor.records.engine import BatchLimits
from advisor.records.options import Options
from advisor.records.prediction import USES, FloatArray, IndexArray, PassesAt, Predictions, Scaling, TokenTimes
from advisor.records.scale import Plan
from advisor.scale.best_plans import BestPlans, Lateness
from advisor.scale.links import fabric_of
from advisor.scale.request_times import RequestTimes, request_times
from advisor.scale.served_model import ServedModel
from advisor.scale.sharded_memory import memory_of_one

_TOKEN_TIMES = (
    "first_s", "between_s", "pass_s", "compute_bound_from", "kv_cache_bytes", "weight_bytes", "undrafted_between_s"
)  # fmt: skip
"""The arrays of `TokenTimes` that depend on the plan; the last one exists only with drafts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replicas:
    """Devices that serve with the same width and limits, their indices (`members`), and their rates in the engine.

    `compute_from` is the fewest requests at which decode is compute-bound, (devices, 1).
    """

    members: Sequence[int]
    devices: Sequence[Device]
    kind: DeviceKind
    width: Width
    limits: BatchLimits
    rates: EngineRates
    compute_from: FloatArray


def initial_figures(model: ServedModel) -> dict[str, float]:
    """Return the figures of a step before any plan."""
    token_times = _TOKEN_TIMES if model.generation.draft_tokens else _TOKEN_TIMES[:-1]
    return {
        **dict.fromkeys(("step_s", "peak_memory_bytes", *token_times), np.inf),
        **dict.fromkeys(("fits", "is_tight"), False),
        "bound": 0,
        "efficiency_ratio": 1.0,
        **dict.fromkeys(USES, 0.0),
    }


def offer(
    best: BestPlans,
    plan: Plan,
    *,
    model: ServedModel,
    replicas: Replicas,
    batches: IndexArray,
    family: int,
    lateness: Lateness,
) -> None:
    """Take the plan on these devices where it is better than the others of its family.

    The batches of each family of plans follow one another in `best`.
    """
    generation, workload, width = model.generation, model.workload, replicas.width
    in_flight = np.ceil(batches / plan.data)

    def under(plan: Plan, model: ServedModel = model) -> RequestTimes:
        return request_times(
            model,
            rates=replicas.rates,
            width=width,
            in_flight=in_flight,
            plan=plan,
            fabric=fabric_of(replicas.devices, plan) if plan.gpu_count > 1 else None,
            chunk_tokens=replicas.limits.max_num_batched_tokens,
        )

    times = under(plan)
    memory = memory_of_one(workload, plan, batches=in_flight, width=width, kind=replicas.kind).total
    usable = np.array([usable_bytes(device, workload) for device in replicas.devices])[:, np.newaxis]
    is_possible = (batches >= plan.data) & (in_flight <= replicas.limits.max_num_seqs) & np.isfinite(times.first_s)
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
        "pass_s": times.passed.total_s,
        "compute_bound_from": replicas.compute_from * plan.data,
        "kv_cache_bytes": held * stored_bytes(memory_line.kv_cache, batches=flight, width=width),
        "weight_bytes": stored_bytes(memory_line.parameters, batches=0 * flight, width=width),
    }
    if generation.draft_tokens:
        tokens["undrafted_between_s"] = under(plan, model.without_drafts).between_s
    passed = times.passed
    # Communication is the larger part of it with several GPUs.
    waiting_s = times.between_s * generation.tokens_per_pass - passed.total_s
    parts = {"compute": passed.compute_s, "memory": passed.memory_s, "launch": passed.overhead_s}
    if plan.tensor > 1 or plan.expert > 1:
        parts["communication"] = waiting_s
    names = np.array([BOUNDS.index(name) for name in parts])
    bound = names[np.argmax([np.broadcast_to(part, shape) for part in parts.values()], axis=0)]
    fits = is_possible & (memory.mid <= usable)
    machines = np.array(float(plan.machines))
    late = np.maximum(1.0, lateness(step_s, replicas.members, flight, machines, TokenTimes(**tokens)))
    best.take(
        plan,
        replicas.members,
        batches=slice(family * len(batches), (family + 1) * len(batches)),
        rank=np.stack(
            [np.where(fits, 0.0, 2.0), np.where(fits, late, 1.0), np.where(fits, step_s * plan.machines, memory.mid)]
        ),
        figures={
            "step_s": np.where(is_possible, step_s, np.inf),
            "peak_memory_bytes": np.where(is_possible, memory.mid, np.inf),
            "fits": fits,
            "is_tight": is_possible & (memory.low <= usable) & (memory.high > usable),
            "bound": bound,
            "efficiency_ratio": efficiency_ratio,
            **{name: part_s / times.round_s for name, part_s in zip(USES, times.round_parts_s, strict=True)},
            **tokens,
        },
    )


def predictions_of(
    best: BestPlans,
    devices: Sequence[Device],
    precisions: Sequence[Precision | None],
    *,
    model: ServedModel,
    options: Options,
    passes_at: PassesAt,
    family_count: int,
) -> Predictions:
    """Return the predictions under the best plans, with the spreads of the engine."""
    figures, batch_count, engine = dict(best.figures), len(best.batches), model.engine
    of_experts = engine.experts.log_spread if model.experts_per_token else 0.0
    is_alone = best.batches == 1
    spreads = np.zeros((3, len(devices), batch_count))
    backed, runs = [], []
    for index, device in enumerate(devices):
        costs = costs_of(device, engine)
        known = known_of(device, engine)
        kernels = narrow_kernels(device, engine, model.generation)
        of_vendor, of_narrow = engine.vendor_log_spread(device), math.hypot(*(one.log_spread for one in kernels))
        is_other = device.kind == "gpu" and device.generation not in costs.fitted_generations
        of_generation = engine.other_generation_log_spread if is_other else 0.0
        of_first = engine.other_generation_ttft_log_spread if is_other else 0.0
        of_kernels = math.hypot(of_vendor, max(of_generation, of_experts, of_narrow))
        alone = costs.known_log_spread if known == "device" else costs.tpot_log_spread
        spreads[0, index] = np.hypot(np.where(is_alone, alone, max(costs.load_log_spread, alone)), of_kernels)
        spreads[1, index] = math.hypot(costs.ttft_log_spread, of_vendor, max(of_first, of_experts, of_narrow))
        spreads[2, index] = math.hypot(
            math.sqrt(max(costs.tpot_log_spread**2 - costs.known_log_spread**2 / 2, 1e-4)),
            of_vendor,
            of_generation,
        )
        runs.append("; ".join(one.runs for one in kernels))
        backed.append(is_backed(device, engine=engine, kernels=kernels))
    of_plan = np.array([_is_measured(plan) for plan in best.plans or (Plan(),)])[best.plan]
    is_measured = of_plan & np.array(backed, dtype=np.bool_)[:, np.newaxis]
    unfitted, fitted = (
        by_batch([time_source(device, is_fitted=one) for device in devices], batch_count) for one in (False, True)
    )
    step_s = figures["step_s"]
    time_ratio = np.array([device.time_ratio for device in devices])[:, np.newaxis]
    tokens = {name: figures.pop(name) for name in _TOKEN_TIMES if name in figures}
    efficiency_ratio = figures.pop("efficiency_ratio")
    scaling = None
    if best.plans not in ((), (Plan(),)):
        scaling = Scaling(
            plans=best.plans,
            plan=best.plan,
            efficiency_ratio=efficiency_ratio,
            family=np.repeat(np.arange(family_count), batch_count // family_count) if family_count > 1 else None,
        )
    return Predictions(
        devices=tuple(devices),
        precisions=by_batch(precisions, batch_count),
        time_sources=np.where(is_measured, fitted, unfitted),
        compile=options.compile,
        batches=best.batches,
        step_low_s=step_s * time_ratio * np.exp(-Z_90 * spreads[0]),
        step_high_s=step_s * np.exp(Z_90 * spreads[0]),
        log_spread=spreads[0],
        own_log_spread=np.minimum(spreads[2], spreads[0]),
        **figures,
        scaling=scaling,
        tokens=TokenTimes(
            **{name: np.where(np.isfinite(step_s), values, np.inf) for name, values in tokens.items()},
            first_log_spread=spreads[1],
            passes_at=passes_at,
            kernels=tuple(runs),
        ),
    )


def _is_measured(plan: Plan) -> bool:
    """Return whether services under such plans were measured: on one GPU, tensor-parallel, or copies of these."""
    return plan.machines == plan.pipeline == plan.expert == 1
