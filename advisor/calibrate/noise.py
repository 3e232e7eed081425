"""Estimates how much other processes and throttling disturbed timings, and warns about it."""

from dataclasses import dataclass

import numpy as np

from advisor.records.calibration import Timings

WIDE_IQR_RATIO = 0.10
"""Interquartile range above which timings are noisy; on a quiet machine its median over operators is 2 to 4 %."""
_PACE_LOG_SPREAD = 0.05
"""Spread of the pace between operators above which a warning is given. It is 0.06 to 0.11 if other processes use the
second hardware threads of the cores."""
TAKEN_CPU_COUNT = 0.3
"""CPUs taken by other processes, of those that the operators need, above which a warning is given: more than a
desktop's background load."""
_MOST_LOG_SPREAD = 0.3
"""Spread of the shipped efficiencies on an unmeasured CPU (`device_log_spread`)."""
_IQR_PER_SIGMA = 1.349
"""Interquartile range of a normal distribution, in standard deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The noise of a calibration's timings."""

    warnings: tuple[str, ...]
    log_spread: float
    """One standard deviation of the logarithm of the timings, from all causes."""

    @property
    def is_too_much(self) -> bool:
        """Return whether the datasheet is as accurate as these timings."""
        return self.log_spread > _MOST_LOG_SPREAD


def noise_of(timings: Timings, *, spare_cpu_count: float, used_cpu_count: float) -> Noise:
    """Estimate the noise from the timed blocks, the pace at every operator and the load of other processes.

    `used_cpu_count` is how many CPUs the timed operators may use, `spare_cpu_count` how many are left to others.
    """
    iqr_ratio = float(np.median([one.iqr_ratio for one in timings.operators]))
    paces = np.array([one.pace_ratio for one in timings.operators])
    taken_cpu_count = max(0.0, timings.others_cpu_count - spare_cpu_count)
    warnings = []
    if iqr_ratio > WIDE_IQR_RATIO:
        warnings.append(
            f"timings of the same operator vary by {iqr_ratio:.0%}: close other programs and calibrate again"
        )
    pace_log_spread = float(np.std(np.log(paces)))
    if pace_log_spread > _PACE_LOG_SPREAD:
        warnings.append(
            f"the same work took up to {paces.max() / paces.min() - 1:.0%} longer than the fastest run: the clock is "
            "throttled, or other processes are busy; let the machine cool down, close other programs, calibrate again"
        )
    if taken_cpu_count > TAKEN_CPU_COUNT:
        warnings.append(
            f"other processes kept {timings.others_cpu_count:.1f} CPUs busy: close them and calibrate again"
        )
    parts = (iqr_ratio / _IQR_PER_SIGMA, pace_log_spread, np.log1p(taken_cpu_count / used_cpu_count))
    return Noise(warnings=tuple(warnings), log_spread=float(np.linalg.norm(parts)))
