"""Corrects predictions with a step that was timed on one device.

A prediction's error, log(measured / predicted), is the sum of a part of the device and a part of the workload that all
devices share. Given one measured error, the best estimate of the shared part is w = shared^2 / (shared^2 + own^2) times
the error, where shared and own are the predicted spreads of both parts (the mean of one of two independent normals,
given their sum). This part is carried to the other devices, and their shared variance falls to 1 - w of its value.

`scripts/anchor_table.py` shows when this helps: from one GPU to others in the same precision class if the same resource
bounds the step on both. It does not help from a CPU to other CPUs or to GPUs; there a timed step only gives its own
time.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from advisor.predict.efficiency import precision_class
from advisor.records.answer import Z_90
from advisor.records.device import Device, Precision
from advisor.records.prediction import Anchor, IndexArray, Predictions

Correct: TypeAlias = Callable[[Predictions], Predictions]
"""Corrects the predicted steps of single devices by steps that were timed."""


def uncorrected(predictions: Predictions) -> Predictions:
    """Return the predictions as they are: no step was timed."""
    return predictions


def scaled(predictions: Predictions, *, ratio: float, anchors: Iterable[Anchor] = ()) -> Predictions:
    """Return the predictions with every step longer by this factor, and the timed steps in place of theirs.

    It compares changes of a timed step with it: the predictions are taken to err alike, or their errors would count as
    differences.
    """
    times = ("step_s", "step_low_s", "step_high_s")
    predictions = replace(predictions, **{name: getattr(predictions, name) * ratio for name in times})
    for anchor in anchors:
        predictions = _timed(predictions, anchor)
    return predictions


def shared_share(anchor: Anchor) -> float:
    """Return the share of the prediction's variance that all devices have in common."""
    if not 0 < anchor.log_spread < np.inf:
        return 0.0
    return 1.0 - (anchor.own_log_spread / anchor.log_spread) ** 2


def carried_share(anchor: Anchor) -> float:
    """Return the share of log(measured / predicted) that is carried to other devices of the kind."""
    return shared_share(anchor) if anchor.device.kind == "gpu" else 0.0


def carried_ratio(anchor: Anchor) -> float:
    """Return the factor by which the times of other devices of the kind are multiplied."""
    return float((anchor.step_s / anchor.predicted_s) ** carried_share(anchor))


def anchored(predictions: Predictions, anchors: Iterable[Anchor]) -> Predictions:
    """Return the predictions corrected by the timed steps, with the timed steps in place of their predictions."""
    for anchor in anchors:
        predictions = _timed(_carried(predictions, anchor), anchor)
    return predictions


def _carried(predictions: Predictions, anchor: Anchor) -> Predictions:
    """Correct the predictions of devices of the same kind and precision class where the step has the same bound.

    Calibrated devices are left out, since they are fitted to their own timings.
    """

    def is_alike(device: Device, precision: Precision) -> bool:
        return device.kind == anchor.device.kind and precision_class(precision) == precision_class(anchor.precision)

    rows = [row for row in _rows(predictions, is_alike) if predictions.time_sources[row, 0] != "calibrated"]
    alike = np.zeros(predictions.step_s.shape, dtype=np.bool_)
    alike[rows] = predictions.bound[rows] == anchor.bound
    step_s, low_s, high_s, log_spread = (
        getattr(predictions, name).copy() for name in ("step_s", "step_low_s", "step_high_s", "log_spread")
    )
    own = predictions.own_log_spread[alike] ** 2
    shared = np.maximum(log_spread[alike] ** 2 - own, 0.0)
    log_spread[alike] = np.sqrt(own + (1.0 - carried_share(anchor)) * shared)
    widened = np.exp(Z_90 * (log_spread[alike] - predictions.log_spread[alike]))
    ratio = carried_ratio(anchor)
    step_s[alike] *= ratio
    low_s[alike] *= ratio / widened  # of a time-sliced GPU that of the whole one
    high_s[alike] *= ratio * widened
    return replace(predictions, step_s=step_s, step_low_s=low_s, step_high_s=high_s, log_spread=log_spread)


def _timed(predictions: Predictions, anchor: Anchor) -> Predictions:
    """Replace the prediction of the timed step by its time: on the same GPU, or the same CPU with as many cores."""
    timed = (anchor.device.id, anchor.device.core_count, anchor.precision)
    rows = _rows(predictions, lambda device, precision: (device.id, device.core_count, precision) == timed)
    cells = np.ix_(np.array(rows, dtype=np.intp), np.flatnonzero(predictions.batches == anchor.batch))
    log_spread = float(np.log(anchor.step_high_s / anchor.step_low_s) / (2 * Z_90))
    found = {
        "step_s": anchor.step_s,
        "step_low_s": anchor.step_low_s,
        "step_high_s": anchor.step_high_s,
        "log_spread": log_spread,
        "own_log_spread": log_spread,
        "host_log_spread": 0.0,
        "measured": True,
    }
    arrays = {name: _array(predictions, name) for name in found}
    for name, value in found.items():
        arrays[name][cells] = value
    return replace(predictions, **arrays)


def _array(predictions: Predictions, name: str) -> Any:
    """Return a copy of the array; all False or 0 if there is none."""
    array = getattr(predictions, name)
    if array is None:
        return np.zeros(predictions.step_s.shape, dtype=np.bool_ if name == "measured" else np.float64)
    return array.copy()


def _rows(predictions: Predictions, wanted: Callable[[Device, Precision], bool]) -> list[int]:
    """Return the devices, each predicted in one precision, for which the condition holds."""
    pairs = enumerate(zip(predictions.devices, predictions.precisions[:, 0], strict=True))
    return [row for row, (device, used) in pairs if used is not None and wanted(device, used)]


def at_timed_batch(predictions: Predictions, indices: IndexArray) -> Predictions:
    """Limit the devices at `indices` to the batch sizes at which they were timed, if any."""
    if predictions.measured is None:
        return predictions
    fits = predictions.fits.copy()
    timed = np.array([index for index in indices if predictions.measured[index].any()], dtype=np.intp)
    fits[timed] &= predictions.measured[timed]
    return replace(predictions, fits=fits)
