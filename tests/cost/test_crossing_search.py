"""Margins that are simple functions of the place: where they cross zero, and where the ends of their intervals do."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.cost.crossing_margin import Margin
from advisor.cost.crossing_search import find_crossings
from advisor.records.answer import Crossing

GRID = (1, 10, 100, 1000)


def with_width(mid_at: Callable[[int], float], *, width: float = 0.0) -> Callable[[int], Margin]:
    return lambda place: Margin(mid=mid_at(place), low=mid_at(place) - width, high=mid_at(place) + width)


def test_a_crossing_is_the_first_place_at_which_the_other_is_cheaper() -> None:
    # log(place / 37) is 0 at 37, a tie, which the CPU has; within a factor of 2 at 18.5 and 74.
    margin_at = with_width(lambda place: math.log(place / 37), width=math.log(2))
    assert find_crossings(GRID, margin_at) == (Crossing(at=38, low=19, high=75, cheaper="gpu"),)


def test_a_cpu_may_overtake_a_gpu() -> None:
    # The GPU is ahead by log(37 / place): the CPU has the tie at 37, and 18.5 and 74 at the ends of the interval.
    margin_at = with_width(lambda place: math.log(37 / place), width=math.log(2))
    assert find_crossings(GRID, margin_at) == (Crossing(at=37, low=19, high=74, cheaper="cpu"),)


def test_an_end_that_lies_outside_of_the_range_is_open() -> None:
    # The interval reaches from 37 / 100 to 3,700; the grid from 1 to 1,000.
    margin_at = with_width(lambda place: math.log(place / 37), width=math.log(100))
    assert find_crossings(GRID, margin_at) == (Crossing(at=38, low=None, high=None, cheaper="gpu"),)


@pytest.mark.parametrize("ahead", [-1.0, 0.0, 1.0])
def test_without_a_change_there_is_no_crossing(ahead: float) -> None:
    assert find_crossings(GRID, with_width(lambda place: ahead, width=5.0)) == ()


def test_every_change_is_found() -> None:
    # Ahead between 5 and 50: 5 is where the GPU gets ahead, 51 where the CPU does.
    margin_at = with_width(lambda place: 1.0 if 5 <= place <= 50 else -1.0)
    assert [(crossing.at, crossing.cheaper) for crossing in find_crossings(GRID, margin_at)] == [
        (5, "gpu"), (51, "cpu"),
    ]  # fmt: skip


def test_where_a_device_can_do_the_job_no_more_the_change_has_no_width() -> None:
    margin_at = with_width(lambda place: -math.inf if place > 512 else 1.0)
    assert find_crossings(GRID, margin_at) == (Crossing(at=513, low=513, high=513, cheaper="cpu"),)


def test_places_at_which_neither_does_it_are_passed_over() -> None:
    def margin_at(place: int) -> Margin | None:
        return None if place == 10 else with_width(lambda at: math.log(at / 37))(place)

    assert [crossing.at for crossing in find_crossings(GRID, margin_at)] == [38]
    assert find_crossings(GRID, lambda place: None) == ()


@given(st.integers(2, 999), st.floats(0.0, 3.0))
def test_the_interval_holds_the_crossing(cross: int, width: float) -> None:
    (found,) = find_crossings(GRID, with_width(lambda place: math.log((place + 0.5) / cross), width=width))
    assert found.at == cross
    assert (found.low or 1) <= found.at <= (found.high or 1000)
