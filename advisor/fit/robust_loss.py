"""What a fit minimises: both rows and priors count by the square near to zero and in proportion beyond their own scale.

A row's error is log(predicted / measured). Its scale is `ROBUST_LOG_SCALE`, whatever its weight: nets that no formula
holds for do not pull the fit, be they many or few. The weight multiplies the error, and so the square of it the loss,
and does not move the border between the two. A prior's error is how far a coefficient lies from its start, in log, and
its scale is one standard deviation of the prior: some devices are far from all others (MI100, old hosts), and a
Gaussian prior would have the others pay for it. One standard deviation costs as much as `PRIOR_ROWS` rows of weight 1
that are off by their scale.
"""

from collections.abc import Callable

import numpy as np

from advisor.records.prediction import FloatArray

ROBUST_LOG_SCALE = 0.1
"""Rows that are off by less count by the square of it."""
PRIOR_ROWS = 3.0
"""Rows of one group err together, so that ten of them tell less than ten independent ones would."""
PRIOR_SCALE = ROBUST_LOG_SCALE * float(np.sqrt(PRIOR_ROWS))
"""What one standard deviation of a prior is as a residual."""


def robust(scales: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """The loss that scipy's `least_squares` takes, of residuals that count in proportion beyond `scales`, one for each.

    Of the square z of a residual and its scale s it is 2 s^2 (sqrt(1 + z / s^2) - 1), soft L1 (Triggs et al., Bundle
    Adjustment, 1999), with its first and second derivative.
    """
    squares = scales**2

    def loss(z: FloatArray) -> FloatArray:
        root = np.sqrt(1 + z / squares)
        return np.array([2 * squares * (root - 1), 1 / root, -1 / (2 * squares * root**3)])

    return loss
