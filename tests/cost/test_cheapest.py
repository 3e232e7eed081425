import math
from collections.abc import Hashable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.cost.cheapest import CostsByTime, SharedError, chances_of_cheapest, indistinguishable


def errors(count: int, spread: float, device: Sequence[Hashable] | None) -> list[SharedError]:
    return [SharedError(log_spread=np.full(count, spread), source=device or range(count))]


def chances(*usd: float, spread: float = 0.1, device: tuple[int, ...] | None = None) -> list[float]:
    """Offers of these costs, each on a device of its own unless `device` says otherwise."""
    return chances_of_cheapest(np.array(usd), errors=errors(len(usd), spread, device)).tolist()


def overlapping(*usd: float, spread: float = 0.1, device: tuple[int, ...] | None = None) -> list[bool]:
    return indistinguishable(np.array(usd), errors=errors(len(usd), spread, device)).tolist()


def spread_chances(mid: Sequence[float], spread: Sequence[float]) -> list[float]:
    own = [SharedError(log_spread=np.array(spread), source=range(len(mid)))]
    return chances_of_cheapest(np.exp(np.array(mid)), errors=own).tolist()


def test_devices_of_equal_cost_and_spread_have_equal_chances() -> None:
    assert chances(1.0, 1.0) == pytest.approx([1 / 2] * 2, abs=0.01)
    assert chances(1.0, 1.0, 1.0, 1.0, 1.0) == pytest.approx([1 / 5] * 5, abs=0.01)


def test_of_two_devices_the_chance_is_that_of_a_normal_difference() -> None:
    # log(1.1) = 0.0953 apart, the difference of the errors has the spread 0.1 x sqrt(2) = 0.1414: Phi(0.674) = 0.750.
    assert chances(1.0, 1.1) == pytest.approx([0.750, 0.250], abs=0.01)


def test_spreads_that_differ_are_both_felt() -> None:
    # 0.3 apart, sqrt(0.3^2 + 0.4^2) = 0.5: Phi(0.6) = 0.7257.
    assert spread_chances([0.0, 0.3], [0.3, 0.4]) == pytest.approx([0.7257, 0.2743], abs=0.01)


def test_what_costs_ten_times_as_much_has_no_chance() -> None:
    # log(10) = 2.3 is 16 spreads of a difference of 0.1414.
    assert chances(1.0, 1.0, 10.0) == pytest.approx([0.5, 0.5, 0.0], abs=0.01)


def test_on_one_device_the_cheaper_offer_has_all_of_its_chance() -> None:
    assert chances(1.0, 1.0, 1.001, device=(0, 1, 0)) == pytest.approx([0.5, 0.5, 0.0], abs=0.01)


def test_offers_of_one_device_that_cost_the_same_share_its_chance() -> None:
    assert chances(1.0, 1.0, 1.0, device=(0, 1, 0)) == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


def test_one_offer_alone_is_the_cheapest() -> None:
    assert chances(3.0) == [1.0]


def test_a_time_without_error_is_compared_by_itself() -> None:
    assert spread_chances([0.0, 0.01], [0.0, 0.0]) == [1.0, 0.0]


def test_only_the_offers_named_are_compared() -> None:
    found = chances_of_cheapest(np.array([1.0, 2.0, 2.0]), errors=errors(3, 0.1, None), among=np.array([1, 2]))
    assert found.tolist() == pytest.approx([0.0, 0.5, 0.5], abs=0.01)
    # Another one that is free changes nothing, also for a service.
    free = np.array([0.0, 2.0, 2.0])
    by_time = CostsByTime(log_error=np.array([-1.0, 1.0]), usd=np.stack([free, free]), errors=errors(3, 0.1, None))
    for costs in (None, by_time):
        found = chances_of_cheapest(free, errors=errors(3, 0.1, None), among=np.array([1, 2]), by_time=costs)
        assert found.tolist() == pytest.approx([0.0, 0.5, 0.5], abs=0.01)


def test_the_errors_of_devices_hosts_and_prices_are_shared_as_a_million_draws_share_them() -> None:
    """Three machines of one GPU, two on the same host and list, against another GPU on that host, and a third one."""
    usd = np.array([1.00, 1.05, 1.10, 1.08, 1.20])
    device, host, price = (0, 0, 0, 1, 2), (0, 0, 1, 0, 2), ("a", "a", "b", "b", "c")
    spreads = {"device": [0.20, 0.20, 0.18, 0.15, 0.30], "host": [0.10, 0.05, 0.10, 0.10, 0.0], "price": [0.05] * 5}
    random, count = np.random.default_rng(7), 1_000_000
    logs = np.tile(np.log(usd), (count, 1))
    for name, source in (("device", device), ("host", host), ("price", price)):
        names = sorted(set(source), key=str)
        drawn = random.standard_normal((count, len(names)))
        logs += drawn[:, [names.index(one) for one in source]] * spreads[name]
    expected = np.bincount(logs.argmin(axis=1), minlength=5) / count
    shared = [
        SharedError(log_spread=np.array(spreads[name]), source=source)
        for name, source in (("device", device), ("host", host), ("price", price))
    ]
    assert chances_of_cheapest(usd, errors=shared) == pytest.approx(expected, abs=0.02)


