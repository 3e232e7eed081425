"""Scores predictions against measured step times.

With r = predicted / measured of a row: its absolute percentage error (APE) is |r - 1|. A failed row has an APE of 1 and
counts in nothing else.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from advisor.predict.efficiency import efficiency_of
from advisor.records.device import ANY, Cpu, Device, Gpu, Precision
from advisor.records.measurement import (
    Accuracy,
    FailedRow,
    Known,
    MeasuredRow,
    Measurement,
    PredictedRow,
    Score,
    ScoredGroup,
)
from advisor.records.prediction import FloatArray
from advisor.records.price import Catalog

RowT = TypeVar("RowT")
KeyT = TypeVar("KeyT", bound=Hashable)

_FAILED_APE = 1.0
_LEAST_RANKED_COUNT = 3
"""With fewer rows the rank correlation can only be 1 or -1."""
_LEAST_CHOICE_COUNT = 2

GROUPINGS: Mapping[str, Callable[[MeasuredRow], str]] = {
    "known": lambda row: row.known if isinstance(row, PredictedRow) else "not predicted",
    "generation": lambda row: row.generation,
    "device": lambda row: row.device,
    "kind": lambda row: row.kind,
    "mode": lambda row: row.measurement.mode,
    "precision": lambda row: row.measurement.precision,
    "family": lambda row: row.family,
}
"""The properties by which rows are grouped, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Measured and predicted times of one step on several devices, and the hourly price of each that is sold."""

    measured_s: FloatArray
    predicted_s: FloatArray
    usd_per_hour: Sequence[float | None]


def known_of(device: Device, precision: Precision, catalog: Catalog) -> Known:
    """Return the source of the device's efficiency. Parts of a CPU are fitted as ID@CORES."""
    efficiency = efficiency_of(device, precision=precision, efficiencies=catalog.efficiencies)
    profiles: Mapping[str, Gpu | Cpu] = {**catalog.gpus, **catalog.cpus}
    fitted = {name.partition("@")[0] for name in efficiency.fitted_on}
    kin = [profiles[name] for name in fitted if name in profiles]
    if efficiency.device != ANY:
        return "calibrated"
    if device.id.partition("@")[0] in fitted or has_own_figures(device):
        return "device"
    if device.generation in {efficiency.generation, *(one.generation for one in kin)}:
        return "generation"
    vendors = {efficiency.vendor, *efficiency.fitted_vendors, *(one.vendor for one in kin)}
    return "vendor" if device.vendor in vendors else "other-vendor"


def has_own_figures(device: Device) -> bool:
    """Return whether the profile has fitted figures of this device, beside its datasheet."""
    return (device.sustained_compute_ratio, device.sustained_memory_ratio) != (1.0, 1.0)


def score(predicted: Sequence[PredictedRow], failed: Sequence[FailedRow]) -> Accuracy:
    """Score all rows and every group. Raises ValueError if there are no rows."""
    if not predicted and not failed:
        raise ValueError("there is nothing to score")
    seconds_per_flop = _seconds_per_flop(predicted)
    steps = [
        [of_device[0] for of_device in _grouped(rows, by=lambda row: row.device).values()]
        for rows in _grouped(predicted, by=lambda row: step_of(row.measurement)).values()
    ]
    right_ratio, extra_ratio = cheapest_choice(map(_compared, steps))
    groups = []
    for name, key in GROUPINGS.items():
        predicted_by, failed_by = _grouped(predicted, by=key), _grouped(failed, by=key)
        for value in sorted({*predicted_by, *failed_by}):
            group = _score(predicted_by.get(value, []), failed_by.get(value, []), seconds_per_flop=seconds_per_flop)
            groups.append(ScoredGroup(by={name: value}, score=group))
    return Accuracy(
        overall=_score(predicted, failed, seconds_per_flop=seconds_per_flop),
        kendall_devices=mean_kendall(map(_compared, steps)),
        cheapest_right_ratio=right_ratio,
        mean_extra_cost_ratio=extra_ratio,
        groups=tuple(groups),
        predicted=tuple(predicted),
        failed=tuple(failed),
    )


def kendall_tau_b(first: FloatArray, second: FloatArray) -> float | None:
    """Return Kendall's rank correlation with ties (tau-b; Kendall, "The treatment of ties in ranking problems", 1945).

    None if one of the two is constant.
    """
    first_order = np.sign(first[:, np.newaxis] - first)
    second_order = np.sign(second[:, np.newaxis] - second)
    untied = float(np.sqrt((first_order**2).sum() * (second_order**2).sum()))
    return float((first_order * second_order).sum()) / untied if untied else None


