"""`--max-ttft` and `--max-tpot` worked out by hand: a step takes 1 s + 0.1 s a request, of 11 tokens each."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.cost.batch_sweep import batch_points
from advisor.cost.rank_offers import Ranking
from advisor.records.answer import JobLimits
from advisor.records.generation import Generation
from advisor.records.prediction import Predictions, TokenTimes
from tests.cost.toys import device, fleet, job, offer, predictions, rank, said, selection
from tests.says import assert_says

BATCHES = np.array([1.0, 2, 4, 8, 16])
STEP_S = 1 + 0.1 * BATCHES
ONE = device("one")
GENERATION = Generation(prompt_tokens=90, output_tokens=11)


def predicted() -> Predictions:
    """The first token takes 0.1 s and a hundredth for each request, every other a tenth of the step."""
    tokens = TokenTimes(
        first_s=0.1 + 0.01 * BATCHES[np.newaxis],
        between_s=0.1 * STEP_S[np.newaxis],
        pass_s=0.05 * STEP_S[np.newaxis],
        compute_bound_from=np.array([[8.0, np.inf, np.inf, np.inf, np.inf]]),
        kv_cache_bytes=1e6 * BATCHES[np.newaxis],
        weight_bytes=np.full((1, 5), 1e9),
    )
    return predictions(ONE, step_s=[STEP_S], batches=tuple(BATCHES.astype(int)), tokens=tokens)


def ranked(**limits: Any) -> Ranking:
    asked = job(1600, limits=JobLimits(**limits), generation=GENERATION)
    return rank(selection(offer("m")), fleet=fleet(0, devices=(ONE,)), predictions=predicted(), job=asked)


def test_without_limits_the_most_requests_in_flight_cost_least() -> None:
    (quote,) = ranked().quotes
    assert quote.batch == 16


def test_the_first_token_comes_in_time() -> None:
    # 0.14 s with 4 requests, 0.18 s with 8.
    (quote,) = ranked(max_ttft_s=0.15).quotes
    assert quote.batch == 4


def test_the_others_come_in_time() -> None:
    # 0.12 s with 2 requests, 0.14 s with 4.
    (quote,) = ranked(max_tpot_s=0.13).quotes
    assert quote.batch == 2


def test_latency_is_that_of_the_whole_answer() -> None:
    # With 2 requests 0.12 s and 10 x 0.12 s: 1.32 s; with 4 it is 0.14 + 1.4 = 1.54 s.
    (quote,) = ranked(max_latency_s=1.5).quotes
    assert quote.batch == 2


def test_who_is_too_slow_is_told_by_how_much() -> None:
    generating = job(generation=GENERATION)
    (_, code, reason), *_ = said(ranked(max_ttft_s=0.1).rejected, job=generating)
    assert code == "over-ttft"
    assert_says(reason, "first token", "110 ms", "1 request", "10 ms", "--max-ttft 100 ms")
    # Within 0.12 s for the first token there are 2 requests at most, of which a token takes 0.12 s, and 0.11 s alone.
    ((_, code, reason),) = said(ranked(max_ttft_s=0.12, max_tpot_s=0.1).rejected, job=generating)
    assert code == "over-tpot"
    assert_says(reason, "110 ms", "1 request", "10 ms", "--max-tpot 100 ms")
    assert "first" not in reason


def test_the_curve_over_requests_in_flight_has_their_tokens() -> None:
    point = batch_points(predicted(), 0, usd_per_hour=3.6)[1]
    assert (point.batch, point.ttft_s, point.tpot_s) == (2, pytest.approx(0.12), pytest.approx(0.12))


def test_tokens_are_quoted_by_what_the_job_costs() -> None:
    (quote,) = ranked().quotes
    tokens = quote.tokens
    assert tokens is not None

    # 100 steps of 2.6 s at 0.001 $/s: 0.26 $ for 1600 x 11 tokens of answers, 1600 x 101 in all.
    assert round(tokens.usd_per_million_output_tokens, 6) == round(0.26 / 17_600 * 1e6, 6)
    assert round(tokens.usd_per_million_tokens, 6) == round(0.26 / 161_600 * 1e6, 6)
    assert round(tokens.output_tokens_per_s, 6) == round(16 * 11 / 2.6, 6)
    assert (tokens.ttft_s.mid, tokens.tpot_s.mid, tokens.decode_s) == (0.26, 0.26, 0.13)
    assert tokens.compute_bound_from is None
    assert ranked(max_ttft_s=0.115).quotes[0].tokens.compute_bound_from == 8  # type: ignore[union-attr]


@given(st.sampled_from(["max_ttft_s", "max_tpot_s", "max_latency_s"]), st.floats(0.05, 4.0), st.floats(1.0, 3.0))
def test_a_tighter_limit_never_costs_less_nor_lets_more_through(limit: str, limit_s: float, times: float) -> None:
    tight, wide = ranked(**{limit: limit_s}).quotes, ranked(**{limit: times * limit_s}).quotes
    assert len(tight) <= len(wide)
    for ours, theirs in zip(tight, wide, strict=False):
        assert ours.job_usd.mid >= theirs.job_usd.mid
