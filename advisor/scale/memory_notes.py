"""Writes a note about the devices that do not have enough memory for a workload."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from advisor import units
from advisor.predict.precision import width_of
from advisor.predict.step_memory import usable_bytes
from advisor.records.device import Device
from advisor.records.prediction import Predictions
from advisor.records.sample_words import at_batch_text
from advisor.records.scale import Plan, Spreading
from advisor.records.workload import Workload
from advisor.scale.plans import machine_counts
from advisor.scale.remedies import Step, remedies
from advisor.scale.spread_out import pass_batches

_MOST_MACHINES = 32


def memory_notes(workload_at: Callable[[int], Workload], predictions: Predictions) -> tuple[str, ...]:
    """Return a sentence on the largest GPU, or else CPU, with too little memory, and what would make the step fit."""
    fits: list[bool] = np.any(predictions.fits, axis=1).tolist()
    is_counted: list[bool] = np.any(np.isfinite(predictions.peak_memory_bytes), axis=1).tolist()
    too_small = [
        index
        for index, precision in enumerate(predictions.precisions[:, 0])
        if precision is not None and not fits[index] and is_counted[index]
    ]
    if not too_small:
        return ()
    devices = predictions.devices
    index = max(too_small, key=lambda each: (devices[each].kind == "gpu", devices[each].memory_bytes))
    at = int(predictions.peak_memory_bytes[index].argmin())
    device, precision = devices[index], predictions.precisions[index, at]
    batch = int(predictions.batches[at])
    workload = workload_at(batch)
    engine = workload.generation.engine if workload.generation else None
    available_bytes = usable_bytes(device, workload)
    has = units.format_bytes(device.memory_bytes)
    uses = f", of which {engine.name} uses {units.format_bytes(available_bytes)}" if engine else ""
    too_small_at = f"smaller {device.kind.upper()}s have too little memory {at_batch_text(batch, workload.generation)}"
    plan = predictions.scaling.plans[predictions.scaling.plan[index, at]] if predictions.scaling else Plan()
    (of_pass,) = pass_batches(np.array([batch]), plan).tolist()
    run = workload.under(plan)
    step = Step(workload=run, batch=of_pass, width=width_of(precision, run), kind=device.kind, plan=plan)
    needed_bytes = float(predictions.peak_memory_bytes[index, at])
    helps = [each for each in remedies(step, device=device) if each.step.peak.mid[0] <= available_bytes]
    if plan.gpu_count > 1:  # over more GPUs only with more machines
        helps = [each for each in helps if each.name != "sharding"]
    listed = ", ".join(f"{each.name} ({units.format_bytes(float(each.step.peak.mid[0]))})" for each in helps)
    changes = [f"it would fit with {listed}; see `advise memory`"] if listed else []
    needed = units.format_bytes(needed_bytes)
    if plan.gpu_count == 1:
        change = changes[0] if changes else "no known change makes it fit (see `advise memory`)"
        return (f"{device.name} ({has}{uses}) and {too_small_at}: the step needs {needed} in {precision}; {change}.",)
    if more := _machines(step, device=device, batch=batch, needed_bytes=needed_bytes):
        changes.append(f"{more} machines together may hold it (--max-machines {more})")
    on_each = f"on {plan.gpu_count} of them the step needs {needed} each in {precision}"
    return (f"{device.name} ({has} each{uses}) and {too_small_at}: {'; '.join([on_each, *changes])}.",)


def _machines(step: Step, *, device: Device, batch: int, needed_bytes: float) -> int | None:
    """Return the fewest machines that may hold a step together which this one does not; None if they cannot help.

    Machines that join use all their GPUs. A model that is split needs them in proportion to its memory; other training
    is sharded fully over 2, 4, ... of them.
    """
    plan, workload = step.plan, step.workload
    is_possible = workload.generation is not None or workload.mode == "training"
    if device.network_bytes_per_s is None or not is_possible or plan.gpu_count != plan.machines * device.gpu_count:
        return None
    available_bytes = usable_bytes(device, workload)
    if plan.data == 1:
        more = math.floor(plan.machines * needed_bytes / available_bytes) + 1
        return more if more > plan.machines else None
    if plan.tensor * plan.pipeline > 1 or not workload.batch_is_affine:
        return None
    for machines in machine_counts(has_network=True, asked=Spreading(max_machines=_MOST_MACHINES)):
        joined = replace(plan, machines=machines, data=machines * device.gpu_count, sharding="zero3")
        if machines > plan.machines and batch >= joined.data * joined.accumulate:
            (of_pass,) = pass_batches(np.array([batch]), joined).tolist()
            if replace(step, plan=joined, batch=of_pass).peak.mid[0] <= available_bytes:
                return machines
    return None
