"""Chooses, for each device and batch, the cheapest of the precisions in which a step was predicted."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.predict.join import with_arrays
from advisor.predict.precision import precisions_of
from advisor.records.device import Device, Precision
from advisor.records.options import PrecisionChoice
from advisor.records.prediction import IndexArray, Predictions
from advisor.records.workload import Workload


def runs_of(
    devices: Sequence[Device], choice: PrecisionChoice, *, workload: Workload
) -> tuple[IndexArray, tuple[Precision | None, ...]]:
    """Return the device of each run, by index, and its precision; a device has one run per precision to compare.

    A device that cannot run the choice has one run, without a precision.
    """
    precisions = [
        precisions_of(choice, device, rows=workload.rows, script=workload.script) or (None,) for device in devices
    ]
    places = np.repeat(np.arange(len(devices)), [len(each) for each in precisions])
    return places, tuple(precision for each in precisions for precision in each)


def cheapest_runs(predictions: Predictions, places: IndexArray) -> Predictions:
    """Keep, for each device and batch, the run that costs least of those that fit in memory.

    The devices of `predictions` are runs, and `places` gives the device of each, in order. On one device cost grows
    with the time and the number of machines. If no run fits, the one that needs the least memory is kept.
    """
    device_count = int(places[-1]) + 1 if len(places) else 0
    if device_count == len(places):
        return predictions
    machine_s = predictions.step_s
    if predictions.scaling is not None:
        machines = np.array([plan.machines for plan in predictions.scaling.plans])
        machine_s = machine_s * machines[predictions.scaling.plan]
    amount = np.where(predictions.fits, machine_s, predictions.peak_memory_bytes)
    first = np.searchsorted(places, np.arange(device_count))
    run = np.repeat(first[:, np.newaxis], len(predictions.batches), axis=1)
    batch = np.arange(len(predictions.batches))
    for other in np.setdiff1d(np.arange(len(places)), first).tolist():
        kept = run[places[other]]
        fits, kept_fits = predictions.fits[other], predictions.fits[kept, batch]
        is_less = amount[other] < amount[kept, batch]
        run[places[other]] = np.where((fits & ~kept_fits) | ((fits == kept_fits) & is_less), other, kept)
    kept_runs = with_arrays(predictions, lambda array: array[..., run, batch] if array.ndim > 1 else array)
    return replace(kept_runs, devices=tuple(predictions.devices[index] for index in first.tolist()))
