"""How late steps are, worked out by hand: of 8 and 16 samples, for a job of 100, on two devices."""

from collections.abc import Sequence

import numpy as np
import pytest

from advisor.records.answer import JobLimits
from advisor.records.prediction import FloatArray
from advisor.scale.lateness import lateness_of
from tests.cost.toys import job

STEP_S = np.array([[1.0, 1.5]])


def late(
    limits: JobLimits, *, start_up_s: Sequence[float] = (0.0,), row: int = 0, step_s: FloatArray = STEP_S
) -> object:
    lateness = lateness_of(job(100, limits=limits), np.array([8, 16]), start_up_s=np.array(start_up_s))
    return lateness(step_s, [row], np.array(1.0), None).tolist()


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
