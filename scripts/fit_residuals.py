"""Estimates the width of prediction intervals from errors on devices, generations and vendors left out of the fit."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import Literal

import numpy as np
from left_out_spread import COVERAGE, student_ratio
from scipy.optimize import minimize
from shipped_fit import GENERATION, ShippedFit, relatives_of

from advisor.fit.sample import MeasuredStep
from advisor.records.answer import Z_90
from advisor.records.device import Device
from advisor.records.prediction import BoolArray, FloatArray

_TAIL = 4.0
"""Degrees of freedom of Student's t: the errors have heavier tails than a normal distribution."""
_PRIOR_SPREAD, _PRIOR_WEIGHT = 0.06, 0.002
"""Prior of a spread, and its weight relative to the mean over all steps."""
_LEAST_HOST_SHARE = 0.5
"""Dispatch overhead relative to the predicted time from which a step counts as bound by the host."""
_LEAST_SPREAD, _MOST_SPREAD = 0.003, 0.8

Level = Literal["device", "generation", "vendor"]
"""The unit that a fit leaves out. Instances with other core counts of one CPU are one device."""
_PART_OF: Mapping[Level, Callable[[Device], str]] = {
    "device": lambda device: device.name,
    "generation": lambda device: device.generation,
    "vendor": lambda device: device.vendor,
}


def _offset_part(step: MeasuredStep, *, by: Level) -> str:
    """Return the device or generation whose steps share an offset; the parts of a vendor are its generations."""
    return _PART_OF["generation" if by == "vendor" else by](step.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Standard deviations of log(measured / predicted) on a known device, named as in `Efficiency`."""

    device_log_spread: float
    workload_log_spread: float
    backward_log_spread: float
    compiled_log_spread: float
    host_log_spread: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Errors:
    """The error of every step by a fit, which has not seen the step's device if it was left out."""

    errors: FloatArray
    """log(measured / predicted)."""
    host_shares: FloatArray
    """Predicted share of the dispatch overhead in the step."""

    def only(self, chosen: BoolArray) -> "Errors":
        """Return the errors of some of the steps."""
        return Errors(errors=self.errors[chosen], host_shares=self.host_shares[chosen])


def errors_of(fit: ShippedFit, logs: FloatArray) -> Errors:
    """Return the errors of the fit itself."""
    return Errors(errors=np.log(fit.sample.measured_s / fit.seconds(logs)), host_shares=fit.host_shares(logs))


def left_out(fit: ShippedFit, logs: FloatArray, *, by: Level) -> Errors:
    """Return the error of every step by a fit without all steps of its device, generation or vendor.

    The vendor with the most devices is never left out; its errors are NaN.
    """
    sample = fit.sample
    names = [_PART_OF[by](device) for device in sample.devices]
    kept = Counter(names).most_common(1)[0][0] if by == "vendor" else ""
    parts = {name: [index for index, own in enumerate(names) if own == name] for name in dict.fromkeys(names)}
    found = errors_of(fit, logs)
    found.errors[np.isin(sample.device_of_step, parts.pop(kept, []))] = np.nan
    slopes = fit.slopes(logs)
    with ProcessPoolExecutor() as pool:
        solved = pool.map(partial(_without, fit, logs, slopes), parts.values())
        for left, without in zip(parts.values(), solved, strict=True):
            own = np.isin(sample.device_of_step, left)
            there = errors_of(fit, without)
            found.errors[own], found.host_shares[own] = there.errors[own], there.host_shares[own]
    return found


def _without(fit: ShippedFit, logs: FloatArray, slopes: FloatArray, left: Sequence[int]) -> FloatArray:
    """Fit the coefficients without the devices in `left`, whose own coefficients stay at their priors.

    A generation with no other device gets the mean of its relatives, as in the efficiency files. `slopes`, of the whole
    fit, lead close to the solution, and one step with its own slopes to it.
    """
    own = [fit.sample.devices[index] for index in left]
    others = [device for index, device in enumerate(fit.sample.devices) if index not in left]
    names = {(key, device.id) for device in own for key in ("device_compute", "device_memory", "host")}
    known = {device.generation for device in others}
    alone = {device.generation: device.vendor for device in own if device.generation not in known}
    fixed = names | {(key, name) for name in alone for key in GENERATION}
    chosen = ~np.isin(fit.sample.device_of_step, left)
    near = fit.solve(chosen=chosen, start=logs, fixed=fixed, slopes=slopes)
    found = fit.solve(chosen=chosen, start=near, fixed=fixed, steps=1)
    measured = [device for device in others if device.id in {step.device.id for step in fit.sample.steps if step.trust}]
    for name, vendor in alone.items():
        for key in GENERATION:
            found = fit.with_value(found, fit.mean(found, key, relatives_of(vendor, measured)), key, name)
    return found


def offset_log_spread(steps: Sequence[MeasuredStep], found: Errors, *, by: Level) -> float:
    """Return the spread of the offsets that all steps of a device, a generation or a vendor have in common.

    The root mean square of the median errors of groups measured together, averaged within each part and then over the
    parts, weighted by trust and number of rows. It is larger than that by Student's t where there are few parts. Steps
    that the host bounds tell of hosts, which have their own spread. NaN without any part.
    """
    squares_of: dict[str, list[float]] = {}
    weights_of: dict[str, list[float]] = {}
    for members, weight in _groups(steps).values():
        own = found.errors[members][found.host_shares[members] < _LEAST_HOST_SHARE]
        if len(own) and not np.isnan(own).any():
            part = _offset_part(steps[members[0]], by=by)
            squares_of.setdefault(part, []).append(float(np.median(own)) ** 2)
            weights_of.setdefault(part, []).append(weight * len(own) ** 0.25)
    squares = [np.average(squares_of[part], weights=weights_of[part]) for part in squares_of]
    if not squares:
        return math.nan
    trusts = [max(weights_of[part]) for part in squares_of]
    return math.sqrt(float(np.average(squares, weights=trusts))) * student_ratio(len(squares))


def added_spread(whole: float, *, known: float) -> float:
    """Return the spread whose variance, added to that of `known`, gives that of `whole`; 0 if `known` is larger."""
    return math.sqrt(max(whole**2 - known**2, 0.0))


def spreads(steps: Sequence[MeasuredStep], known: Errors, left: Errors) -> Mapping[str, Spread]:
    """Return the spreads by precision class: of devices from the `known` errors, the others from those `left` out.

    The spread of known devices is that of the offsets of groups measured together, whose software and hosts differ. The
    deviations from a group's offset follow Student's t, with a variance that is the same sum as in a prediction: that
    of the precision, that of the host times the square of its share of the step, and those of backward and of compiled
    steps. They are scaled so that 90 % of the deviations lie in their interval. Groups are weighted by their
    trust, regardless of size, so that a thousand nets on one device do not dominate; a group of one shows none.
    """
    deviations, weights = np.zeros(len(steps)), np.zeros(len(steps))
    for members, weight in _groups(steps).values():
        if len(members) > 1:
            deviations[members] = _deviations(left.errors[members])
            weights[members] = weight / len(members)
    precisions = sorted({step.precision for step, weight in zip(steps, weights, strict=True) if weight})
    at = {precision: np.array([step.precision == precision for step in steps]) for precision in precisions}
    parts = np.array([*at.values(), left.host_shares**2, _is_backward(steps), _is_compiled(steps)], dtype=np.float64)
    fitted = _most_likely(parts, deviations, weights)
    ratios = np.abs(deviations) / np.sqrt(fitted**2 @ parts)
    of_devices = offset_log_spread(steps, known, by="device")
    found = {}
    for (precision, here), own in zip(at.items(), fitted, strict=False):
        scale = _weighted_quantile(ratios[here], weights[here], COVERAGE) / Z_90
        host, of_backward, of_compiled = map(float, fitted[len(at) :] * scale)
        found[precision] = Spread(
            device_log_spread=of_devices,
            workload_log_spread=float(own * scale),
            backward_log_spread=of_backward,
            compiled_log_spread=of_compiled,
            host_log_spread=host,
        )
    return found


def _deviations(errors: FloatArray) -> FloatArray:
    """Return each error's deviation from the median of the group's others, as wide as from the group's true offset.

    The median of n - 1 others adds about 1/(n - 1) of the errors' variance (exactly, for two or three); from a median
    that contains the error itself, deviations would be too small, by 30 % in a group of two.
    """
    count = len(errors)
    others = [np.median(np.delete(errors, index)) for index in range(count)]
    return (errors - others) * math.sqrt((count - 1) / count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """All spreads that follow from some steps."""

    known: Mapping[str, Spread]
    """Spreads of a known device, by precision class."""
    unseen: Mapping[Level, float]
    """The spread that each level's offset adds to that of a known device."""


def spreads_from(
    steps: Sequence[MeasuredStep], known: Errors, left: Mapping[Level, Errors], used: BoolArray
) -> Spreads:
    """Return the spreads that the errors of the `used` steps show."""
    some = list(compress(steps, used))
    found = spreads(some, known.only(used), left["generation"].only(used))
    of_known = next(iter(found.values())).device_log_spread  # the same at every precision
    unseen = {
        level: added_spread(offset_log_spread(some, errors.only(used), by=level), known=of_known)
        for level, errors in left.items()
    }
    return Spreads(known=found, unseen=unseen)


def left_out_log_spreads(
    steps: Sequence[MeasuredStep], known: Errors, left: Mapping[Level, Errors], used: BoolArray, *, by: Level
) -> FloatArray:
    """Return one standard deviation of each left-out error, from the `used` steps of the other devices or generations.

    A precision that only one of them ran has the spread that it shows itself.
    """
    whole = spreads_from(steps, known, left, used).known
    parts = np.array([_offset_part(step, by=by) for step in steps])
    found = np.empty(len(steps))
    for part in dict.fromkeys(parts.tolist()):
        own = parts == part
        others = spreads_from(steps, known, left, used & ~own)
        spread_of = {**whole, **others.known}
        found[own] = log_spreads(list(compress(steps, own)), left[by].only(own), spread_of, unseen=others.unseen[by])
    return found


def log_spreads(
    steps: Sequence[MeasuredStep], errors: Errors, spread_of: Mapping[str, Spread], *, unseen: FloatArray | float
) -> FloatArray:
    """Return one standard deviation of log(measured / predicted) per step; `unseen` is that of an unseen device."""
    parts = (
        ("device", np.ones(len(steps))), ("workload", np.ones(len(steps))), ("host", errors.host_shares**2),
        ("backward", _is_backward(steps)), ("compiled", _is_compiled(steps)),
    )  # fmt: skip
    own = [spread_of[step.precision] for step in steps]
    variances = np.full(len(steps), 1.0) * np.square(unseen)
    for name, part in parts:
        variances += np.array([getattr(one, f"{name}_log_spread") ** 2 for one in own]) * part
    result: FloatArray = np.sqrt(variances)
    return result


def _groups(steps: Sequence[MeasuredStep]) -> dict[tuple[str, ...], tuple[list[int], float]]:
    """Return the steps of each group measured together, by index, and the group's weight, which is its trust."""
    found: dict[tuple[str, ...], tuple[list[int], float]] = {}
    for index, step in enumerate(steps):
        found.setdefault(step.group, ([], step.trust))[0].append(index)
    return found


def _is_compiled(steps: Sequence[MeasuredStep]) -> BoolArray:
    return np.array([bool(step.kernels.compiled_dispatches.any()) for step in steps])


def _is_backward(steps: Sequence[MeasuredStep]) -> BoolArray:
    return np.array([step.kernels.has_backward for step in steps])


def _most_likely(parts: FloatArray, errors: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the standard deviation of each of the `parts` (parts, steps), if errors follow Student's t."""
    usual = np.full(len(parts), np.log(_PRIOR_SPREAD))

    def unlikelihood(logs: FloatArray) -> float:
        variances = np.exp(2 * logs) @ parts
        of_steps = np.log(variances) / 2 + (_TAIL + 1) / 2 * np.log1p(errors**2 / variances / _TAIL)
        return float(np.average(of_steps, weights=weights) + _PRIOR_WEIGHT * np.sum((logs - usual) ** 2))

    bounds = [(np.log(_LEAST_SPREAD), np.log(_MOST_SPREAD))] * len(parts)
    found: FloatArray = np.exp(minimize(unlikelihood, usual, method="L-BFGS-B", bounds=bounds).x)
    return found


def _weighted_quantile(values: FloatArray, weights: FloatArray, share: float) -> float:
    order = np.argsort(values)
    cumulated = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(cumulated, share)])
