"""A step as a function in, the seconds that it takes out: warmed up, repeated, with its spread.

Like torch.utils.benchmark's `adaptive_autorange` it repeats blocks until they agree, but within a share of a budget,
and each step is waited for, as one whose result is needed is.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

_BLOCK_S = 0.004
"""A block repeats the step for about this long, far above the clock's grain and below a scheduler's slice."""
_LEAST_BLOCKS = 3
_MOST_BLOCKS = 25
_OVERTIME = 4.0
"""A step so slow that its least blocks take that many budgets has two."""
_CALM_IQR_RATIO = 0.03
"""Blocks that agree so well need no more of them."""
_CALM_BLOCKS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The median of the faster half of the blocks, and all blocks' interquartile range over their median.

    `blocks_s` are the blocks' means, each over `block_steps` steps.
    """

    step_s: float
    iqr_ratio: float
    blocks_s: tuple[float, ...]
    block_steps: int


def time_step(step: Callable[[], None], *, budget_s: float, clock: Callable[[], float] = time.perf_counter) -> Timing:
    """Time `step`, which returns when its work is done, for about `budget_s` after two calls that warm up.

    The faster half: what disturbs a step makes it slower, never faster.
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
    """Interquartile range over median."""
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle
