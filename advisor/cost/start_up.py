"""Predicts the start-up time of a cloud, and its effect on the interval of the job's time."""

import math
import statistics
from collections.abc import Iterator, Mapping

import numpy as np

from advisor.records.answer import Interval
from advisor.records.billing import StartUp
from advisor.records.prediction import FloatArray

NO_START_UP = Interval(mid=0.0, low=0.0, high=0.0)
_TO_90_PERCENT = 1.6449 / 1.2816
"""Ratio of the 95th to the 90th percentile of a standard normal distribution."""


def start_up_of(provider: str, start_ups: Mapping[str, StartUp]) -> Interval:
    """Return the median and the 90 % interval, log-normal on either side of the median.

    A cloud without measurements takes the median of the measured clouds, and their widest interval.
    """
    if not start_ups:
        return NO_START_UP
    measured = [start_ups[provider]] if provider in start_ups else list(start_ups.values())
    median_s = statistics.median(one.boot_script_median_s for one in measured)
    p10_s = min(one.boot_script_p10_s for one in measured)
    p90_s = max(one.boot_script_p90_s for one in measured)
    low_s, high_s = (median_s * math.pow(end_s / median_s, _TO_90_PERCENT) for end_s in (p10_s, p90_s))
    return Interval(mid=median_s, low=low_s, high=high_s)


def joint_ends(
    step_s: FloatArray, *, steps: FloatArray, start_up_s: FloatArray
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield step and start-up times at the low end of their total time, then at the high end.

    Both are (3, offers): the middle, the low and the high end. Their errors are independent, so the distances of the
    ends from the middle add in squares; each time moves by its share of that sum.
    """
    for end in (1, 2):
        computing_s = steps * (step_s[end] - step_s[0])
        starting_s = start_up_s[end] - start_up_s[0]
        together_s = np.hypot(computing_s, starting_s)
        safe_s = np.where(together_s > 0, together_s, 1.0)
        yield (
            step_s[0] + np.abs(computing_s) / safe_s * (step_s[end] - step_s[0]),
            start_up_s[0] + np.abs(starting_s) / safe_s * starting_s,
        )
