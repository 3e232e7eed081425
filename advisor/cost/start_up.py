"""Predicts the start-up time of a machine, and its effect on the interval of the job's time."""

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from advisor.records.answer import Interval
from advisor.records.billing import Billing
from advisor.records.prediction import FloatArray

_TO_90_PERCENT = 1.6449 / 1.2816
"""Ratio of the 95th to the 90th percentile of a standard normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUpTimes:
    """The time from the create call to the first step; `software_s` and `weights_s` are parts of its middle."""

    total_s: Interval
    software_s: float
    weights_s: float


NO_START_UP = StartUpTimes(total_s=Interval(mid=0.0, low=0.0, high=0.0), software_s=0.0, weights_s=0.0)


def start_up_of(provider: str, billing: Billing, *, is_gpu: bool, weight_bytes: float) -> StartUpTimes:
    """Return the median and the 90 % interval of booting, installing the software and reading the weights.

    Booting is log-normal on either side of its median; only medians of the other parts are published, so the
    interval of booting is stretched to the whole. A cloud without measurements takes the median of the measured
    clouds, and their widest interval.
    """
    start_ups = billing.start_ups
    if not start_ups:
        return NO_START_UP
    measured = [start_ups[provider]] if provider in start_ups else list(start_ups.values())
    boot_s = statistics.median(one.boot_script_median_s for one in measured)
    software_s = billing.extras.software_s
    if software_s is None:
        software_s = statistics.median(one.container_running_median_s - one.boot_script_median_s for one in measured)
        packages = billing.extra_costs.gpu_packages
        if is_gpu and packages is not None:
            software_s += packages.download_bytes / packages.pull_bytes_per_s
    rates = {name: disk.read_bytes_per_s for name, disk in billing.extra_costs.disks.items() if disk.read_bytes_per_s}
    weights_s = 0.0
    if rates:
        weights_s = weight_bytes / (rates.get(provider) or statistics.median(rates.values()))
    total_s = boot_s + software_s + weights_s
    p10_s = min(one.boot_script_p10_s for one in measured)
    p90_s = max(one.boot_script_p90_s for one in measured)
    low_s, high_s = (total_s * math.pow(end_s / boot_s, _TO_90_PERCENT) for end_s in (p10_s, p90_s))
    return StartUpTimes(
        total_s=Interval(mid=total_s, low=low_s, high=high_s), software_s=software_s, weights_s=weights_s
    )


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
