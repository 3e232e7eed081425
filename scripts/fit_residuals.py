"""Estimates the width of prediction intervals from the errors on devices left out of the fit."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import minimize

from advisor.fit.coefficients import GENERATION, unlike_vendors
from advisor.fit.sample import MeasuredStep
from advisor.fit.solve import Fit
from advisor.records.answer import Z_90
from advisor.records.prediction import BoolArray, FloatArray

_COVERAGE = 0.9
_TAIL = 4.0
"""Degrees of freedom of Student's t: the errors have heavier tails than a normal distribution."""
_PRIOR_SPREAD, _PRIOR_WEIGHT = 0.06, 0.002
"""Prior of a spread, and its weight relative to the mean over all steps."""
_LEAST_SPREAD, _MOST_SPREAD = 0.003, 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Standard deviations of log(measured / predicted), named as in `Efficiency`."""

    device_log_spread: float
    workload_log_spread: float
    backward_log_spread: float
    compiled_log_spread: float
    host_log_spread: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeftOut:
    """Errors of every step by a fit without its device."""

    errors: FloatArray
    """log(measured / predicted)."""
    host_shares: FloatArray
    """Predicted share of the dispatch overhead in the step."""


def left_out(fit: Fit, logs: FloatArray, *, together: Collection[str] = ()) -> LeftOut:
    """Return the error of every step by a fit without its device and without other core counts of the same CPU.

    The devices `together`, given by id, are left out of one common fit.
    """
    sample = fit.sample
    errors, host_shares = np.empty(len(sample.steps)), np.empty(len(sample.steps))
    parts: dict[str, list[int]] = {}
    for index, device in enumerate(sample.devices):
        parts.setdefault("" if device.id in together else device.name, []).append(index)
    with ProcessPoolExecutor() as pool:
        for left, without in zip(parts.values(), pool.map(partial(_without, fit, logs), parts.values()), strict=True):
            own = np.isin(sample.device_of_step, left)
            errors[own] = np.log(sample.measured_s[own] / fit.seconds(without)[own])
            host_shares[own] = fit.host_shares(without)[own]
    return LeftOut(errors=errors, host_shares=host_shares)


def _without(fit: Fit, logs: FloatArray, left: Sequence[int]) -> FloatArray:
    """Fit the coefficients without the devices in `left`, whose own coefficients stay at their priors.

    So do those of a generation with no other device. If its vendor has other generations, all of them unusual, the
    generation gets their mean instead, as in the efficiency files.
    """
    own = [fit.sample.devices[index] for index in left]
    others = [device for index, device in enumerate(fit.sample.devices) if index not in left]
    names = {(key, device.id) for device in own for key in ("device_compute", "device_memory", "host")}
    known = {device.generation for device in others}
    alone = {device.generation: device.vendor for device in own if device.generation not in known}
    fixed = names | {(key, name) for name in alone for key in GENERATION}
    chosen = ~np.isin(fit.sample.device_of_step, left)
    found = fit.solve(chosen=chosen, start=logs, fixed=fixed)
    of_vendor = unlike_vendors(others)
    for name, vendor in alone.items():
        if vendor in of_vendor:
            for key in GENERATION:
                found = fit.with_value(found, fit.mean(found, key, of_vendor[vendor]), key, name)
    return found


def log_spreads(steps: Sequence[MeasuredStep], left: LeftOut, spread_of: Mapping[str, Spread]) -> FloatArray:
    """Return one standard deviation of log(measured / predicted) per step, from the spreads of its precision."""
    parts = (
        ("device", np.ones(len(steps))), ("workload", np.ones(len(steps))), ("host", left.host_shares**2),
        ("backward", _is_backward(steps)), ("compiled", _is_compiled(steps)),
    )  # fmt: skip
    own = [spread_of[step.precision] for step in steps]
    variances = np.zeros(len(steps))
    for name, part in parts:
        variances += np.array([getattr(one, f"{name}_log_spread") ** 2 for one in own]) * part
    result: FloatArray = np.sqrt(variances)
    return result


def spreads(steps: Sequence[MeasuredStep], left: LeftOut) -> Mapping[str, Spread]:
    """Return the maximum-likelihood spreads by precision class, scaled so that 90 % of errors lie in the interval.

    The variance of an error is the same sum as in a prediction: that of the precision, that of the host times the
    square of its share of the step, and those of backward and of compiled steps. The part of the precision's variance
    that is an offset common to a group of steps measured together is the device's; the rest is the workload's. Groups
    are weighted by the root of their trust, regardless of size, so that a thousand nets on one device do not dominate.
    """
    precisions = sorted({step.precision for step in steps})
    at = {precision: np.array([step.precision == precision for step in steps]) for precision in precisions}
    weights = _weights(steps)
    parts = np.array([*at.values(), left.host_shares**2, _is_backward(steps), _is_compiled(steps)], dtype=np.float64)
    fitted = _most_likely(parts, left.errors, weights)
    expected = np.sqrt(fitted**2 @ parts)
    found = {}
    for (precision, here), own in zip(at.items(), fitted, strict=False):
        ratios = left.errors[here] / expected[here]
        scale = _weighted_quantile(np.abs(ratios), weights[here], _COVERAGE) / Z_90
        shared = _shared_ratio([step for step, is_here in zip(steps, here, strict=True) if is_here], ratios)
        host, of_backward, of_compiled = map(float, fitted[len(at) :] * scale)
        found[precision] = Spread(
            device_log_spread=float(own * scale * np.sqrt(shared)),
            workload_log_spread=float(own * scale * np.sqrt(1 - shared)),
            backward_log_spread=of_backward,
            compiled_log_spread=of_compiled,
            host_log_spread=host,
        )
    return found


def _is_compiled(steps: Sequence[MeasuredStep]) -> BoolArray:
    return np.array([bool(step.kernels.compiled_dispatches.any()) for step in steps])


def _is_backward(steps: Sequence[MeasuredStep]) -> BoolArray:
    return np.array([step.kernels.has_backward for step in steps])


def _weights(steps: Sequence[MeasuredStep]) -> FloatArray:
    """Return the weight of every step, such that the steps of a group add up to the group's weight."""
    sizes = Counter(step.group for step in steps)
    return np.array([_group_weight(step) / sizes[step.group] for step in steps])


def _group_weight(step: MeasuredStep) -> float:
    """Return the root of the trust: rows that say little about rates say more about how devices and hosts differ."""
    return math.sqrt(step.trust)


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


def _shared_ratio(steps: Sequence[MeasuredStep], ratios: FloatArray) -> float:
    """Return the share of the variance that is between groups rather than within them."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for step, ratio in zip(steps, ratios, strict=True):
        groups.setdefault(step.group, []).append(ratio)
    weight = {step.group: _group_weight(step) for step in steps}
    offsets = {group: np.median(values) for group, values in groups.items()}
    between, within = (
        np.average(list(squares.values()), weights=[weight[group] for group in squares])
        for squares in (
            {group: offset**2 for group, offset in offsets.items()},
            {group: np.mean((np.array(values) - offsets[group]) ** 2) for group, values in groups.items()},
        )
    )
    return float(between / (between + within))


def _weighted_quantile(values: FloatArray, weights: FloatArray, share: float) -> float:
    order = np.argsort(values)
    cumulated = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(cumulated, share)])
