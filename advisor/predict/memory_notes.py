"""A workload and its predictions in, what to say of the devices that are too small for it out."""

import numpy as np

from advisor import units
from advisor.predict.precision import width_of
from advisor.predict.remedies import Remedied, Step, remedies
from advisor.predict.step_memory import verdict_of
from advisor.records.device import Device
from advisor.records.prediction import Predictions
from advisor.records.sample_words import at_batch_text
from advisor.records.scale import Plan
from advisor.records.workload import Workload


def memory_notes(workload: Workload, predictions: Predictions) -> tuple[str, ...]:
    """One sentence on the largest device of those with too little memory: the numbers, and what would make it fit."""
    fits: list[bool] = np.any(predictions.fits, axis=1).tolist()
    is_counted: list[bool] = np.any(np.isfinite(predictions.peak_memory_bytes), axis=1).tolist()
    too_small = [
        index
        for index, precision in enumerate(predictions.precisions)
        if precision is not None and not fits[index] and is_counted[index]
    ]
    if not too_small:
        return ()
    index = max(too_small, key=lambda each: predictions.devices[each].memory_bytes)
    device, precision = predictions.devices[index], predictions.precisions[index]
    if precision is None:
        return ()
    at = int(predictions.peak_memory_bytes[index].argmin())
    batch, has = int(predictions.batches[at]), units.format_bytes(device.memory_bytes)
    too_small_at = f"too small {at_batch_text(batch, workload.generation)}"
    plan = predictions.scaling.plans[predictions.scaling.plan[index, at]] if predictions.scaling else Plan()
    if plan != Plan():
        needed = units.format_bytes(float(predictions.peak_memory_bytes[index, at]))
        return (
            f"{too_small_at}: {device.name}, of which each has {has}, and smaller ones: spread over "
            f"{plan.data * plan.tensor * plan.pipeline} the step needs {needed} of each in {precision}.",
        )
    step = Step(workload=workload, batch=batch, width=width_of(precision), kind=device.kind)
    fitting = [changed for changed in remedies(step, device=device) if _fits(changed, device)]
    listed = ", ".join(f"{each.name} {units.format_bytes(float(each.step.peak.mid[0]))}" for each in fitting)
    needed = units.format_bytes(float(step.peak.mid[0]))
    change = f"would fit: {listed}" if listed else "nothing that is known here makes it fit"
    return (
        f"{too_small_at}: {device.name}, which has {has}, and smaller ones: the step needs {needed} in {precision}; "
        f"{change} (advise memory says how).",
    )


def _fits(changed: Remedied, device: Device) -> bool:
    after = changed.step.peak
    verdict = verdict_of(
        low_bytes=float(after.low[0]), high_bytes=float(after.high[0]), memory_bytes=device.memory_bytes
    )
    return verdict != "does not fit"