def _score(
    predicted: Sequence[PredictedRow], failed: Sequence[FailedRow], *, seconds_per_flop: Mapping[str, float]
) -> Score:
    """Score the rows beside two baselines: the plain roofline, and FLOP x the median time per FLOP on a kind of device.

    `kendall` is the mean over the devices and ways of running (mode, precision, layout, compile), each with all its
    models and batch sizes. `bias` is the geometric mean of r, less 1.
    """
    measured_s = np.array([row.measurement.step_s for row in predicted])
    own_count = sum(row.without_own_s is not None for row in predicted)
    without_own_s = [row.predicted_s if row.without_own_s is None else row.without_own_s for row in predicted]
    ratios = np.array([row.predicted_s for row in predicted]) / measured_s
    roofline = np.array([row.roofline_s for row in predicted]) / measured_s
    constant = np.array([row.flops * seconds_per_flop[row.kind] for row in predicted]) / measured_s
    apes = _apes(ratios, failed)
    half_widths = [np.log(row.high_s / row.low_s) / 2 for row in predicted]
    log_errors = np.abs(np.log(ratios))
    covered = [row.low_s <= row.measurement.step_s <= row.high_s for row in predicted]
    return Score(
        n=len(predicted) + len(failed),
        failed_count=len(failed),
        own_figures_count=own_count,
        mape=float(apes.mean()),
        mape_without_own_figures=float(_apes(without_own_s / measured_s, failed).mean()) if own_count else None,
        median_ape=float(np.median(apes)),
        p90_ape=float(np.quantile(apes, 0.9)),
        bias=float(np.expm1(np.log(ratios).mean())) if predicted else None,
        kendall=mean_kendall(map(_compared, _grouped(predicted, by=_regime).values())),
        coverage_90=float(np.mean(covered)) if predicted else None,
        half_width_ratio=float(np.median(half_widths) / log_errors.mean()) if log_errors.any() else None,
        roofline_mape=float(_apes(roofline, failed).mean()),
        constant_mape=float(_apes(constant, failed).mean()),
    )


def _apes(ratios: FloatArray, failed: Sequence[FailedRow]) -> FloatArray:
    return np.concatenate((np.abs(ratios - 1), np.full(len(failed), _FAILED_APE)))


def _seconds_per_flop(rows: Sequence[PredictedRow]) -> dict[str, float]:
    """Return the seconds per FLOP of each kind of device; 0 if no row has any FLOP."""
    return {
        kind: float(np.median([row.measurement.step_s / row.flops for row in members if row.flops] or [0.0]))
        for kind, members in _grouped(rows, by=lambda row: row.kind).items()
    }


def mean_kendall(blocks: Iterable[Compared]) -> float | None:
    """Return the mean of Kendall's rank correlation over blocks of at least three times; None if there is none."""
    taus = [
        kendall_tau_b(block.predicted_s, block.measured_s)
        for block in blocks
        if len(block.measured_s) >= _LEAST_RANKED_COUNT
    ]
    known = [tau for tau in taus if tau is not None]
    return float(np.mean(known)) if known else None


def cheapest_choice(blocks: Iterable[Compared]) -> tuple[float | None, float | None]:
    """Return how often the device predicted to be cheapest is the cheapest, and its mean extra cost as a ratio."""
    extra_ratios = []
    for block in blocks:
        sold = np.array([price is not None for price in block.usd_per_hour])
        if sold.sum() < _LEAST_CHOICE_COUNT:
            continue
        usd_per_hour = np.array([price for price in block.usd_per_hour if price is not None])
        true_cost = usd_per_hour * block.measured_s[sold]
        chosen = int(np.argmin(usd_per_hour * block.predicted_s[sold]))
        extra_ratios.append(float(true_cost[chosen] / true_cost.min()) - 1)
    if not extra_ratios:
        return None, None
    return float(np.mean([ratio == 0 for ratio in extra_ratios])), float(np.mean(extra_ratios))


def _compared(rows: Sequence[PredictedRow]) -> Compared:
    return Compared(
        measured_s=np.array([row.measurement.step_s for row in rows]),
        predicted_s=np.array([row.predicted_s for row in rows]),
        usd_per_hour=[row.usd_per_hour for row in rows],
    )


def _regime(row: PredictedRow) -> Hashable:
    measurement = row.measurement
    return row.device, measurement.mode, measurement.precision, measurement.layout, measurement.compile


def step_of(asked: Measurement) -> Hashable:
    """Return the key that rows share if several devices ran the same step."""
    return (
        (asked.model, asked.input, asked.batch),
        (asked.mode, asked.precision, asked.layout, asked.compile, asked.attention, asked.torch),
    )


def _grouped(rows: Iterable[RowT], *, by: Callable[[RowT], KeyT]) -> dict[KeyT, list[RowT]]:
    groups: dict[KeyT, list[RowT]] = {}
    for row in rows:
        groups.setdefault(by(row), []).append(row)
    return groups
