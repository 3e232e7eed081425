"""Minimizes a robust sum of squares within bounds."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from advisor.records.prediction import FloatArray

Function = Callable[[FloatArray], FloatArray]
_STEP = 1e-6
"""Step of the finite differences, for values of the order of 1."""
_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-4, 1e-9, 1e8
"""Damping relative to the diagonal of the normal equations: at first, and its limits. At the upper limit a step is too
short to change anything."""
_FACTOR = 10.0
"""Change of the damping after a step that fails or succeeds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """The minimum that was found."""

    values: FloatArray
    curvature: FloatArray
    """Matrix of second derivatives of half the sum, in the Gauss-Newton approximation."""


def least_squares(
    residuals: Function,
    start: FloatArray,
    *,
    loss: Function,
    bounds: tuple[FloatArray | float, FloatArray | float] = (-np.inf, np.inf),
    jacobian: Function | None = None,
    steps: int = 100,
    tolerance: float = 1e-8,
) -> Solution:
    """Minimize the sum of `loss` over the squares of the residuals, with at most `steps` evaluations of the Jacobian.

    `loss` returns the loss of each square, with its first and second derivative; without `jacobian`, finite differences
    are taken. It stops when a step changes the sum by less than `tolerance` of it. The Jacobian must have full rank, as
    it has if every value has a prior.

    The method is Levenberg-Marquardt on squares reweighted by the loss (Triggs et al., Bundle Adjustment, 1999, section
    4.3). A value at its bound that the gradient pushes outwards is held there, and a step that crosses a bound ends on
    it.
    """
    low, high = bounds
    slopes_at = jacobian or _finite_differences(residuals)

    def total(found: FloatArray) -> float:
        return float(loss(found**2)[0].sum())

    values = np.clip(start, low, high)
    found = residuals(values)
    damping = _DAMPING
    for _ in range(steps):
        slopes, weights = slopes_at(values), loss(found**2)[1]
        gradient, curvature = slopes.T @ (weights * found), (slopes.T * weights) @ slopes
        free = ~(((values <= low) & (gradient > 0)) | ((values >= high) & (gradient < 0)))
        change = np.inf
        while damping < _MOST_DAMPING:
            damped = curvature + damping * np.diag(np.diag(curvature))
            moved = values.copy()
            moved[free] -= np.linalg.solve(damped[np.ix_(free, free)], gradient[free])
            moved = np.clip(moved, low, high)
            found_there = residuals(moved)
            change = total(found) - total(found_there)
            if change >= 0:
                break
            damping *= _FACTOR
        else:
            break
        is_done = change <= tolerance * total(found)
        values, found, damping = moved, found_there, max(damping / _FACTOR, _LEAST_DAMPING)
        if is_done:
            break
    slopes, (_, first, second) = slopes_at(values), loss(found**2)
    return Solution(values=values, curvature=(slopes.T * (first + 2 * second * found**2)) @ slopes)


def _finite_differences(residuals: Function) -> Function:
    def slopes(values: FloatArray) -> FloatArray:
        before = residuals(values)
        columns = [(residuals(values + _STEP * unit) - before) / _STEP for unit in np.eye(len(values))]
        return np.stack(columns, axis=1)

    return slopes
