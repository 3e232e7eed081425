"""By how much a GPU is ahead of a CPU, and how sure that is."""

import math

import pytest

from advisor.cost.crossing_margin import Margin, cost_margin, margin_between, ratio_of, speed_margin
from tests.cost.crossings_toys import kind_cost, times


def test_the_ratio_is_what_the_cpu_costs_over_what_the_gpu_costs() -> None:
    margin = cost_margin(kind_cost("cpu", 6.0), kind_cost("gpu", 2.0))
    ratio = ratio_of(margin)
    assert ratio is not None
    assert (ratio.mid, ratio.low, ratio.high) == pytest.approx((3.0, 3.0, 3.0))


def test_own_errors_of_both_add_as_independent_ones_do() -> None:
    # Half-widths of 3 and 4 in the logarithm make one of 5.
    margin = cost_margin(
        kind_cost("cpu", 1.0, own_usd=times(1.0, math.exp(3))), kind_cost("gpu", 1.0, own_usd=times(1.0, math.exp(4)))
    )
    assert margin is not None
    assert (margin.mid, margin.low, margin.high) == pytest.approx((0.0, -5.0, 5.0))


def test_errors_of_prices_add_to_those_of_times() -> None:
    # Half-widths of 3 and 4 of the times, 12 and 84 of the prices: sqrt(9 + 16 + 144 + 7056) = 85.
    margin = cost_margin(
        kind_cost("cpu", 1.0, own_usd=times(1.0, math.exp(3)), price_usd=times(1.0, math.exp(12))),
        kind_cost("gpu", 1.0, own_usd=times(1.0, math.exp(4)), price_usd=times(1.0, math.exp(84))),
    )
    assert margin is not None
    assert (margin.mid, margin.low, margin.high) == pytest.approx((0.0, -85.0, 85.0))


def test_an_error_that_both_share_cancels() -> None:
    shared = times(1.0, 2.0)
    margin = cost_margin(kind_cost("cpu", 1.0, shared_usd=shared), kind_cost("gpu", 1.0, shared_usd=shared))
    assert margin is not None
    assert (margin.low, margin.high) == (0.0, 0.0)


def test_of_an_error_that_reaches_one_more_than_the_other_the_difference_counts() -> None:
    # Where both are slow, the CPU costs 8 times as much and the GPU twice: the ratio is 4 times as large. Start-up may
    # do that: it is not part of the error, and weighs more in the GPU's cost.
    margin = cost_margin(
        kind_cost("cpu", 1.0, shared_usd=times(1.0, 8.0)), kind_cost("gpu", 1.0, shared_usd=times(1.0, 2.0))
    )
    assert margin is not None
    assert (margin.low, margin.high) == pytest.approx((-math.log(4), math.log(4)))


def test_the_only_one_that_does_the_job_is_infinitely_far_ahead() -> None:
    alone = cost_margin(None, kind_cost("gpu", 1.0))
    other = cost_margin(kind_cost("cpu", 1.0), None)
    assert alone is not None
    assert other is not None
    assert (alone.mid, alone.low, ratio_of(alone), other.mid) == (math.inf, math.inf, None, -math.inf)
    assert cost_margin(None, None) is None


def test_what_is_free_is_cheaper_than_all_that_is_not() -> None:
    mids = [
        margin.mid
        for pair in ((0.0, 1.0), (1.0, 0.0), (0.0, 0.0))
        if (margin := cost_margin(kind_cost("cpu", pair[0]), kind_cost("gpu", pair[1])))
    ]
    assert mids == [-math.inf, math.inf, 0.0]


def test_speed_errs_by_the_spreads_of_the_steps() -> None:
    # 50 times as fast. Half-widths of 1.645 x 0.6 and 1.645 x 0.8 make 1.645; 0.5 is shared by both and cancels.
    margin = speed_margin(
        kind_cost("cpu", 1.0, samples_per_s=2.0, own_log_spread=0.6, shared_log_spread=0.5),
        kind_cost("gpu", 1.0, samples_per_s=100.0, own_log_spread=0.8, shared_log_spread=0.5),
    )
    assert margin.mid == pytest.approx(math.log(50))
    assert (margin.high - margin.mid, margin.mid - margin.low) == pytest.approx((1.645, 1.645))


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
