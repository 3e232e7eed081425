"""The solver of all fits that a user runs, held to minima worked out by hand and to SciPy's."""

import numpy as np
import pytest
import scipy.optimize

from advisor.fit.least_squares import Function, least_squares
from advisor.fit.robust_loss import robust
from advisor.records.prediction import FloatArray

POINTS = np.array([0.0, 1.0, 2.0, 3.0])


def squares(z: FloatArray) -> FloatArray:
    return np.array([z, np.ones_like(z), np.zeros_like(z)])


def line_through(heights: list[float]) -> Function:
    return lambda values: values[0] + values[1] * POINTS - heights


def test_a_line_through_four_points_is_found() -> None:
    # Means 1.5 and 2; covariance (1.5 x 1 + 0.5 x 1 + 0.5 x 0 + 1.5 x 2) / variance (2 x 2.25 + 2 x 0.25) = 5 / 5.
    solution = least_squares(line_through([1.0, 1.0, 2.0, 4.0]), np.zeros(2), loss=squares)
    assert solution.values == pytest.approx([0.5, 1.0], abs=1e-6)
    # J has the columns 1 and x: J'J is (4, 6; 6, 14)
    assert solution.curvature == pytest.approx(np.array([[4.0, 6.0], [6.0, 14.0]]), rel=1e-4)


def test_a_value_that_would_leave_its_bounds_ends_at_them_and_the_others_make_the_best_of_it() -> None:
    # With a slope of 0.5 at most the best offset is the mean, 2, less 0.5 x 1.5.
    solution = least_squares(
        line_through([1.0, 1.0, 2.0, 4.0]), np.zeros(2), loss=squares, bounds=(np.full(2, -9.0), np.array([9.0, 0.5]))
    )
    assert solution.values == pytest.approx([1.25, 0.5], abs=1e-6)


def test_an_outlier_pulls_no_harder_than_its_scale() -> None:
    # Nine residuals x and one x - 100, soft L1 with scale 1: 9 x = 1 nearly, where the loss is linear.
    solution = least_squares(
        lambda values: values[0] - np.array([0.0] * 9 + [100.0]), np.zeros(1), loss=robust(np.ones(10))
    )
    (value,) = solution.values
    # the derivative of the loss, x / sqrt(1 + x^2), sums to 0
    assert 9 * value / np.sqrt(1 + value**2) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_the_minimum_is_that_of_scipy(seed: int) -> None:
    chance = np.random.default_rng(seed)
    rates, prior = chance.uniform(0, 1, (40, 5)), chance.normal(0, 0.5, 5)
    measured = np.log(rates @ np.exp(chance.normal(0, 1, 5))) + chance.standard_t(2, 40) / 10

    def residuals(logs: FloatArray) -> FloatArray:
        return np.concatenate([np.log(rates @ np.exp(logs)) - measured, 0.1 * (logs - prior)])

    bounds, loss = (np.full(5, -0.8), np.full(5, 0.8)), robust(np.full(45, 0.1))
    ours = least_squares(residuals, np.zeros(5), loss=loss, bounds=bounds, tolerance=1e-12)
    theirs = scipy.optimize.least_squares(residuals, np.zeros(5), loss=loss, bounds=bounds, xtol=1e-12, ftol=1e-12)
    assert ours.values == pytest.approx(theirs.x, abs=1e-4)
    assert loss(residuals(ours.values) ** 2)[0].sum() == pytest.approx(2 * theirs.cost, rel=1e-7)
