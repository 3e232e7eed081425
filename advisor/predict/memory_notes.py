"""A workload and its predictions in, what to say of the devices that are too small for it out."""

import numpy as np

from advisor import units
from advisor.predict.memory import verdict_of
from advisor.predict.precision import width_of
from advisor.predict.remedies import Remedied, Step, remedies
from advisor.records.device import Device
from advisor.records.prediction import Predictions
from advisor.records.workload import Workload
from advisor.sample_words import at_batch_text


def memory_notes(workload: Workload, predictions: Predictions) -> tuple[str, ...]:
    """One sentence on the largest device of those with too little memory: the numbers, and what would make it fit."""
    fits: list[bool] = np.any(predictions.fits, axis=1).tolist()
    too_small = [
        index for index, precision in enumerate(predictions.precisions) if precision is not None and not fits[index]
    ]
    if not too_small:
        return ()
    index = max(too_small, key=lambda each: predictions.devices[each].memory_bytes)
    device, precision = predictions.devices[index], predictions.precisions[index]
    if precision is None:
        return ()
    batch = int(predictions.batches.min())
    step = Step(workload=workload, batch=batch, width=width_of(precision), kind=device.kind)
    fitting = [changed for changed in remedies(step, device=device) if _fits(changed, device)]
    listed = ", ".join(f"{each.name} {units.format_bytes(float(each.step.peak.mid[0]))}" for each in fitting)
    needed, has = units.format_bytes(float(step.peak.mid[0])), units.format_bytes(device.memory_bytes)
    change = f"would fit: {listed}" if listed else "nothing that is known here makes it fit"
    return (
        f"too small {at_batch_text(batch, workload.generation)}: {device.name}, which has {has}, and smaller ones: "
        f"the step needs {needed} in {precision}; {change} (advise memory says how).",
    )


def _fits(changed: Remedied, device: Device) -> bool:
    after = changed.step.peak
    verdict = verdict_of(
        low_bytes=float(after.low[0]), high_bytes=float(after.high[0]), memory_bytes=device.memory_bytes
    )
    return verdict != "does not fit"
