"""Predicts the requests of a language model in service on every device, under the best plan over its GPUs."""

from collections.abc import Callable, Sequence

import numpy as np

from advisor.errors import UsageError
from advisor.predict.batches import LARGEST_AUTO
from advisor.predict.precision import Width, width_of
from advisor.predict.served_pass import EngineRates, engine_rates, pass_times
from advisor.records.device import Device, DeviceKind, Efficiency, Precision
from advisor.records.engine import BatchLimits, Engine
from advisor.records.generation import Generation
from advisor.records.options import Options
from advisor.records.prediction import FloatArray, IndexArray, Predictions
from advisor.records.scale import Fabric, Plan, Spreading
from advisor.records.workload import Workload
from advisor.scale.best_plans import BestPlans, Lateness, never_late
from advisor.scale.links import fabric_of
from advisor.scale.plans import divides_heads, served_plans, too_few_gpus, used_together
from advisor.scale.replica_passes import passes_at
from advisor.scale.request_times import request_times
from advisor.scale.served_best import Replicas, initial_figures, offer, predictions_of
from advisor.scale.served_model import ServedModel

_COMPARED = np.array([1 << exponent for exponent in range(LARGEST_AUTO.bit_length())], dtype=np.float64)
"""The concurrencies at which decode is checked for being compute-bound."""


def predict_served(
    workload: Workload,
    *,
    devices: Sequence[Device],
    efficiencies: Sequence[Efficiency],
    batches: IndexArray,
    options: Options,
    asked: Spreading,
    lateness: Lateness = never_late,
    family_of: Callable[[Plan], tuple[int, ...]] = lambda plan: (),
) -> Predictions:
    """Predict the requests in flight on each device at each concurrency, under the plan that answers most of them.

    Plans that fit and keep the time limits come first. Plans of different families, which `family_of` orders, are not
    compared: the result has all batches once for each family. Raises `UsageError` if no machine can run what was asked.
    """
    model = ServedModel(workload)
    generation, engine = model.generation, model.engine
    if asked.expert and not model.experts_per_token:
        raise UsageError(f"--expert-parallel: {workload.name} has no experts", hint="leave out --expert-parallel")
    precisions = [_precision_of(device, engine, generation, options) for device in devices]
    groups: dict[tuple[DeviceKind, Width, tuple[int, bool, bool], BatchLimits], list[int]] = {}
    for index, (device, precision) in enumerate(zip(devices, precisions, strict=True)):
        if precision is None:
            continue
        # Several machines may serve together; the GPUs of a machine may have links to each other.
        may_join = asked.max_machines > 1 and device.kind == "gpu" and device.network_bytes_per_s is not None
        is_linked = device.gpu_count == 1 or bool(device.nvlink_bytes_per_s or device.peer_link_bytes_per_s)
        machine = (device.gpu_count, may_join, is_linked)
        key = (device.kind, width_of(precision), machine, engine.batch_limits(device))
        groups.setdefault(key, []).append(index)
    plans_of = {
        (gpu_count, may_join, is_linked): [
            plan
            for machines, used in used_together(gpu_count, has_network=may_join, asked=asked)
            for plan in served_plans(workload, gpu_count=used, asked=asked, machines=machines, is_linked=is_linked)
        ]
        for gpu_count, may_join, is_linked in {key[2] for key in groups}
    }
    plans = list(dict.fromkeys(plan for _, _, machine, _ in groups for plan in plans_of[machine]))
    if groups and not plans:
        raise _no_plan(workload, [device.gpu_count for device in devices], asked)
    families = sorted({family_of(plan) for plan in plans})
    best = BestPlans(
        plans,
        device_count=len(devices),
        batches=np.tile(batches, max(1, len(families))),
        key_count=3,
        initial=initial_figures(model),
    )
    replicas = []
    for (kind, width, machine, limits), members in groups.items():
        some = [devices[index] for index in members]
        rates = engine_rates(
            some,
            [one for one in (precisions[index] for index in members) if one is not None],
            engine=engine,
            efficiencies=efficiencies,
            weights=generation.weights,
            kv_cache=generation.kv_cache,
        )
        group = Replicas(
            members=members,
            devices=some,
            kind=kind,
            width=width,
            limits=limits,
            rates=rates,
            compute_from=_compute_bound_from(model, rates, width),
        )
        replicas.append(group)
        for plan in plans_of[machine]:
            family = families.index(family_of(plan))
            offer(best, plan, model=model, replicas=group, batches=batches, family=family, lateness=lateness)
    return predictions_of(
        best,
        devices,
        precisions,
        model=model,
        options=options,
        passes_at=lambda *at: passes_at(model, best, replicas, *at),
        family_count=len(families),
    )


