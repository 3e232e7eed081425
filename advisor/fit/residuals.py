"""What is left between measured and predicted on devices that a fit has not seen: how wide intervals must be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.fit.sample import MeasuredStep
from advisor.fit.solve import Fit
from advisor.records.prediction import FloatArray

_Z_90 = 1.645
_INSIDE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Standard deviations of log(measured / predicted): of a device's offset, and of workloads around it."""

    device_log_spread: float
    workload_log_spread: float


def left_out(fit: Fit, logs: FloatArray) -> FloatArray:
    """log(measured / predicted) of every step, by a fit that has not seen its device (whatever its form)."""
    sample = fit.sample
    errors = np.empty(len(sample.steps))
    for index, device in enumerate(sample.devices):
        own = sample.device_of_step == index
        fixed = {("device_compute", device.id), ("device_memory", device.id), ("host", device.id)}
        if sum(other.generation == device.generation for other in sample.devices) == 1:
            fixed |= {("generation_compute", device.generation), ("generation_memory", device.generation)}
        without = fit.solve(chosen=~own, start=logs, fixed=fixed, steps=8)
        errors[own] = np.log(sample.measured_s[own] / fit.seconds(without)[own])
    return errors


def spreads(steps: Sequence[MeasuredStep], errors: FloatArray) -> Mapping[str, Spread]:
    """By class of precision, so that 90 % of the left-out steps lie inside the interval that both make together.

    Steps that were measured together share an offset, whose root mean square is the device's part; the rest is the
    workload's. Both are scaled alike until the share is right: the tails are longer than a normal's. Every group counts
    the same, so that a thousand nets on one device do not speak for all.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, step in enumerate(steps):
        groups.setdefault(step.group, []).append(index)
    found = {}
    for precision in sorted({step.precision for step in steps}):
        members = [group for group in groups.values() if steps[group[0]].precision == precision]
        offsets = np.array([np.median(errors[group]) for group in members])
        within = np.array([np.sqrt(np.mean((errors[group] - np.median(errors[group])) ** 2)) for group in members])
        device, workload = float(np.sqrt(np.mean(offsets**2))), float(np.sqrt(np.mean(within**2)))
        chosen = [index for group in members for index in group]
        weights = np.concatenate([np.full(len(group), 1 / len(group)) for group in members])
        needed = _weighted_quantile(np.abs(errors[chosen]), weights, _INSIDE) / _Z_90
        scale = needed / float(np.hypot(device, workload))
        found[precision] = Spread(device_log_spread=device * scale, workload_log_spread=workload * scale)
    return found


def _weighted_quantile(values: FloatArray, weights: FloatArray, share: float) -> float:
    order = np.argsort(values)
    cumulated = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(cumulated, share)])
