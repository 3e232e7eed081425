"""Times a step: warms up, repeats it and reports the spread.

Like `adaptive_autorange` of torch.utils.benchmark it repeats blocks until they agree, but within a time budget. It
waits for each step to finish before it starts the next.
"""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.records.timing import StepTiming

_MOST_BLOCKS = 25
_CALM_BLOCKS = 7
_LOW, _HIGH = 0.05, 0.95
"""Quantiles between which 90 % of the times lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """How a step is repeated."""

    block_s: float = 0.004
    """Length of a block of steps: far above the clock's resolution and below a scheduler's time slice."""
    least_blocks: int = 3
    overtime: float = 4.0
    """If the minimum number of blocks would take longer than this many budgets, two blocks are enough."""
    calm_iqr_ratio: float = 0.03
    """Seven blocks that agree this well need no repetition."""


USUAL_REPEATS = Repeats()


def time_step(
    step: Callable[[], None],
    *,
    budget_s: float,
    batch: int = 1,
    repeats: Repeats = USUAL_REPEATS,
    clock: Callable[[], float] = time.perf_counter,
) -> StepTiming:
    """Time `step`, which returns when its work is done, for about `budget_s`, after two warm-up calls.

    No garbage is collected meanwhile.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        step()
        warm_s = clock()
        step()
        block_steps = max(1, round(repeats.block_s / max(clock() - warm_s, 1e-7)))
        start_s = clock()
        blocks_s: list[float] = []
        while len(blocks_s) < _MOST_BLOCKS:
            begin_s = clock()
            for _ in range(block_steps):
                step()
            blocks_s.append((clock() - begin_s) / block_steps)
            passed_s = clock() - start_s
            least = repeats.least_blocks if passed_s < repeats.overtime * budget_s else 2
            if len(blocks_s) >= least and passed_s > budget_s:
                break
            if len(blocks_s) >= _CALM_BLOCKS and _iqr_ratio(blocks_s) < repeats.calm_iqr_ratio:
                break
    finally:
        if is_collecting:
            gc.enable()
    return step_timing(blocks_s, batch=batch, step_count=len(blocks_s) * block_steps)


def step_timing(
    times_s: Sequence[float], *, batch: int, step_count: int, loader_wait_s: float | None = None
) -> StepTiming:
    """Return the timing of `step_count` steps from their times, or from the mean times of blocks of them.

    Only the faster half counts, since a disturbance makes a step slower, never faster.
    """
    step_s = statistics.median(sorted(times_s)[: (len(times_s) + 1) // 2])
    low_s, high_s = np.quantile(times_s, (_LOW, _HIGH)).tolist()
    return StepTiming(
        batch=batch,
        step_s=step_s,
        low_s=min(low_s, step_s),
        high_s=max(high_s, step_s),
        step_count=step_count,
        iqr_ratio=_iqr_ratio(times_s),
        loader_wait_s=loader_wait_s,
    )


def _iqr_ratio(values: Sequence[float]) -> float:
    """Return the interquartile range over the median."""
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle
