"""Measures how busy other processes keep the CPUs, and how much they and throttling disturbed timings."""

import os
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advisor import units
from advisor.records.calibration import Timings
from advisor.records.machine import LocalDevice, Machine

WIDE_IQR_RATIO = 0.10
"""Interquartile range above which timings are noisy; on a quiet machine its median over operators is 2 to 4 %."""
_PACE_LOG_SPREAD = 0.05
"""Spread of the pace between operators above which a warning is given. It is 0.06 to 0.11 if other processes use the
second hardware threads of the cores."""
TAKEN_CPU_COUNT = 0.3
"""CPUs taken by other processes, of those that the operators need, above which a warning is given: more than a
desktop's background load."""
_MOST_LOG_SPREAD = 0.3
"""Noise of a calibration that is not kept: 90 % of the steps would lie within a factor of 2.1 of their prediction."""
_IQR_PER_SIGMA = 1.349
"""Interquartile range of a normal distribution, in standard deviations."""
_SAMPLE_S = 0.3
"""The kernel counts ticks of 10 ms, 3 % of this time."""


def spare_cpu_count(machine: Machine | LocalDevice, *, used_cpu_count: float) -> float:
    """Return how many hardware threads of this process's affinity mask stay free if it uses `used_cpu_count`."""
    return (machine.affinity_count or machine.thread_count) - used_cpu_count


def others_cpu_s(stat: Path = Path("/proc/stat"), *, affinity: Collection[int] | None = None) -> float:
    """Return the CPU seconds that other processes and the hypervisor took since boot; a constant without /proc/stat.

    Only the CPUs in `affinity` count (default: this process's mask). /proc/stat covers the whole host, even inside a
    container, and load on other CPUs does not matter.
    """
    if not stat.is_file():
        return 0.0
    lines = [line.split() for line in stat.read_text(encoding="ascii").splitlines()]
    # Lines are "cpu0 user nice system idle iowait irq softirq steal ..." (proc(5)).
    busy = {line[0]: [*line[1:4], *line[6:9]] for line in lines if line and line[0].startswith("cpu")}
    ticks_of = {name: sum(map(int, ticks)) for name, ticks in busy.items()}
    named = {f"cpu{index}" for index in (os.sched_getaffinity(0) if affinity is None else affinity)}
    busy_ticks = sum(ticks_of[name] for name in named) if named <= set(ticks_of) else ticks_of["cpu"]
    return busy_ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def children_cpu_s() -> float:
    """Return the CPU seconds that this process's children used, such as a data loader's workers."""
    ended, ticks = os.times(), 0
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread, or a child, has ended
            for child in listed.read_text(encoding="ascii").split():
                # After the command's name: "state ppid ... utime stime cutime cstime ..." (proc(5)).
                fields = Path(f"/proc/{child}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
                ticks += sum(map(int, fields.split()[11:15]))
    return ended.children_user + ended.children_system + ticks / os.sysconf("SC_CLK_TCK")


class OthersLoad:
    """Measures how many CPUs other processes, except this one's children, keep busy from now on."""

    def __init__(self) -> None:
        self._begin_s, self._others_begin_s = time.monotonic(), others_cpu_s() - children_cpu_s()

    def cpu_count(self) -> float:
        """Return the mean number of CPUs since the start; a shorter time than 0.3 s counts as 0.3 s."""
        passed_s = max(time.monotonic() - self._begin_s, _SAMPLE_S)
        return max(0.0, (others_cpu_s() - children_cpu_s() - self._others_begin_s) / passed_s)


def others_cpu_count() -> float:
    """Return how many CPUs other processes keep busy right now; the load average without /proc/stat."""
    if not Path("/proc/stat").is_file():
        return os.getloadavg()[0]
    load = OthersLoad()
    time.sleep(_SAMPLE_S)
    return load.cpu_count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The noise of a calibration's timings."""

    warnings: tuple[str, ...]
    log_spread: float
    """One standard deviation of the logarithm of the timings, from all causes."""

    @property
    def is_too_much(self) -> bool:
        """Return whether these timings say too little about the machine to be kept."""
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
            f"timings of the same operator vary by {units.format_ratio(iqr_ratio)}: close other programs and calibrate "
            "again"
        )
    pace_log_spread = float(np.std(np.log(paces)))
    if pace_log_spread > _PACE_LOG_SPREAD:
        longer = units.format_ratio(float(paces.max() / paces.min() - 1))
        warnings.append(
            f"the same work took up to {longer} longer than the fastest run: the clock is "
            "throttled, or other processes are busy; let the machine cool down, close other programs, calibrate again"
        )
    if taken_cpu_count > TAKEN_CPU_COUNT:
        warnings.append(
            f"other processes kept {timings.others_cpu_count:.1f} CPUs busy: close them and calibrate again"
        )
    parts = (iqr_ratio / _IQR_PER_SIGMA, pace_log_spread, np.log1p(taken_cpu_count / used_cpu_count))
    return Noise(warnings=tuple(warnings), log_spread=float(np.linalg.norm(parts)))
