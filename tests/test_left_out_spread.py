"""Standard deviations from errors of what was left out of a fit."""

import pytest
from left_out_spread import rms


def test_a_spread_is_the_root_mean_square_of_the_errors() -> None:
    # sqrt((0.01 + 0.01 + 0.01 + 0.25) / 4); their mean size would be 0.2.
    assert rms([0.1, -0.1, 0.1, -0.5]) == pytest.approx(0.2646, abs=1e-4)
