"""Limits on percentiles of tokens, on toy engines whose passes are given."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.cost.batch_choice import choose_batches
from advisor.cost.engine_queue import TAILS
from advisor.cost.rank_offers import Ranking
from advisor.cost.token_queue import FewestMachines, fewest_machines, percentile_limits, times_at
from advisor.records.answer import Job, JobLimits
from advisor.records.generation import Generation
from advisor.records.prediction import EXACT_PARTS, EnginePasses, IndexArray, Predictions, Scaling, TokenTimes
from advisor.records.scale import Plan
from tests.cost.toys import device, fleet, job, offer, predictions, rank, said, selection

DECODING = np.array([0.0, 1, 2, 4, 8, 16, 32])
BATCHES = np.array([1.0, 4, 16])
GENERATION = Generation(prompt_tokens=100, output_tokens=101)
SLOW, FAST = device("slow"), device("fast")
FASTER: Mapping[int, float] = {0: 1.0, 1: 0.25}


def passes_at(devices: IndexArray, batches: IndexArray) -> EnginePasses:
    """A pass takes 10 ms, 1 ms for each request and 50 ms for a prompt on the slow device, a quarter on the other."""
    parts = np.array([*range(EXACT_PARTS + 1), 1.0])[:, np.newaxis]
    pass_s = 0.01 + 0.001 * DECODING + 0.05 * parts
    scale = np.array([FASTER[one] for one in devices.tolist()])
    ones = np.ones(len(devices), dtype=np.intp)
    return EnginePasses(
        pass_s=scale[:, np.newaxis, np.newaxis] * pass_s,
        decoding=DECODING,
        part_count=ones,
        part_tokens=100.0 * ones,
        most_parts=ones,
        budget_tokens=100.0 * ones,
        most_in_flight=BATCHES[batches].astype(np.intp),
        replica_count=ones,
        serving_s=0.0 * ones,
    )


def predicted() -> Predictions:
    between_s = np.stack([FASTER[one] * (0.01 + 0.001 * BATCHES + 0.0005 * (BATCHES - 1)) for one in (0, 1)])
    first_s = np.stack([FASTER[one] * (0.06 + 0.001 * BATCHES) for one in (0, 1)])
    nothing = np.zeros((2, 3))
    tokens = TokenTimes(
        first_s=first_s,
        between_s=between_s,
        pass_s=between_s,
        compute_bound_from=nothing + np.inf,
        kv_cache_bytes=nothing,
        weight_bytes=nothing,
        passes_at=passes_at,
    )
    step_s = first_s + 100 * between_s
    return predictions(SLOW, FAST, step_s=[list(row) for row in step_s], batches=(1, 4, 16), tokens=tokens)


def service(per_second: float, **limits: Any) -> Job:
    asked = job(limits=JobLimits(**limits), generation=GENERATION)
    return replace(asked, requests_per_day=int(86400 * per_second), requests_per_second=per_second)


def ranked(per_second: float, **limits: Any) -> Ranking:
    offers = selection(offer("slow", usd_per_hour=1.0), offer("fast", usd_per_hour=5.0))
    return rank(
        offers, fleet=fleet(0, 1, devices=(SLOW, FAST)), predictions=predicted(), job=service(per_second, **limits)
    )


def test_a_quote_has_the_percentiles_of_its_machines() -> None:
    slow, fast = ranked(2.0).quotes
    for quote, number in ((slow, 0), (fast, 1)):
        assert quote.tokens is not None
        at = int(np.flatnonzero(quote.batch == BATCHES)[0])
        found = times_at(
            predicted(),
            np.array([number]),
            np.array([at]),
            instance_counts=np.array([float(quote.instance_count)]),
            job=service(2.0),
        )
        assert [quote.p50_s, quote.p99_s] == found.whole_s[[0, -1], 0].tolist()
        for name, times_s in (("ttft", found.first_s), ("tpot", found.between_s)):
            assert [getattr(quote.tokens, f"{name}_{tail}_s") for tail in TAILS] == times_s[:, 0].tolist()
        assert quote.tokens.ttft_p99_s > 0.06 * FASTER[number]


def test_more_machines_keep_a_limit_on_a_percentile_and_one_fewer_breaks_it() -> None:
    limits: tuple[dict[str, Any], ...] = (
        {"max_ttft_s": 0.14, "ttft_of": "p99"}, {"max_tpot_s": 0.0125, "tpot_of": "p50"}, {"p99_s": 1.9}
    )  # fmt: skip
    for limit in limits:
        asked = service(8.0, **limit)
        (one,) = percentile_limits(asked)
        choice = choose_batches(predicted(), job=asked)
        free = choose_batches(predicted(), job=service(8.0))
        assert choice.fewest is not None
        assert free.fewest is None
        count = choice.fewest.counts[:1]

        def late_s(machines: np.ndarray, asked: Job = asked, at: IndexArray = choice.index[:1]) -> np.ndarray:
            found = times_at(predicted(), np.array([0]), at, instance_counts=machines, job=asked)
            return np.asarray(getattr(found, one.name)[one.tail])  # noqa: B023 - called in this turn alone

        assert late_s(count) <= one.most_s
        assert late_s(count - 1) > one.most_s


def fewest(batches: list[int], most_s: float, *, joined: int = 1) -> FewestMachines:
    """Search from 3 groups of the fast device on; `joined` machines take up to 16 requests together, one up to 4."""
    scaling = Scaling(
        plans=(Plan(), Plan(machines=joined, tensor=joined)),
        plan=np.array([[0, 0, 1]] * 2),
        efficiency_ratio=np.ones((2, 3)),
    )
    candidates = np.stack([np.zeros(len(batches), dtype=np.intp), np.array(batches)], axis=1)
    return fewest_machines(
        replace(predicted(), scaling=scaling),
        candidates,
        least=np.array([[np.inf, 3.0]] * len(batches)),
        job=service(40.0, max_ttft_s=most_s, ttft_of="p99"),
    )


@pytest.mark.parametrize("most_s", [0.025, 0.03, 0.04, 0.06])
def test_the_times_are_those_of_the_machines_found_however_the_search_ended(most_s: float) -> None:
    found = fewest([2], most_s)
    real = times_at(
        predicted(), np.array([1]), np.array([2]), instance_counts=found.counts[1:], job=service(40.0, p99_s=1.0)
    )
    assert found.times.first_s[:, 1].tolist() == real.first_s[:, 0].tolist()
    assert found.times.first_s[-1, 1] <= most_s


def with_families() -> Predictions:
    """The slow device, and plans of two machines of which each pass takes 0.4 of the time."""
    alone, tokens = predicted(), predicted().tokens
    assert tokens is not None

    def twice(times_s: np.ndarray) -> np.ndarray:
        return np.concatenate([times_s, 0.4 * times_s], axis=1)[:1]

    def both(devices: IndexArray, batches: IndexArray) -> EnginePasses:
        found = passes_at(devices, batches % 3)
        return replace(found, pass_s=found.pass_s * np.where(batches < 3, 1.0, 0.4)[:, np.newaxis, np.newaxis])

    step_s = twice(alone.step_s)
    nothing = np.zeros((1, 6))
    return predictions(
        SLOW,
        step_s=step_s,
        batches=(1, 4, 16, 1, 4, 16),
        tokens=TokenTimes(
            first_s=twice(tokens.first_s),
            between_s=twice(tokens.between_s),
            pass_s=twice(tokens.pass_s),
            compute_bound_from=nothing + np.inf,
            kv_cache_bytes=nothing,
            weight_bytes=nothing,
            passes_at=both,
        ),
        scaling=Scaling(
            plans=(Plan(), Plan(machines=2, tensor=2)),
            plan=np.array([[0, 0, 0, 1, 1, 1]]),
            efficiency_ratio=np.ones((1, 6)),
            family=np.array([0, 0, 0, 1, 1, 1]),
        ),
    )


def test_another_family_of_plans_never_needs_more_machines_and_may_need_fewer() -> None:
    # Passes of the second family take 0.4 of the time on twice the machines: it carries more load per machine, but
    # each of its groups is two machines, which a small load does not fill.
    gains = []
    for per_second, most_s in [(1.0, 0.2), (4.0, 0.1), (8.0, 0.07), (8.0, 0.2), (20.0, 0.1), (20.0, 0.05), (60.0, 1.0)]:
        asked = service(per_second, max_ttft_s=most_s, ttft_of="p99")
        machines = []
        for found in (replace(predicted(), scaling=None), with_families()):
            choice = choose_batches(found, job=asked)
            assert choice.fewest is not None
            joined = 1 if found.scaling is None else 1 + (choice.index[0] >= 3)
            machines.append(choice.fewest.counts[0] * joined)
        gains.append(machines[0] - machines[1])
    assert min(gains) == 0
    assert max(gains) > 0


@pytest.mark.parametrize("order", [[1, 2], [2, 1]])
def test_all_of_the_machines_that_work_together_count(order: list[int]) -> None:
    apart, together = (float(fewest([batch], 0.04).counts[1]) for batch in (1, 2))
    assert 3 * together < apart < 4 * together
    for joined, batch, groups in ((3, 2, together), (4, 1, apart)):
        found = fewest(order, 0.04, joined=joined)
        assert (order[found.candidate[1]], found.counts[1]) == (batch, groups)


def test_a_limit_below_the_times_of_a_request_alone_leaves_the_device_out() -> None:
    # A prompt alone takes 60 ms on the slow device, and 15 ms on the fast one.
    found = ranked(2.0, max_ttft_s=0.05, ttft_of="p99")
    assert [quote.device.id for quote in found.quotes] == ["fast"]
    (_, code, _), *_ = said(found.rejected, job=service(2.0))
    assert code == "over-ttft"


def test_a_limit_that_the_load_alone_keeps_needs_no_more_machines() -> None:
    with_limit = [quote.instance_count for quote in ranked(2.0, max_ttft_s=60.0, ttft_of="p99").quotes]
    assert with_limit == [quote.instance_count for quote in ranked(2.0).quotes]


@pytest.mark.parametrize("name", ["ttft", "tpot"])
def test_a_limit_on_the_mean_is_not_simulated(name: str) -> None:
    assert percentile_limits(service(2.0, **{f"max_{name}_s": 1.0})) == ()


def test_no_passes_are_asked_for_where_there_are_no_offers() -> None:
    def no_passes(devices: IndexArray, batches: IndexArray) -> EnginePasses:
        raise ValueError("an engine without services")

    found = predicted()
    assert found.tokens is not None
    silent = replace(found, tokens=replace(found.tokens, passes_at=no_passes))
    asked = replace(service(2.0), objective="time")
    assert rank(selection(), fleet=fleet(devices=(SLOW, FAST)), predictions=silent, job=asked).quotes == ()
