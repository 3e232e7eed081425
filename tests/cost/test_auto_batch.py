"""`--batch auto` worked out by hand: a step takes 1 s + 0.1 s a sample unless said otherwise, and 1 GB a sample."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from advisor.records.answer import JobLimits, Quote
from advisor.records.prediction import Scaling
from advisor.records.scale import Plan
from tests.cost.toys import device, fleet, job, offer, predictions, rank, selection

BATCHES = (1, 2, 4, 8, 16)


def chosen(
    *,
    memory_bytes: float = 32e9,
    is_tight: Sequence[bool] | None = None,
    start_s: float = 1.0,
    samples: int = 1600,
    **limits: float | None,
) -> Quote:
    one = device("one", memory_bytes=memory_bytes)
    predicted = predictions(
        one,
        step_s=[[start_s + 0.1 * batch for batch in BATCHES]],
        batches=BATCHES,
        fits=np.array([[batch * 1e9 <= memory_bytes for batch in BATCHES]]),
        is_tight=None if is_tight is None else np.array([is_tight]),
    )
    [quote] = rank(
        selection(offer("m")),
        fleet=fleet(0, devices=(one,)),
        predictions=predicted,
        job=job(samples, limits=JobLimits(**limits)),
    ).quotes
    return quote


def test_the_batch_of_least_cost_per_sample_is_taken() -> None:
    # 2.6 s for 16 samples is 0.1625 s each, less than 0.225 s at 8; 100 steps at 0.001 $/s.
    best = chosen()
    assert best.batch == 16
    assert round(best.job_usd.mid, 6) == 0.26


def test_of_those_that_fit() -> None:
    assert chosen(memory_bytes=9e9).batch == 8


def test_and_of_those_within_the_latency() -> None:
    # 1.4 s at 4 samples, 1.8 s at 8.
    assert chosen(max_latency_s=1.5).batch == 4
    assert chosen(memory_bytes=2e9, max_latency_s=1.5).batch == 2


def test_the_smallest_within_two_percent_of_the_least_cost_is_taken() -> None:
    # 0.01 s + 0.1 s a sample: 100.625 ms each at 16, 102.5 ms at 4 (1.9 % more), 105 ms at 2.
    assert chosen(start_s=0.01).batch == 4


@pytest.mark.parametrize("name", ["deadline_s", "max_usd"])
def test_a_larger_batch_is_taken_only_where_a_limit_on_the_job_needs_it(name: str) -> None:
    # 400 steps of 0.41 s at 4 are 164 s, 100 of 1.61 s at 16 are 161 s, at 0.001 $/s.
    per_s = {"deadline_s": 1.0, "max_usd": 0.001}[name]
    assert chosen(start_s=0.01, **{name: 1e6}).batch == 4
    assert chosen(start_s=0.01, **{name: 164.1 * per_s}).batch == 4
    assert chosen(start_s=0.01, **{name: 163.0 * per_s}).batch == 16


def test_a_small_job_chooses_among_the_batches_of_a_large_one() -> None:
    # 16 samples take four steps of 4, 1.64 s, or one of 16, 1.61 s.
    assert chosen(start_s=0.01, samples=16).batch == 4
    # 2 samples take a step of 2, 0.21 s, or of 4, 0.41 s.
    assert chosen(start_s=0.01, samples=2).batch == 2


def test_a_limit_that_the_best_offer_keeps_changes_nothing() -> None:
    one = device("one")

    def ranked(max_usd: float | None) -> list[tuple[str, int]]:
        found = rank(
            selection(offer("cheap"), offer("dear", usd_per_hour=3.65)),
            fleet=fleet(0, 0, devices=(one,)),
            predictions=predictions(one, step_s=[[0.01 + 0.1 * batch for batch in BATCHES]], batches=BATCHES),
            job=job(1600, limits=JobLimits(max_usd=max_usd)),
        )
        return [(quote.instance, quote.batch) for quote in found.quotes]

    # 164 s at 4 cost $0.164 and $0.1663; 161 s at 16 would cost $0.161 and $0.1632.
    assert ranked(None) == [("cheap", 4), ("dear", 4)]
    assert ranked(0.165) == [("cheap", 4)]
    assert ranked(0.1635) == [("cheap", 16), ("dear", 16)]
    assert ranked(0.162) == [("cheap", 16)]


def test_the_fastest_batch_within_the_budget_is_taken() -> None:
    # 200 steps of 8 on a machine take 200 s for $0.20; 100 steps of 16 on four take 100 s for $0.40.
    one = device("one")
    scaling = Scaling(plans=(Plan(), Plan(machines=4)), plan=np.array([[0, 1]]), efficiency_ratio=np.ones((1, 2)))

    def ranked(**limits: float) -> list[int]:
        found = rank(
            selection(offer("m1"), offer("old", usd_per_hour=0.1, tier="marketplace")),
            fleet=fleet(0, 0, devices=(one,)),
            predictions=predictions(one, step_s=[[1.0, 1.0]], batches=(8, 16), scaling=scaling),
            job=job(1600, objective="time", limits=JobLimits(**limits)),
        )
        return [quote.batch for quote in found.quotes]

    assert ranked() == [16]
    assert ranked(max_usd=0.3) == ranked(max_usd_per_hour=10.0) == [8]


def test_an_offer_whose_price_is_not_trusted_does_not_keep_the_limits_for_the_others() -> None:
    one = device("one")
    offers = selection(offer("trusted"), offer("old", usd_per_hour=1.8))
    trusted, old = offers.priced
    found = rank(
        replace(offers, priced=(replace(trusted, is_trusted=True), replace(old, is_trusted=False))),
        fleet=fleet(0, 0, devices=(one,)),
        predictions=predictions(one, step_s=[[0.01 + 0.1 * batch for batch in BATCHES]], batches=BATCHES),
        job=job(1600, limits=JobLimits(max_usd=0.162)),
    )
    # 164 s at 4 cost $0.164, 161 s at 16 cost $0.161; half as much at the old price.
    assert [(quote.instance, quote.batch) for quote in found.quotes] == [("old", 16), ("trusted", 16)]


def test_a_batch_that_may_not_fit_is_taken_only_if_all_may_not() -> None:
    assert chosen(is_tight=[False, False, False, False, True]).batch == 8
    assert chosen(is_tight=[True] * 5).batch == 16
