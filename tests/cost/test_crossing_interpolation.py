"""Between places that are known the margin is a straight line over the logarithm."""

import math

import pytest

from advisor.cost.crossing_interpolation import margin_between
from advisor.cost.crossing_margin import Margin

KNOWN = {10: Margin(mid=-1.0, low=-2.0, high=0.0), 1000: Margin(mid=3.0, low=2.0, high=6.0)}


def test_known_places_are_as_they_are() -> None:
    assert margin_between(KNOWN, 10) == KNOWN[10]
    assert margin_between(KNOWN, 1000) == KNOWN[1000]


def test_half_way_in_the_logarithm_is_half_way_in_the_margin() -> None:
    middle = margin_between(KNOWN, 100)  # 10 x 10, and 1,000 / 10
    assert (middle.mid, middle.low, middle.high) == pytest.approx((1.0, 0.0, 3.0))


def test_what_can_do_the_job_no_more_ends_at_the_place_that_is_known() -> None:
    gone = {8: KNOWN[10], 64: Margin(mid=-math.inf, low=-math.inf, high=-math.inf)}
    assert margin_between(gone, 63) == KNOWN[10]
    assert margin_between(gone, 64).mid == -math.inf
