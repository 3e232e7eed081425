"""Times a step: warms up, repeats it and reports the spread.

Like `adaptive_autorange` of torch.utils.benchmark it repeats blocks until they agree, but within a time budget. It
waits for each step to finish before it starts the next.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

_BLOCK_S = 0.004
"""Length of a block of steps: far above the clock's resolution and below a scheduler's time slice."""
_LEAST_BLOCKS = 3
_MOST_BLOCKS = 25
_OVERTIME = 4.0
"""If the minimum number of blocks would take longer than this many budgets, two blocks are enough."""
_CALM_IQR_RATIO = 0.03
"""Blocks that agree this well need no repetition."""
_CALM_BLOCKS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The time of a step and its spread."""

    step_s: float
    """Median of the faster half of the blocks."""
    iqr_ratio: float
    """Interquartile range of all blocks over their median."""
    blocks_s: tuple[float, ...]
    """Mean time of a step in each block."""
    block_steps: int
    """Steps per block."""


def time_step(step: Callable[[], None], *, budget_s: float, clock: Callable[[], float] = time.perf_counter) -> Timing:
    """Time `step`, which returns when its work is done, for about `budget_s`, after two warm-up calls.

    Only the faster half of the blocks counts, since a disturbance makes a step slower, never faster.
    """
    step()
    warm_s = clock()
    step()
    step_count = max(1, round(_BLOCK_S / max(clock() - warm_s, 1e-7)))
    start_s = clock()
    blocks_s: list[float] = []
    while len(blocks_s) < _MOST_BLOCKS:
        begin_s = clock()
        for _ in range(step_count):
            step()
        blocks_s.append((clock() - begin_s) / step_count)
        passed_s = clock() - start_s
        if len(blocks_s) >= (_LEAST_BLOCKS if passed_s < _OVERTIME * budget_s else 2) and passed_s > budget_s:
            break
        if len(blocks_s) >= _CALM_BLOCKS and iqr_ratio(blocks_s) < _CALM_IQR_RATIO:
            break
    faster = sorted(blocks_s)[: (len(blocks_s) + 1) // 2]
    return Timing(
        step_s=statistics.median(faster),
        iqr_ratio=iqr_ratio(blocks_s),
        blocks_s=tuple(blocks_s),
        block_steps=step_count,
    )


def iqr_ratio(values: list[float]) -> float:
    """Return the interquartile range over the median."""
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle
