"""Defines the loss of a fit, soft L1: squared for small residuals and linear beyond a scale.

A row's residual is log(predicted / measured) times its weight, so a weight is the inverse of the row's standard
deviation, up to a factor. Rows of weight 1 are linear beyond `ROBUST_LOG_SCALE`, so that nets which no formula
describes do not distort the fit; a row of weight 0.1, which is trusted less, beyond ten times as much.
A prior's residual is `PRIOR_WEIGHT` times the distance of a coefficient from its start, in standard deviations. It is
linear beyond a third of one: some devices are far from all others (MI100, old hosts), and a Gaussian prior would shift
the others to compensate.
"""

from collections.abc import Callable

import numpy as np

from advisor.records.prediction import FloatArray

ROBUST_LOG_SCALE = 0.1
"""The residual beyond which rows and priors count in proportion."""
PRIOR_WEIGHT = 0.3
"""The residual of a coefficient that is one standard deviation of its prior off, equal to the residual of a row of
weight 1 that is 35 % off. Rows of one group have correlated errors, so they say less than as many independent ones."""


def robust(scale: FloatArray | float) -> Callable[[FloatArray], FloatArray]:
    """Return a loss function for `least_squares` that is linear beyond `scale`, one for all residuals or one for each.

    For the square z of a residual and its scale s the loss is 2 s^2 (sqrt(1 + z / s^2) - 1), soft L1 (Triggs et al.,
    Bundle Adjustment, 1999). The function returns it with its first and second derivative.
    """
    squares = np.square(scale)

    def loss(z: FloatArray) -> FloatArray:
        root = np.sqrt(1 + z / squares)
        return np.array([2 * squares * (root - 1), 1 / root, -1 / (2 * squares * root**3)])

    return loss
