import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.cost.cheapest import chances_of_cheapest, chances_of_least, indistinguishable


def chances(*usd: float, spread: float = 0.1, step: tuple[int, ...] | None = None) -> list[float]:
    """Offers of these costs, each on a device of its own unless `step` says otherwise."""
    steps = step or range(len(usd))
    return chances_of_cheapest(np.array(usd), own_log_spread=np.full(len(usd), spread), steps=steps).tolist()


def overlapping(*usd: float, spread: float = 0.1, step: tuple[int, ...] | None = None) -> list[bool]:
    steps = step or range(len(usd))
    return indistinguishable(np.array(usd), own_log_spread=np.full(len(usd), spread), steps=steps).tolist()


def test_devices_of_equal_cost_and_spread_have_equal_chances() -> None:
    assert chances(1.0, 1.0) == pytest.approx([1 / 2] * 2)
    assert chances(1.0, 1.0, 1.0, 1.0, 1.0) == pytest.approx([1 / 5] * 5)


def test_of_two_devices_the_chance_is_that_of_a_normal_difference() -> None:
    # log(1.1) = 0.0953 apart, the difference of the errors has the spread 0.1 x sqrt(2) = 0.1414: Phi(0.674) = 0.750.
    assert chances(1.0, 1.1) == pytest.approx([0.750, 0.250], abs=1e-3)


def test_spreads_that_differ_are_both_felt() -> None:
    # 0.3 apart, sqrt(0.3^2 + 0.4^2) = 0.5: Phi(0.6) = 0.7257.
    both = chances_of_least(np.array([0.0, 0.3]), np.array([0.3, 0.4]))
    assert both.tolist() == pytest.approx([0.7257, 0.2743], abs=1e-3)


def test_a_narrow_error_is_resolved_beside_a_wide_one() -> None:
    # The second lies below the first, which is all but known, half of the time: 1 - Phi(0.0) = 0.5.
    assert chances_of_least(np.zeros(2), np.array([0.01, 1.0])).tolist() == pytest.approx([0.5, 0.5], abs=1e-3)


def test_what_costs_ten_times_as_much_has_no_chance() -> None:
    # log(10) = 2.3 is 16 spreads of a difference of 0.1414.
    assert chances(1.0, 1.0, 10.0) == pytest.approx([0.5, 0.5, 0.0])


def test_on_one_device_the_cheaper_offer_has_all_of_its_chance() -> None:
    assert chances(1.0, 1.0, 1.001, step=(0, 1, 0)) == pytest.approx([0.5, 0.5, 0.0])


def test_offers_of_one_device_that_cost_the_same_share_its_chance() -> None:
    assert chances(1.0, 1.0, 1.0, step=(0, 1, 0)) == pytest.approx([0.25, 0.5, 0.25])


def test_one_offer_alone_is_the_cheapest() -> None:
    assert chances(3.0) == [1.0]


def test_a_time_without_error_is_compared_by_itself() -> None:
    assert chances_of_least(np.log([1.0, 1.01]), np.zeros(2)).tolist() == [1.0, 0.0]


def test_intervals_of_ninety_percent_overlap_or_not() -> None:
    # exp(1.645 x 0.1) = 1.179: the first ends at 1.179, and so the others start there from 1.179^2 = 1.390.
    assert overlapping(1.0, 1.38, 1.40) == [False, True, False]


def test_on_the_best_ones_device_only_the_same_price_is_the_same() -> None:
    assert overlapping(1.0, 1.0, 1.01, step=(0, 0, 0)) == [False, True, False]


DEVICES = st.lists(st.tuples(st.floats(-2.0, 2.0), st.floats(0.005, 1.0)), min_size=1, max_size=30)


@given(DEVICES)
def test_the_chances_are_shares_of_one(devices: list[tuple[float, float]]) -> None:
    mid, spread = np.array(devices).T
    found = chances_of_least(mid, spread)
    assert math.fsum(found) == pytest.approx(1.0)
    assert (found >= 0).all()


@given(DEVICES)
def test_the_order_of_the_devices_does_not_matter(devices: list[tuple[float, float]]) -> None:
    mid, spread = np.array(devices).T
    assert chances_of_least(mid[::-1], spread[::-1]) == pytest.approx(chances_of_least(mid, spread)[::-1])


@given(DEVICES, st.floats(0.01, 100.0))
def test_an_error_that_all_devices_share_changes_nothing(devices: list[tuple[float, float]], factor: float) -> None:
    mid, spread = np.array(devices).T
    assert chances_of_least(mid + math.log(factor), spread) == pytest.approx(chances_of_least(mid, spread), abs=1e-6)


@given(DEVICES, st.floats(0.0, 1.0))
def test_a_lower_price_never_lowers_the_chance(devices: list[tuple[float, float]], less: float) -> None:
    mid, spread = np.array(devices).T
    cheaper = np.append(mid[0] - less, mid[1:])
    assert chances_of_least(cheaper, spread)[0] >= chances_of_least(mid, spread)[0] - 2e-3


def test_what_costs_nothing_is_surely_the_cheapest_and_nothing_overlaps_it() -> None:
    assert chances(0.0, 1.0, 1.1) == [1.0, 0.0, 0.0]
    assert overlapping(0.0, 1.0, 1.1) == [False, False, False]


def test_two_that_cost_nothing_share_the_chance() -> None:
    assert chances(0.0, 0.0, 1.0) == [0.5, 0.5, 0.0]
    assert overlapping(0.0, 0.0, 1.0) == [False, True, False]


def test_the_chances_are_those_of_each_offer_in_any_order() -> None:
    # As in the order of their costs: the dearer offer of the first device has none.
    assert chances(1.001, 1.0, 1.0, step=(0, 1, 0)) == pytest.approx([0.0, 0.5, 0.5])