def exchange_ratio(
    workload: Workload,
    device: Device,
    *,
    precision: Precision,
    plan: Plan,
    batch: int,
    efficiencies: Sequence[Efficiency],
) -> float:
    """Return the share of a request's time in which the GPUs of the plan exchange results or wait for each other."""
    model = ServedModel(workload)
    generation, engine = model.generation, model.engine
    rates = engine_rates(
        [device],
        [precision],
        engine=engine,
        efficiencies=efficiencies,
        weights=generation.weights,
        kv_cache=generation.kv_cache,
    )

    def request_s(fabric: Fabric | None) -> float:
        times = request_times(
            model,
            rates=rates,
            width=width_of(precision),
            in_flight=np.ceil(np.array([batch / plan.data])),
            plan=plan,
            fabric=fabric,
            chunk_tokens=engine.batch_limits(device).max_num_batched_tokens,
        )
        return float((times.first_s + generation.decode_count * times.between_s).item())

    return 1 - request_s(None) / request_s(fabric_of([device], plan)) if plan.gpu_count > 1 else 0.0


def _precision_of(device: Device, engine: Engine, generation: Generation, options: Options) -> Precision | None:
    """Return the precision of a device; None if the engine has no kernels there for the formats that were asked for."""
    return (
        None
        if device.stack is not None or generation.missing_kernels(device)
        else engine_precision(device, engine, options)
    )


def engine_precision(device: Device, engine: Engine, options: Options) -> Precision:
    """Return the precision of the weights: 16 bits also where a CPU has no unit for them."""
    if options.precision == "fp32":
        return "fp32"
    if options.precision in ("bf16", "fp16"):
        return options.precision
    if device.kind == "cpu":
        return "fp16" if device.isa in engine.fp16_isas else "bf16"
    return "bf16" if "bf16" in device.peak_flops_per_s else "fp16"


def _no_plan(workload: Workload, gpu_counts: Sequence[int], asked: Spreading) -> UsageError:
    """Return the error that says why no machine can run what was asked."""
    heads, kv_heads = (
        (workload.generation.head_count, workload.generation.kv_head_count) if workload.generation else (0, 0)
    )
    ways, most = asked.tensor or 1, max(gpu_counts)
    if asked.gpus is not None and asked.gpus > most:
        return too_few_gpus(asked, most=most)
    if not divides_heads(workload, ways):
        possible = [str(one) for one in range(1, most + 1) if divides_heads(workload, one)]
        return UsageError(
            f"--tensor-parallel {ways}: {ways} GPUs cannot share {heads} query heads and {kv_heads} heads of keys and "
            "values, since each GPU holds whole heads",
            hint=f"choose one of {', '.join(possible)}, with --pipeline-parallel for the other GPUs",
        )
    needed = ways * (asked.pipeline or 1) * (asked.expert or 1)
    if asked.gpus is not None and asked.gpus % needed:
        return UsageError(
            f"--gpus {asked.gpus}: the plan needs groups of {needed} GPUs",
            hint=f"choose a multiple of {needed}, or a smaller plan",
        )
    return UsageError(
        f"the plan needs groups of {needed} GPUs, but no machine in the ranking can be divided into such groups; the "
        f"largest has {most}",
        hint="choose a smaller plan, or allow more machines of a known network: --max-machines 2",
    )


def _compute_bound_from(model: ServedModel, rates: EngineRates, width: Width) -> FloatArray:
    """Return the fewest requests of those compared at which decode is compute-bound, (devices, 1), or infinity."""
    times = pass_times(model.work("decode", width, _COMPARED), rates)
    is_bound = times.compute_s > np.maximum(times.memory_s, times.overhead_s)
    first = _COMPARED[is_bound.argmax(axis=1)]
    found: FloatArray = np.where(is_bound.any(axis=1), first, np.inf)[:, np.newaxis]
    return found
