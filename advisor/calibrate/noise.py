"""Timings in, what disturbed them out: in words with the remedy, and as a spread."""

from dataclasses import dataclass

import numpy as np

from advisor.records.calibration import Timings

WIDE_IQR_RATIO = 0.10
"""Blocks of a quiet machine agree to 2 to 4 % at the median over operators."""
_PACE_LOG_SPREAD = 0.05
"""Of the pace from one operator to the next: 0.06 to 0.11 where others use the second threads of the cores."""
TAKEN_CPU_COUNT = 0.3
"""Of others' processes on the CPUs that the operators need: more than what a desktop does beside."""
_MOST_LOG_SPREAD = 0.3
"""What the shipped efficiencies are off by on a CPU that nobody has measured (`device_log_spread`)."""
_IQR_PER_SIGMA = 1.349
"""Of a normal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """`log_spread` is one standard deviation of the logarithm of the timings, taken as a whole."""

    warnings: tuple[str, ...]
    log_spread: float

    @property
    def is_too_much(self) -> bool:
        """Whether the datasheet says as much of the device as these timings."""
        return self.log_spread > _MOST_LOG_SPREAD


def noise_of(timings: Timings, *, spare_cpu_count: float, used_cpu_count: float) -> Noise:
    """What the blocks, the machine's pace at every operator and the load of others say.

    `used_cpu_count` is how many CPUs the timed operators may use, `spare_cpu_count` how many are left to others.
    """
    iqr_ratio = float(np.median([one.iqr_ratio for one in timings.operators]))
    paces = np.array([one.pace_ratio for one in timings.operators])
    taken_cpu_count = max(0.0, timings.others_cpu_count - spare_cpu_count)
    warnings = []
    if iqr_ratio > WIDE_IQR_RATIO:
        warnings.append(f"timings of the same operator lie {iqr_ratio:.0%} apart: end other programs, calibrate again")
    pace_log_spread = float(np.std(np.log(paces)))
    if pace_log_spread > _PACE_LOG_SPREAD:
        warnings.append(
            f"the same work took up to {paces.max() / paces.min() - 1:.0%} longer than at its best: the clock is "
            "throttled or others compute; let the machine cool down, end other programs, calibrate again"
        )
    if taken_cpu_count > TAKEN_CPU_COUNT:
        warnings.append(f"other processes kept {timings.others_cpu_count:.1f} CPUs busy: end them and calibrate again")
    parts = (iqr_ratio / _IQR_PER_SIGMA, pace_log_spread, np.log1p(taken_cpu_count / used_cpu_count))
    return Noise(warnings=tuple(warnings), log_spread=float(np.linalg.norm(parts)))
