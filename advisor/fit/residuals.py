"""What is left between measured and predicted on devices that a fit has not seen: how wide intervals must be."""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from advisor.fit.sample import MeasuredStep
from advisor.fit.solve import Fit
from advisor.records.prediction import BoolArray, FloatArray

_Z_90 = 1.645
_INSIDE = 0.9
_HEAVY = 0.5
"""Where the host takes more than that share of a step, its own error shows."""


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
    """Of every step: log(measured / predicted) by a fit without its device, and the host's share as predicted there."""

    errors: FloatArray
    host_shares: FloatArray


def left_out(fit: Fit, logs: FloatArray, *, together: Collection[str] = ()) -> LeftOut:
    """What is left of every step by a fit that has not seen its device, nor any other part of the same CPU.

    The devices `together`, by their ids, are left out of the same fit.
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
    """The coefficients without a device: its own stay at their priors, as do those of a generation it is alone in."""
    devices = fit.sample.devices
    names = {(key, devices[index].id) for index in left for key in ("device_compute", "device_memory", "host")}
    others = {device.generation for index, device in enumerate(devices) if index not in left}
    alone = {devices[index].generation for index in left} - others
    fixed = names | {(key, name) for name in alone for key in ("generation_compute", "generation_memory")}
    chosen = ~np.isin(fit.sample.device_of_step, left)
    return fit.solve(chosen=chosen, start=logs, fixed=fixed)


def spreads(steps: Sequence[MeasuredStep], left: LeftOut) -> Mapping[str, Spread]:
    """By class of precision, so that 90 % of the left-out steps lie inside the interval that all parts make together.

    Steps that were measured together share an offset, whose root mean square is the device's part; the rest is the
    workload's. Both come from eager inference that the device sets the pace of, scaled alike until the share is right:
    the tails are longer than a normal's. What is missing in backward, in compiled steps and where the host sets the
    pace are parts of their own; a precision without such steps takes the largest of the others. Groups count by their
    trust, whatever their size, so that a thousand nets on one device do not speak for all.
    """
    compiled = np.array([bool(step.kernels.compiled_dispatches.any()) for step in steps])
    backward = np.array([bool(step.kernels.backward_dispatches.any()) for step in steps])
    heavy = left.host_shares >= _HEAVY
    always = np.ones(len(steps))
    kinds = {
        "backward_log_spread": (backward & ~compiled & ~heavy, always),
        "compiled_log_spread": (compiled & ~heavy, always),
        "host_log_spread": (heavy & ~compiled & ~backward, left.host_shares),
    }
    found: dict[str, dict[str, float]] = {}
    for precision in sorted({step.precision for step in steps}):
        here = np.array([step.precision == precision for step in steps])
        plain = here & ~(backward | compiled | heavy)
        device, workload = _of_groups(_grouped(steps, plain if plain.any() else here), left.errors)
        found[precision] = {"device_log_spread": device, "workload_log_spread": workload}
        for name, (chosen, shares) in kinds.items():
            if groups := _grouped(steps, here & chosen):
                known = float(np.hypot(device, workload))
                missing = np.sqrt(np.maximum((left.errors / _Z_90) ** 2 - known**2, 0.0)) / shares
                found[precision][name] = _quantile_of_groups(groups, missing)
    largest = {name: max((values.get(name, 0.0) for values in found.values()), default=0.0) for name in kinds}
    return {precision: Spread(**(largest | values)) for precision, values in found.items()}


@dataclass(frozen=True, slots=True)
class _Group:
    members: list[int]
    trust: float


def _grouped(steps: Sequence[MeasuredStep], chosen: BoolArray) -> list[_Group]:
    members: dict[tuple[str, ...], list[int]] = {}
    for index in map(int, np.flatnonzero(chosen)):
        members.setdefault(steps[index].group, []).append(index)
    return [_Group(group, steps[group[0]].trust) for group in members.values()]


def _of_groups(groups: Sequence[_Group], errors: FloatArray) -> tuple[float, float]:
    """Spread between groups and within them, scaled until the share of errors inside is right."""
    offsets = np.array([np.median(errors[group.members]) for group in groups])
    variances = np.array([np.mean((errors[group.members] - np.median(errors[group.members])) ** 2) for group in groups])
    trust = np.array([group.trust for group in groups])
    between = float(np.sqrt(np.average(offsets**2, weights=trust)))
    within = float(np.sqrt(np.average(variances, weights=trust)))
    scale = _quantile_of_groups(groups, np.abs(errors)) / _Z_90 / float(np.hypot(between, within))
    return between * scale, within * scale


def _quantile_of_groups(groups: Sequence[_Group], values: FloatArray) -> float:
    weights = np.concatenate([np.full(len(group.members), group.trust / len(group.members)) for group in groups])
    return _weighted_quantile(values[np.concatenate([group.members for group in groups])], weights, _INSIDE)


def _weighted_quantile(values: FloatArray, weights: FloatArray, share: float) -> float:
    order = np.argsort(values)
    cumulated = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(cumulated, share)])
