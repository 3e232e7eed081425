"""Fits two ratios to the steps measured on one device: its compute throughput and its bandwidth over the predicted."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np

from advisor.fit.least_squares import least_squares
from advisor.fit.robust_loss import robust
from advisor.predict.kernel_time import Kernels
from advisor.predict.roofline import step_times
from advisor.records.device import Device, Efficiency
from advisor.records.prediction import FloatArray

LOG_SIGMA = 0.15
"""Standard deviation of the prior of both ratios, in log around 1: devices left out of a fit are off by 10 % and more
over all their steps (`make fit`)."""
LOW, HIGH = 0.3, 3.0
"""Bounds of both ratios; a value outside would mean a wrong datasheet or wrong rows."""
_MODEL_LOG_SIGMA = 0.1
"""Spread of the models' errors around the offset of a device: 9 % on average for timm's 1,140 nets on the RTX 4090."""
_LEFT_OUT_PARTS = 10
_TOLERANCE = 1e-5
"""A change this small does not show in the four digits of a profile."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnStep:
    """A measured step with its kernels at the measured batch size; the device's present own ratios are ignored."""

    model: str
    kernels: Kernels
    device: Device
    efficiency: Efficiency
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFigures:
    """The two ratios, each with one standard deviation of its logarithm: the prior's if no row determines it."""

    compute_ratio: float = 1.0
    memory_ratio: float = 1.0
    compute_log_sigma: float = LOG_SIGMA
    memory_log_sigma: float = LOG_SIGMA


def fit_own(steps: Sequence[OwnStep]) -> OwnFigures:
    """Fit the ratios that predict the steps best, by regularized least squares of log(predicted / measured).

    All rows of a model together weigh as much as one, since their errors are correlated. The loss of rows and priors is
    linear beyond their standard deviation. The spread comes from the Gauss-Newton approximation at the solution.
    """
    measured_s = np.array([step.measured_s for step in steps])
    count_of = Counter(step.model for step in steps)
    weights = 1 / np.sqrt([count_of[step.model] for step in steps])

    def residuals(logs: FloatArray) -> FloatArray:
        errors = np.log(own_seconds(steps, _figures(logs)) / measured_s)
        return np.concatenate([weights * errors / _MODEL_LOG_SIGMA, logs / LOG_SIGMA])

    bounds = np.log(LOW), np.log(HIGH)
    loss = robust(np.concatenate([weights, np.ones(2)]))
    solution = least_squares(residuals, np.zeros(2), bounds=bounds, loss=loss, tolerance=_TOLERANCE)
    variances = np.diag(np.linalg.inv(solution.curvature))
    figures = _figures(solution.values)
    compute_log_sigma, memory_log_sigma = np.minimum(np.sqrt(variances), LOG_SIGMA).tolist()
    return replace(figures, compute_log_sigma=compute_log_sigma, memory_log_sigma=memory_log_sigma)


def _figures(logs: FloatArray) -> OwnFigures:
    compute_ratio, memory_ratio = np.exp(logs).tolist()
    return OwnFigures(compute_ratio=compute_ratio, memory_ratio=memory_ratio)


def own_seconds(steps: Sequence[OwnStep], figures: OwnFigures) -> FloatArray:
    """Return the predicted time of every step on the device with these ratios."""
    return np.array([_seconds(step, figures) for step in steps])


def _seconds(step: OwnStep, figures: OwnFigures) -> float:
    device = replace(
        step.device, sustained_compute_ratio=figures.compute_ratio, sustained_memory_ratio=figures.memory_ratio
    )
    times = step_times(step.kernels, kind=device.kind, devices=[device], efficiencies=[step.efficiency])
    return float(times.step_s[0, 0])


def left_out_seconds(steps: Sequence[OwnStep]) -> FloatArray:
    """Return the predicted time of every step, with ratios fitted on other models.

    Each model is left out once: alone if there are at most ten models, else together with every tenth. If there is no
    other model the ratios are 1.
    """
    models = list(dict.fromkeys(step.model for step in steps))
    part_of = {model: index % _LEFT_OUT_PARTS for index, model in enumerate(models)}
    seconds = np.empty(len(steps))
    for part in set(part_of.values()):
        is_out = [part_of[step.model] == part for step in steps]
        figures = fit_own(list(compress(steps, np.logical_not(is_out))))
        seconds[is_out] = own_seconds(list(compress(steps, is_out)), figures)
    return seconds
