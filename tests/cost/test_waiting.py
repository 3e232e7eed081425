"""The waits of requests that arrive at random, beside exact formulas and a simulation."""

import heapq
import math

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
    with x = a (t - k)."""
    terms = ((load * (steps - k), k) for k in range(int(steps) + 1))
    return (1 - load) * math.fsum(math.exp(x) * (-x) ** k / math.factorial(k) for x, k in terms)


@pytest.mark.parametrize("load", [0.1, 0.3, 0.5, 0.7, 0.8])
@pytest.mark.parametrize("tail", [0.1, 0.01])
def test_one_server_waits_as_erlang_says(load: float, tail: float) -> None:
    found = waits(load, tail=tail)
    assert not_longer(found, load=load) == pytest.approx(1 - min(tail, load), abs=0.001)


def simulated(load: float, *, batch: int, servers: int, request_count: int = 200_000) -> FloatArray:
    """Return the waits, in steps, of requests in one queue that servers take in batches as soon as they are free."""
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / (load * batch * servers), request_count))
    free, found, first = [0.0] * servers, np.empty(request_count), 0
    while first < request_count:
        start = max(heapq.heappop(free), arrivals[first])
        taken = max(1, int(np.searchsorted(arrivals[first : first + batch], start, side="right")))
        found[first : first + taken] = start - arrivals[first : first + taken]
        heapq.heappush(free, start + 1.0)
        first += taken
    return found


@pytest.mark.parametrize(
    ("batch", "servers"), [(1, 1), (1, 2), (1, 4), (1, 10), (1, 40), (2, 1), (8, 1), (32, 1), (64, 1)]
)
@pytest.mark.parametrize("load", [0.3, 0.7, 0.85])
def test_waits_are_those_of_a_simulation(batch: int, servers: int, load: float) -> None:
    expected = simulated(load, batch=batch, servers=servers)
    for tail in (0.5, 0.01):
        found = waits(load, batch=batch, servers=servers, tail=tail)
        assert found == pytest.approx(float(np.quantile(expected, 1 - tail)), rel=0.08, abs=0.08)


@given(st.floats(0.01, 0.9), st.sampled_from([1, 2, 8, 64]), st.integers(1, 100), st.floats(0.01, 0.5))
def test_a_higher_load_never_waits_less_nor_more_servers_longer(
    load: float, batch: int, servers: int, more: float
) -> None:
    some = waits(load, batch=batch, servers=servers)
    assert waits(min(load + more, 0.95), batch=batch, servers=servers) >= some - 1e-9
    assert waits(load, batch=batch, servers=servers + 1) <= some + 1e-9
    assert waits(load, batch=batch, servers=servers, tail=0.5) <= some + 1e-9


def test_hardly_a_request_waits_where_nothing_is_busy() -> None:
    assert [waits(0.0), waits(1e-6, batch=64), waits(0.3, servers=1000)] == pytest.approx([0.0] * 3, abs=1e-4)
