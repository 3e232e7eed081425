"""How late steps are, worked out by hand: of 8 and 16 samples, for a job of 100, on two devices."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from advisor.cost.market import no_terms
from advisor.cost.offer_terms import offer_terms
from advisor.records.answer import JobLimits
from advisor.records.billing import Billing
from advisor.records.prediction import FloatArray
from advisor.scale.lateness import lateness_of
from tests.cost.toys import job, offer, selection

STEP_S = np.array([[1.0, 1.5]])


def late(
    limits: JobLimits, *, start_up_s: Sequence[float] = (0.0,), row: int = 0, step_s: FloatArray = STEP_S
) -> object:
    terms = replace(no_terms(len(start_up_s)), start_up_s=np.array(start_up_s))
    lateness = lateness_of(job(100, limits=limits), np.array([8, 16]), terms=terms)
    return lateness(step_s, [row], np.array(1.0), np.array(1.0), None).tolist()


def test_without_limits_nothing_is_late() -> None:
    assert late(JobLimits()) == [[0.0, 0.0]]


def test_a_deadline_leaves_each_device_what_its_start_does_not_take() -> None:
    # 13 and 7 steps. Of 26 s the first device has all, 2 s and 26/7 s a step; the second half.
    limits = JobLimits(deadline_s=26.0)
    assert late(limits) == [pytest.approx([1 / 2, 1.5 / (26 / 7)])]
    assert late(limits, start_up_s=[0.0, 13.0], row=1) == [pytest.approx([1.0, 1.5 / (13 / 7)])]
    assert late(limits, start_up_s=[0.0, 99.0], row=1) == [[np.inf, np.inf]]


def test_the_limit_that_is_broken_most_counts() -> None:
    # 8 samples/s leave a step 1 s and 2 s, a latency of 0.5 s less: 1 / 0.5 and 1.5 / 0.5.
    assert late(JobLimits(min_samples_per_s=8.0)) == [[1.0, 0.75]]
    assert late(JobLimits(min_samples_per_s=8.0, max_latency_s=0.5)) == [[2.0, 3.0]]


def test_a_step_that_is_not_possible_is_never_in_time() -> None:
    assert late(JobLimits(max_latency_s=0.5), step_s=np.array([[np.inf, 1.0]])) == [[np.inf, 2.0]]


@pytest.mark.parametrize(
    ("limits", "quota", "expected"),
    [
        # 13 and 7 steps on two machines take 26 and 21 machine-seconds at $0.001, and $7.20 an hour.
        (JobLimits(max_usd=0.02), None, [1.3, 1.05]),
        (JobLimits(max_usd_per_hour=3.6), None, [2.0, 2.0]),
        (JobLimits(), 1, [2.0, 2.0]),
        (JobLimits(), None, [0.0, 0.0]),
    ],
)
def test_money_and_quota_limit_how_many_machines_work_together(
    limits: JobLimits, quota: int | None, expected: list[float]
) -> None:
    asked = job(100, limits=limits)
    terms = offer_terms(selection(offer(quota_instances=quota)).priced, billing=Billing(), job=asked)
    lateness = lateness_of(asked, np.array([8, 16]), terms=replace(no_terms(1), cheapest=terms))
    found = lateness(STEP_S, [0], np.array(1.0), np.array(2.0), None)
    assert found.tolist() == [pytest.approx(expected)]
