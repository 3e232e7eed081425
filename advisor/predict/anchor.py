"""Predictions and a step that was timed on one device in, predictions that rest on it out.

What a prediction is off by has a part of the device's own and a part that the workload has on all devices. Of an error
seen once, log(measured / predicted), the second part is at best the share w = shared^2 / (shared^2 + own^2) of it, with
the spreads that the prediction names for both (the mean of one of two independent normals, given their sum). So w of it
is carried to the other devices, whose shared variance falls to 1 - w of what it was.

`scripts/anchor_table.py` shows where that helps: from one GPU to others at the same class of precision, where the same
resource bounds the step on both. It does not from CPUs to other CPUs or to GPUs; there a timed step says how long that
very step takes, and nothing else.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.predict.efficiency import precision_class
from advisor.records.answer import Z_90
from advisor.records.device import Device, Precision
from advisor.records.prediction import Anchor, IndexArray, Predictions


def shared_share(anchor: Anchor) -> float:
    """The share of the prediction's variance that all devices have in common."""
    if not 0 < anchor.log_spread < np.inf:
        return 0.0
    return 1.0 - (anchor.own_log_spread / anchor.log_spread) ** 2


def carried_share(anchor: Anchor) -> float:
    """The share of log(measured / predicted) that is taken to hold on other devices of the kind."""
    return shared_share(anchor) if anchor.device.kind == "gpu" else 0.0


def carried_ratio(anchor: Anchor) -> float:
    """What the times of other devices of the kind are multiplied by."""
    return float((anchor.step_s / anchor.predicted_s) ** carried_share(anchor))


def anchored(predictions: Predictions, anchors: Iterable[Anchor]) -> Predictions:
    """The predictions, each nearer to what was timed, and the timed steps themselves where they were timed."""
    for anchor in anchors:
        predictions = _timed(_carried(predictions, anchor), anchor)
    return predictions


def _carried(predictions: Predictions, anchor: Anchor) -> Predictions:
    """What the timed step says of every device of its kind, at the same class of precision and bound alike.

    A calibrated device has seen its own steps.
    """
    rows = _rows(predictions, lambda device, precision: _is_alike(anchor, device, precision))
    rows = np.array([row for row in rows if predictions.time_sources[row] != "calibrated"], dtype=np.intp)
    alike = np.zeros(predictions.step_s.shape, dtype=np.bool_)
    alike[rows] = predictions.bound[rows] == anchor.bound
    step_s, low_s, high_s, log_spread = (
        getattr(predictions, name).copy() for name in ("step_s", "step_low_s", "step_high_s", "log_spread")
    )
    own = predictions.own_log_spread[alike] ** 2
    shared = np.maximum(log_spread[alike] ** 2 - own, 0.0)
    step_s[alike] *= carried_ratio(anchor)
    log_spread[alike] = np.sqrt(own + (1.0 - carried_share(anchor)) * shared)
    low_s[alike] = step_s[alike] * np.exp(-Z_90 * log_spread[alike])
    high_s[alike] = step_s[alike] * np.exp(Z_90 * log_spread[alike])
    return replace(predictions, step_s=step_s, step_low_s=low_s, step_high_s=high_s, log_spread=log_spread)


def _timed(predictions: Predictions, anchor: Anchor) -> Predictions:
    """The timed step itself, on that very device: of another of its kind as a calibration holds for it."""
    rows = _rows(predictions, lambda device, precision: _is_same(anchor, device, precision))
    cells = np.ix_(rows, np.flatnonzero(predictions.batches == anchor.batch))
    log_spread = float(np.log(anchor.step_high_s / anchor.step_low_s) / (2 * Z_90))
    found = {
        "step_s": anchor.step_s,
        "step_low_s": anchor.step_low_s,
        "step_high_s": anchor.step_high_s,
        "log_spread": log_spread,
        "own_log_spread": log_spread,
        "measured": True,
    }
    arrays = {name: _array(predictions, name) for name in found}
    for name, value in found.items():
        arrays[name][cells] = value
    return replace(predictions, **arrays)


def _array(predictions: Predictions, name: str) -> Any:
    """A copy; of what was measured before, nothing where nothing was."""
    array = getattr(predictions, name)
    return np.zeros(predictions.step_s.shape, dtype=np.bool_) if array is None else array.copy()


def _rows(predictions: Predictions, wanted: Callable[[Device, Precision], bool]) -> IndexArray:
    pairs = enumerate(zip(predictions.devices, predictions.precisions, strict=True))
    return np.array([row for row, (device, used) in pairs if used is not None and wanted(device, used)], dtype=np.intp)


def at_timed_batch(predictions: Predictions, indices: IndexArray) -> Predictions:
    """The predictions, in which the devices at `indices` have the batch at which they were timed alone."""
    if predictions.measured is None:
        return predictions
    fits = predictions.fits.copy()
    timed = np.array([index for index in indices if predictions.measured[index].any()], dtype=np.intp)
    fits[timed] &= predictions.measured[timed]
    return replace(predictions, fits=fits)


def _is_alike(anchor: Anchor, device: Device, precision: Precision) -> bool:
    is_same_class = precision_class(precision) == precision_class(anchor.precision)
    return device.kind == anchor.device.kind and is_same_class


def _is_same(anchor: Anchor, device: Device, precision: Precision) -> bool:
    """The same GPU, or the same CPU with as many cores, at the same precision: as a calibration holds."""
    timed = anchor.device
    return (device.id, device.core_count, precision) == (timed.id, timed.core_count, anchor.precision)
