"""Chooses, for each device and batch, the cheapest of the precisions in which a step was predicted."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.predict.join import with_arrays
from advisor.predict.precision import precisions_of
from advisor.records.device import Device, Precision
from advisor.records.options import PrecisionChoice
from advisor.records.prediction import FloatArray, IndexArray, Predictions
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


def cheapest_runs(
    predictions: Predictions,
    places: IndexArray,
    *,
    late: FloatArray | None = None,
    machine_s: FloatArray | None = None,
) -> Predictions:
    """Keep, for each device and batch, the run that costs least of those that fit in memory and are least late.

    The devices of `predictions` are runs, and `places` gives the device of each, in order. `late` is predicted over
    allowed time where it is above 1, and cost grows with `machine_s`, (runs, batches); by default no run is late, and
    cost grows with the time of the step. If no run fits, the one that needs the least memory is kept.
    """
    device_count = int(places[-1]) + 1 if len(places) else 0
    if device_count == len(places):
        return predictions
    fits, step_s = predictions.fits, predictions.step_s
    keys = (
        ~fits,
        np.where(fits, np.ones_like(step_s) if late is None else late, 1.0),
        np.where(fits, step_s if machine_s is None else machine_s, predictions.peak_memory_bytes),
    )
    first = np.searchsorted(places, np.arange(device_count))
    run = np.repeat(first[:, np.newaxis], len(predictions.batches), axis=1)
    batch = np.arange(len(predictions.batches))
    for other in np.setdiff1d(np.arange(len(places)), first).tolist():
        kept = run[places[other]]
        is_less, is_equal = np.zeros(len(batch), dtype=np.bool_), np.ones(len(batch), dtype=np.bool_)
        for key in keys:
            is_less |= is_equal & (key[other] < key[kept, batch])
            is_equal &= key[other] == key[kept, batch]
        run[places[other]] = np.where(is_less, other, kept)
    kept_runs = with_arrays(predictions, lambda array: array[..., run, batch] if array.ndim > 1 else array)
    return replace(kept_runs, devices=tuple(predictions.devices[index] for index in first.tolist()))
