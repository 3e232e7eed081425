"""The waits of requests that arrive at random, beside exact formulas and a simulation."""

import bisect
import heapq
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.cost.waiting import wait_steps
from advisor.records.prediction import FloatArray


def waits(utilization: float, *, batch: int = 1, servers: int = 1, tail: float = 0.01) -> float:
    load, size, count = (np.array([float(value)]) for value in (utilization, batch, servers))
    return float(wait_steps(load, batch=size, servers=count, tail=tail)[0])


def not_longer(steps: float, *, load: float) -> float:
    """Erlang's distribution of the wait in M/D/1 (1909): P(W <= t) = (1 - a) sum over k <= t of e^x (-x)^k / k!,
    with x = a (t - k). Its terms cancel, so it needs more digits than a float has."""
    with localcontext() as digits:
        digits.prec = 60
        first, *others = (Decimal(load) * (Decimal(steps) - k) for k in range(int(steps) + 1))
        terms = (x.exp() * (-x) ** k / math.factorial(k) for k, x in enumerate(others, start=1))
        return float((1 - Decimal(load)) * sum(terms, first.exp()))


@pytest.mark.parametrize("load", [0.02, 0.1, 0.3, 0.5, 0.7, 0.8, 0.93, 0.95])
@pytest.mark.parametrize("tail", [0.1, 0.01])
def test_one_server_waits_as_erlang_says(load: float, tail: float) -> None:
    found = waits(load, tail=tail)
    assert not_longer(found, load=load) == pytest.approx(1 - min(tail, load), abs=0.001)


def test_nobody_waits_at_the_percentile_where_fewer_requests_meet_a_busy_server() -> None:
    # One at a time, the share that waits is the load: 0.8 % in M/D/1.
    assert waits(0.008) == 0.0
    # 0.01 arrivals in a step: at most 0.01 / (0.01 + e^-0.01) = 1.0 % wait, for a rest of the step near 0.
    assert waits(0.01 / 64, batch=64) == pytest.approx(0.0, abs=0.01)


def test_a_large_batch_keeps_its_server_busy_by_the_arrivals_in_a_step() -> None:
    # One arrival in a step: 1 / (1 + e^-1) = 73.1 % find the server busy, and wait for the rest of a step, which is
    # even from 0 to 1. So 1 % wait longer than 1 - 0.01 / 0.731, and half of them longer than 1 - 0.5 / 0.731.
    for batch in (64, 100, 2048):
        assert waits(1 / batch, batch=batch) == pytest.approx(0.9863, abs=0.001)
        assert waits(1 / batch, batch=batch, tail=0.5) == pytest.approx(0.3161, abs=0.002)


def simulated(load: float, *, batch: int, servers: int, request_count: int) -> FloatArray:
    """Return the waits, in steps, of requests in one queue that servers take in batches as soon as they are free."""
    times = np.cumsum(np.random.default_rng(1).exponential(1 / (load * batch * servers), request_count))
    arrivals, free, first = times.tolist(), [0.0] * servers, 0
    starts, sizes = [], []
    while first < request_count:
        start = max(free[0], arrivals[first])
        heapq.heapreplace(free, start + 1.0)
        last = bisect.bisect_right(arrivals, start, first + 1, min(first + batch, request_count))
        starts.append(start)
        sizes.append(last - first)
        first = last
    return np.repeat(starts, sizes) - times


@pytest.mark.parametrize("batch", [1, 2, 8, 64, 2048])
@pytest.mark.parametrize("load", [0.001, 0.01, 0.05, 0.3, 0.7, 0.95])
def test_a_server_waits_as_in_a_simulation(batch: int, load: float) -> None:
    count = max(round(20_000 / (1 - load)), 200 * batch)  # a busy server forgets its past slowly
    expected = simulated(load, batch=batch, servers=1, request_count=count)
    for tail in (0.5, 0.01):
        # Four standard errors of a simulated share, from 20 stretches of the run: requests close in time wait alike.
        is_longer = expected > np.quantile(expected, 1 - tail)
        of_stretches = [float(stretch.mean()) for stretch in np.array_split(is_longer, 20)]
        error = 4 * float(np.std(of_stretches, ddof=1)) / math.sqrt(20)
        shortest, longest = np.quantile(expected, [max(1 - tail - error, 0.0), min(1 - tail + error, 1.0)])
        assert 0.99 * (1 + shortest) <= 1 + waits(load, batch=batch, tail=tail) <= 1.01 * (1 + longest)


@pytest.mark.parametrize("servers", [2, 4, 10, 40])
@pytest.mark.parametrize("load", [0.3, 0.7, 0.85])
def test_servers_that_share_a_queue_wait_about_as_in_a_simulation(servers: int, load: float) -> None:
    expected = simulated(load, batch=1, servers=servers, request_count=200_000)
    for tail in (0.5, 0.01):
        found = waits(load, servers=servers, tail=tail)
        assert found == pytest.approx(float(np.quantile(expected, 1 - tail)), rel=0.08, abs=0.08)


def test_copies_that_take_batches_wait_alone() -> None:
    assert waits(0.3, batch=8, servers=5) == waits(0.3, batch=8)


def test_no_offers_have_no_waits() -> None:
    none = np.empty((0, 3))
    assert wait_steps(none, batch=none, servers=none, tail=0.01).shape == (0, 3)


@given(st.floats(0.0001, 0.9), st.sampled_from([1, 2, 8, 64, 100, 2048]), st.integers(1, 100), st.floats(0.01, 0.5))
def test_a_higher_load_never_waits_less_nor_more_servers_longer(
    load: float, batch: int, servers: int, more: float
) -> None:
    some = waits(load, batch=batch, servers=servers)
    assert waits(min(load + more, 0.95), batch=batch, servers=servers) >= some - 1e-9
    assert waits(load, batch=batch, servers=servers + 1) <= some + 1e-9
    assert waits(load, batch=batch, servers=servers, tail=0.5) <= some + 1e-9


def test_hardly_a_request_waits_where_nothing_is_busy() -> None:
    assert [waits(0.0), waits(1e-6, batch=64), waits(0.3, servers=1000)] == pytest.approx([0.0] * 3, abs=1e-4)
