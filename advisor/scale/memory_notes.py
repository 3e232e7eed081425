"""Writes a note about the devices that do not have enough memory for a workload."""

import math
from collections.abc import Callable

import numpy as np

from advisor import units
from advisor.predict.precision import width_of
from advisor.predict.step_memory import usable_bytes, verdict_of
from advisor.records.prediction import Predictions
from advisor.records.sample_words import at_batch_text
from advisor.records.scale import Plan
from advisor.records.workload import Workload
from advisor.scale.remedies import Remedied, Step, remedies


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
    if plan != Plan():
        needed_bytes = float(predictions.peak_memory_bytes[index, at])
        more = math.floor(plan.machines * needed_bytes / available_bytes) + 1
        can_join = (
            device.network_bytes_per_s is not None
            and (workload.generation is not None or workload.mode == "training")
            and plan.data == 1
            and plan.gpu_count == plan.machines * device.gpu_count  # machines that join use all their GPUs
            and more > plan.machines
        )
        return (
            f"{device.name} ({has} each{uses}) and {too_small_at}: on "
            f"{plan.gpu_count} of them the step needs {units.format_bytes(needed_bytes)} each in {precision}"
            + (f"; {more} machines together may hold it (--max-machines {more})." if can_join else "."),
        )
    step = Step(workload=workload, batch=batch, width=width_of(precision, workload), kind=device.kind)
    fitting = [changed for changed in remedies(step, device=device) if _fits(changed, available_bytes)]
    listed = ", ".join(f"{each.name} {units.format_bytes(float(each.step.peak.mid[0]))}" for each in fitting)
    needed = units.format_bytes(float(step.peak.mid[0]))
    change = f"it would fit with {listed}" if listed else "no known change makes it fit"
    return (
        f"{device.name} ({has}{uses}) and {too_small_at}: the step needs {needed} in {precision}; "
        f"{change} (see `advise memory`).",
    )


def _fits(changed: Remedied, memory_bytes: float) -> bool:
    return verdict_of(changed.step.peak, memory_bytes=memory_bytes) != "does not fit"
