"""Standard deviations from errors of what was left out of a fit."""

import numpy as np
import pytest
from left_out_spread import log_spread, rms, student_ratio


def test_a_spread_is_the_root_mean_square_of_the_errors() -> None:
    # sqrt((0.01 + 0.01 + 0.01 + 0.25) / 4); their mean size would be 0.2.
    assert rms([0.1, -0.1, 0.1, -0.5]) == pytest.approx(0.2646, abs=1e-4)


def test_a_part_counts_once_and_n_parts_have_n_degrees_of_freedom() -> None:
    # t(0.95, 2) / z(0.95) = 2.920 / 1.645; the mean is known to be 0, so no degree is lost.
    assert student_ratio(2) == pytest.approx(2.920 / 1.645, rel=1e-3)
    # Squares of 0.01 for the part of three and 0.09 for the part of one: sqrt(0.05) = 0.2236, not sqrt(0.03).
    parts = np.array(["a", "a", "a", "b"], dtype=np.object_)
    found = log_spread(np.array([0.1, -0.1, 0.1, 0.3]), parts)
    assert found == pytest.approx(0.2236 * 2.920 / 1.645, rel=1e-3)
