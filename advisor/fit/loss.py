"""What a fit minimises: rows count in proportion once they are far off, whatever their weight; priors are Gaussian.

An error of a row is log(predicted / measured). Its loss is that of the error in units of `ROBUST_LOG_SCALE`: squared
below one unit, in proportion above, so that nets which no formula holds for do not pull the fit. The row's weight
multiplies the error before it is squared, so the loss by the weight's square, and moves no border between the two.

A prior is a Gaussian: half the square of how many standard deviations a coefficient is from its start, at any distance,
in the same units: one standard deviation costs as much as a row of weight 1 that is one unit off.
"""

from collections.abc import Callable

import numpy as np

from advisor.records.prediction import FloatArray

ROBUST_LOG_SCALE = 0.1
"""Rows that are off by less count by the square of it."""


def robust(scales: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """The loss that scipy's `least_squares` takes, of residuals that are in proportion beyond `scales`, one for each.

    For the square z of a residual and its scale s: 2 s^2 (sqrt(1 + z / s^2) - 1), which is z where z is small (soft L1;
    Triggs et al., Bundle Adjustment, 1999); where the scale is infinite z itself. It gives that and its first and
    second derivative.
    """
    is_gaussian = np.isinf(scales)
    squares = np.where(is_gaussian, 1.0, scales**2)

    def loss(z: FloatArray) -> FloatArray:
        root = np.sqrt(1 + z / squares)
        values = np.array([2 * squares * (root - 1), 1 / root, -1 / (2 * squares * root**3)])
        gaussian = np.array([z, np.ones_like(z), np.zeros_like(z)])
        result: FloatArray = np.where(is_gaussian, gaussian, values)
        return result

    return loss
