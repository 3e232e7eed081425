"""`--batch auto` worked out by hand: a step takes 1 s + 0.1 s a sample, and 1 GB a sample."""

import numpy as np

from advisor.cost.rank_offers import rank
from advisor.records.answer import JobLimits, Quote
from tests.cost.toys import device, fleet, job, offer, predictions, selection

BATCHES = (1, 2, 4, 8, 16)
STEP_S = [[1 + 0.1 * batch for batch in BATCHES]]


def chosen(*, memory_bytes: float = 32e9, max_latency_s: float | None = None) -> Quote:
    one = device("one", memory_bytes=memory_bytes)
    predicted = predictions(
        one, step_s=STEP_S, batches=BATCHES, fits=np.array([[batch * 1e9 <= memory_bytes for batch in BATCHES]])
    )
    limits = JobLimits(max_latency_s=max_latency_s)
    [quote] = rank(
        selection(offer("m")), fleet=fleet(0, devices=(one,)), predictions=predicted, job=job(1600, limits=limits)
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
