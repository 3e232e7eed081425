import gc

import pytest

from advisor.calibrate.repeat_timing import step_timing, time_step


class Clock:
    """Seconds that pass only while a step runs: `step_s` gives those of each call."""

    def __init__(self, *step_s: float) -> None:
        self.now_s = 0.0
        self.calls = 0
        self._step_s = step_s

    def __call__(self) -> float:
        return self.now_s

    def step(self) -> None:
        self.now_s += self._step_s[min(self.calls, len(self._step_s) - 1)]
        self.calls += 1


def test_the_calls_that_warm_up_do_not_count() -> None:
    clock = Clock(5.0, 0.01)  # the first call takes 5 s, all others 10 ms

    assert time_step(clock.step, budget_s=0.1, clock=clock).step_s == pytest.approx(0.01)


def test_a_quick_step_is_repeated_within_a_block() -> None:
    clock = Clock(1e-5)

    timing = time_step(clock.step, budget_s=0.1, clock=clock)

    # Blocks of 4 ms hold 400 steps of 10 us; seven that agree are enough, after two calls that warm up.
    assert clock.calls == 2 + 7 * 400
    assert timing.step_s == pytest.approx(1e-5)
    assert timing.iqr_ratio == pytest.approx(0.0, abs=1e-9)


def test_a_slow_step_is_timed_twice_however_small_the_budget() -> None:
    clock = Clock(1.0)

    assert time_step(clock.step, budget_s=0.01, clock=clock).step_s == 1.0
    assert clock.calls == 2 + 2


def test_the_slower_half_of_the_blocks_does_not_count() -> None:
    # Warm-up twice, then blocks of one step: 10, 30, 10, 30, ... ms, until the budget of 0.1 s is over.
    clock = Clock(0.01, 0.01, *(0.01, 0.03) * 3)

    assert time_step(clock.step, budget_s=0.1, clock=clock).step_s == pytest.approx(0.01)


def test_the_spread_is_the_range_of_the_middle_half_over_the_median() -> None:
    timing = step_timing([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], batch=4, step_count=7)

    # statistics.quantiles of 1 to 7: 2, 4, 6; (6 - 2) / 4. The faster half is 1 to 4.
    assert (timing.iqr_ratio, timing.step_s) == (1.0, 2.5)
    # 90 % lie between 1 + 0.05 x 6 and 1 + 0.95 x 6
    assert (timing.low_s, timing.high_s) == (pytest.approx(1.3), pytest.approx(6.7))


def test_no_garbage_is_collected_while_a_step_is_timed() -> None:
    seen = set()

    def step() -> None:
        seen.add(gc.isenabled())

    time_step(step, budget_s=0.001)

    assert seen == {False}
    assert gc.isenabled()
