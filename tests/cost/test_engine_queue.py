"""The queue of an engine against queues that are solved exactly, and against what must hold of any."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from advisor.cost.engine_queue import TAILS, QueueTimes, queue_times
from advisor.records.prediction import EXACT_PARTS, EnginePasses, FloatArray, IndexArray

DECODE_COUNT = 10
SERVICE_S = 11.0
"""Seconds of a request alone: a pass of 1 s for its prompt, and 10 passes for its other tokens."""
SHARES = [*TAILS.values()]
DECODING = np.array([0.0, 1, 2, 4, 8, 16, 32, 64])


def passes(
    pass_s: Callable[[float, FloatArray], Any] = lambda parts, decoding: 1.0 + 0 * decoding, **changed: Any
) -> EnginePasses:
    """Return one replica of an engine that takes one request at a time, and one prompt in a pass."""
    levels = [*range(EXACT_PARTS + 1), changed.get("most_parts", 1)]
    values: dict[str, Any] = {"part_count": 1, "most_parts": 1, "most_in_flight": 1, "replica_count": 1}
    values |= {"part_tokens": 100.0, "budget_tokens": 1e6, "serving_s": 0.0} | changed
    return EnginePasses(
        pass_s=np.array([[pass_s(parts, DECODING) for parts in levels]]),
        decoding=DECODING,
        **{name: np.array([value]) for name, value in values.items()},
    )


def times(
    queue: EnginePasses, rate: float, *, decode_counts: IndexArray | int = DECODE_COUNT, **size: int
) -> QueueTimes:
    return queue_times(queue, requests_per_s=np.array([rate]), decode_counts=decode_counts, **size)


def wait_of_md1(load: float, share: float) -> float:
    """Return the wait in service times that this share of the requests does not exceed (Erlang, 1909)."""

    def reached(wait: float) -> float:
        terms = range(int(wait) + 1)
        return (1 - load) * sum(
            (load * (k - wait)) ** k / math.factorial(k) * math.exp(load * (wait - k)) for k in terms
        )

    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) < share else (low, middle)
    return low


@pytest.mark.parametrize("load", [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
def test_one_request_at_a_time_waits_as_in_an_m_d_1_queue(load: float) -> None:
    found = times(passes(), load / SERVICE_S).whole_s[:, 0] / SERVICE_S
    expected = np.array([1 + wait_of_md1(load, share) for share in SHARES])
    assert (np.abs(found / expected - 1) < [0.06, 0.12, 0.12, 0.06]).all()  # p50 and p99 chose the order of the gaps


@pytest.mark.parametrize("load", [0.5, 0.7, 0.9])
def test_more_requests_come_closer_to_the_m_d_1_queue(load: float) -> None:
    found = times(passes(), load / SERVICE_S, runs=64, counted=8000).whole_s[:, 0] / SERVICE_S
    assert found == pytest.approx([1 + wait_of_md1(load, share) for share in SHARES], rel=0.05)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (3, 0.6), (4, 0.7)])
def test_answers_of_random_lengths_wait_as_in_an_m_m_c_queue(servers: int, load: float) -> None:
    # Passes take 1 s with any number of requests, so that each request in flight is a server of its own. Lengths have
    # an exponential distribution of 80 passes on average, rounded up; a prompt takes one pass more.
    runs, counted = 64, 1500
    count = runs * (counted + 40)
    lengths = np.ceil(-80 * np.log1p(-(np.arange(count) + 0.5) / count)).astype(np.intp)
    lengths = np.random.default_rng(0).permutation(lengths)
    mean_s = float(lengths.mean()) + 1
    found = times(
        passes(most_in_flight=servers), load * servers / mean_s, decode_counts=lengths, runs=runs, counted=counted
    )
    # Erlang C: a share of the requests waits, and their waits have an exponential distribution.
    offered = load * servers
    full = offered**servers / math.factorial(servers) / (1 - load)
    busy = full / (sum(offered**k / math.factorial(k) for k in range(servers)) + full)
    p99_s = math.log(busy / 0.01) * mean_s / (servers * (1 - load))
    # Besides, a request waits for the half of a pass under way, and for the pass of its prompt.
    assert found.first_s[-1, 0] - 1.5 == pytest.approx(p99_s, rel=0.08)


def growing(parts: float, decoding: FloatArray) -> Any:
    """A pass of 10 ms, with 0.1 ms more for a token and 30 ms for a part of a prompt."""
    return 0.01 + 1e-4 * decoding + 0.03 * parts


def test_a_request_alone_takes_its_own_passes_and_the_time_in_front_of_the_engine() -> None:
    found = times(passes(growing, most_in_flight=64, serving_s=0.005), 1e-4)
    # A pass of 40 ms for the prompt; each other token takes 10.1 ms.
    assert found.first_s[:, 0] == pytest.approx(np.full(4, 0.045))
    assert found.between_s[:, 0] == pytest.approx(np.full(4, 0.0101))
    assert found.whole_s[:, 0] == pytest.approx(np.full(4, 0.146))


def test_a_prompt_in_parts_takes_a_pass_for_each() -> None:
    # The budget of 100 tokens holds one part of 100.
    found = times(passes(growing, most_in_flight=64, part_count=3, budget_tokens=100.0), 1e-4)
    assert found.first_s[:, 0] == pytest.approx(np.full(4, 0.12))


def test_prompts_that_wait_together_share_a_pass_within_the_budget() -> None:
    # A pass with any number of prompts takes 40 ms: 20 requests a second keep an engine that reads one of them in each
    # pass busy for 80 % of the time, so that they wait; one that reads all of them starts with the next pass.
    def flat(parts: float, decoding: FloatArray) -> Any:
        return 0.01 + 0.03 * min(parts, 1) + 0 * decoding

    one, all_of_them = (
        times(passes(flat, most_in_flight=64, most_parts=most, budget_tokens=64.0 + 100 * most), 20.0)
        for most in (1, 20)
    )
    assert one.first_s[-1, 0] > 0.1
    assert all_of_them.first_s[-1, 0] < 0.08  # the rest of a pass, and the pass itself


def test_a_higher_load_is_never_faster() -> None:
    queue = passes(growing, most_in_flight=32)
    rates = np.array([0.1, 1, 4, 8, 12, 16, 20])
    found = queue_times(queue.of(np.zeros(7, dtype=np.intp)), requests_per_s=rates, decode_counts=100)
    for times_s in (found.first_s, found.between_s, found.whole_s):
        assert (np.diff(times_s, axis=1) > -0.02 * times_s[:, :-1]).all()
        assert (np.diff(times_s, axis=0) >= 0).all()
        assert (times_s[:, -1] > 1.2 * times_s[:, 0]).all()


def test_a_request_waits_when_all_places_are_taken() -> None:
    # 100 tokens of at least 10.1 ms for each request: with 2 places at most 2 requests a second.
    few, many = (times(passes(growing, most_in_flight=most), 1.2, decode_counts=100) for most in (2, 32))
    assert few.first_s[-1, 0] > 10 * many.first_s[-1, 0]
    assert few.between_s[-1, 0] < many.between_s[-1, 0]


@pytest.mark.parametrize("most", [2049, 4096, 8192, 20000])
def test_thousands_of_requests_in_flight_wait_for_the_pass_under_way_alone(most: int) -> None:
    # Passes of 1 s, 11 for each request, which fill 80 % of the places; the arrivals of several passes are counted.
    queue = passes(most_in_flight=most, most_parts=most)
    found = times(queue, 0.8 * most / SERVICE_S, counted=most)
    assert found.whole_s[:, 0] == pytest.approx([SERVICE_S + share for share in SHARES], abs=0.03)


def test_the_times_of_a_service_do_not_depend_on_the_others() -> None:
    small, large = passes(growing, most_in_flight=4), passes(growing, most_in_flight=64)
    both = EnginePasses(
        **{
            name: DECODING if name == "decoding" else np.concatenate([getattr(small, name), getattr(large, name)])
            for name in EnginePasses.__dataclass_fields__
        }
    )
    rates = np.array([3.0, 15.0])
    together = queue_times(both, requests_per_s=rates, decode_counts=50)
    for place, queue in enumerate((small, large)):
        alone = times(queue, rates[place], decode_counts=50)
        assert together.at(place) == alone.at(0)