def test_machines_of_one_gpu_do_not_dilute_the_chance_of_that_gpu() -> None:
    # One device in three machines at 1.00, 1.01 and 1.02 against another at 1.00: 50 % each, not 75 to 25 %.
    found = chances(1.00, 1.01, 1.02, 1.00, spread=0.2, device=(0, 0, 0, 1))
    assert found == pytest.approx([0.5, 0.0, 0.0, 0.5], abs=0.01)


def test_an_old_price_may_have_risen() -> None:
    # $1.00 listed with an error of 0.3 against $1.20 without: Phi(log(1.2) / 0.3) = Phi(0.608) = 0.728.
    price = SharedError(log_spread=np.array([0.3, 0.0]), source=("old list", "new list"))
    found = chances_of_cheapest(np.array([1.0, 1.2]), errors=[*errors(2, 0.1, (0, 0)), price])
    assert found.tolist() == pytest.approx([0.728, 0.272], abs=0.01)


def test_a_service_may_need_another_instance() -> None:
    """The first costs $1 up to an error of 5 % of the time and $2 beyond it; the second always costs $1.50."""
    log_error = np.linspace(-0.4, 0.4, 161)
    usd = np.stack([np.where(log_error < 0.05, 1.0, 2.0), np.full(161, 1.5)], axis=1)
    # Both have the model's error of 0.1, and the first one of its device: Phi(0.05 / hypot(0.1, 0.05)) = Phi(0.447).
    model = SharedError(log_spread=np.full(2, 0.1), source=("", ""))
    device = SharedError(log_spread=np.array([0.05, 0.0]), source=("a", "b"))
    by_time = CostsByTime(log_error=log_error, usd=usd, errors=[model, device])
    found = chances_of_cheapest(np.array([1.0, 1.5]), errors=[], by_time=by_time)
    assert found.tolist() == pytest.approx([0.673, 0.327], abs=0.02)
    doubtful = SharedError(log_spread=np.array([0.0, 0.3]), source=("", "an old list"))
    # The second is also cheaper where its price has fallen by a third: Phi(log(1 / 1.5) / 0.3) = 0.088.
    either = chances_of_cheapest(np.array([1.0, 1.5]), errors=[doubtful], by_time=by_time)
    assert either.tolist()[0] == pytest.approx(0.673 * (1 - 0.088) + 0.327 * 0.169, abs=0.02)


def test_intervals_of_ninety_percent_overlap_or_not() -> None:
    # exp(1.645 x 0.1) = 1.179: the first ends at 1.179, and so the others start there from 1.179^2 = 1.390.
    assert overlapping(1.0, 1.38, 1.40) == [False, True, False]


def test_on_the_best_ones_device_only_the_same_price_is_the_same() -> None:
    assert overlapping(1.0, 1.0, 1.01, device=(0, 0, 0)) == [False, True, False]


def test_offers_are_compared_with_the_best_one_wherever_it_stands() -> None:
    found = indistinguishable(np.array([0.5, 1.0, 1.1]), errors=errors(3, 0.1, None), best=1)
    assert found.tolist() == [False, False, True]


DEVICES = st.lists(st.tuples(st.floats(-2.0, 2.0), st.floats(0.005, 1.0)), min_size=1, max_size=30)


@given(DEVICES)
def test_the_chances_are_shares_of_one(devices: list[tuple[float, float]]) -> None:
    found = spread_chances(*zip(*devices, strict=True))
    assert math.fsum(found) == pytest.approx(1.0)
    assert min(found) >= 0


@given(DEVICES)
def test_the_order_of_the_devices_hardly_matters(devices: list[tuple[float, float]]) -> None:
    mid, spread = zip(*devices, strict=True)
    assert spread_chances(mid[::-1], spread[::-1]) == pytest.approx(spread_chances(mid, spread)[::-1], abs=0.05)


def test_an_error_that_all_devices_share_changes_nothing() -> None:
    alone = errors(3, 0.1, None)
    shared = [*alone, SharedError(log_spread=np.full(3, 0.5), source=(0, 0, 0))]
    usd = np.array([1.0, 1.1, 1.2])
    assert chances_of_cheapest(usd, errors=shared) == pytest.approx(chances_of_cheapest(usd, errors=alone), abs=1e-9)


def test_what_costs_nothing_is_surely_the_cheapest_and_nothing_overlaps_it() -> None:
    assert chances(0.0, 1.0, 1.1) == [1.0, 0.0, 0.0]
    assert overlapping(0.0, 1.0, 1.1) == [False, False, False]


def test_two_that_cost_nothing_share_the_chance() -> None:
    assert chances(0.0, 0.0, 1.0) == [0.5, 0.5, 0.0]
    assert overlapping(0.0, 0.0, 1.0) == [False, True, False]
