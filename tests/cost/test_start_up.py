import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.cost.start_up import NO_START_UP, joint_ends, start_up_of
from tests.cost.toys import start_up

SECONDS = st.floats(0.1, 1e5)


def test_a_measured_cloud_has_its_own_interval() -> None:
    # 10 % start within 40 s, 10 % take more than 160 s: a factor of 2 from the median either way, at 1.2816 standard
    # deviations. At 1.6449 the factor is 2^1.28347 = 2.4342: 32.86 and 194.74 s.
    found = start_up_of("acme", {"acme": start_up(80), "other": start_up(10)})
    assert (found.mid, found.low, found.high) == (80, pytest.approx(32.86, abs=1e-2), pytest.approx(194.74, abs=1e-2))


def test_another_cloud_has_the_median_of_all_and_the_widest_interval() -> None:
    # Medians of 30, 40 and 90 s: 40 s. The least p10 is 15 s, the largest p90 180 s: factors of 2.6667 and 4.5, to the
    # power of 1.28347 3.5215 and 6.8924: 11.36 and 275.7 s.
    found = start_up_of("new", {str(seconds): start_up(seconds) for seconds in (30, 40, 90)})
    assert (found.mid, found.low, found.high) == (40, pytest.approx(11.36, abs=0.02), pytest.approx(275.7, abs=0.2))


def test_where_nobody_measured_anything_nothing_starts() -> None:
    assert start_up_of("acme", {}) == NO_START_UP


@given(SECONDS, st.floats(0, 0.9), st.floats(0, 9), SECONDS, st.floats(0, 0.9), st.floats(0, 9), st.integers(1, 1000))
def test_the_ends_of_two_times_are_as_far_apart_as_the_root_of_the_squares(
    step: float, less: float, more: float, starting: float, started_less: float, started_more: float, steps: int
) -> None:
    step_s = np.array([[step], [step * (1 - less)], [step * (1 + more)]])
    start_s = np.array([[starting], [starting * (1 - started_less)], [starting * (1 + started_more)]])
    count = np.array([float(steps)])
    for end, (end_step_s, end_start_s) in enumerate(joint_ends(step_s, steps=count, start_up_s=start_s), start=1):
        apart_s = steps * end_step_s + end_start_s - (steps * step + starting)
        expected_s = np.hypot(steps * (step_s[end] - step), start_s[end] - starting)
        sign = -1 if end == 1 else 1
        assert apart_s == pytest.approx(sign * expected_s, rel=1e-6, abs=1e-6 * (steps * step + starting))
        assert end_step_s >= 0
        assert end_start_s >= 0
