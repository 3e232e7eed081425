"""Defines the loss of a fit, soft L1: squared for small errors and linear beyond a scale, for rows and priors alike.

A row's error is log(predicted / measured) and its scale is `ROBUST_LOG_SCALE`, so that nets which no formula describes
do not distort the fit. A row's weight multiplies its error and its scale, and so the loss by its square.
A prior's error is the distance of a coefficient from its start, in log, and its scale is one standard deviation of the
prior. Some devices are far from all others (MI100, old hosts), and a Gaussian prior would shift the others to
compensate. One standard deviation costs as much as `PRIOR_ROWS` rows of weight 1 that are off by their scale.
"""

from collections.abc import Callable

import numpy as np

from advisor.records.prediction import FloatArray

ROBUST_LOG_SCALE = 0.1
"""The scale of a row's error, in log."""
PRIOR_ROWS = 3.0
"""Rows that one standard deviation of a prior counts as. Rows of one group have correlated errors, so they say less
than as many independent ones."""
PRIOR_SCALE = ROBUST_LOG_SCALE * float(np.sqrt(PRIOR_ROWS))
"""One standard deviation of a prior, as a residual."""


def robust(scales: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return a loss function for `least_squares` that is linear beyond `scales`, one scale per residual.

    For the square z of a residual and its scale s the loss is 2 s^2 (sqrt(1 + z / s^2) - 1), soft L1 (Triggs et al.,
    Bundle Adjustment, 1999). The function returns it with its first and second derivative.
    """
    squares = scales**2

    def loss(z: FloatArray) -> FloatArray:
        root = np.sqrt(1 + z / squares)
        return np.array([2 * squares * (root - 1), 1 / root, -1 / (2 * squares * root**3)])

    return loss
