"""Measures how busy other processes keep the CPUs that this process may use."""

import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from advisor.records.machine import LocalDevice, Machine

_SAMPLE_S = 0.3


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
    ticks_of = {line[0]: _busy_ticks(line) for line in lines if line and line[0].startswith("cpu")}
    named = {f"cpu{index}" for index in (os.sched_getaffinity(0) if affinity is None else affinity)}
    busy_ticks = sum(ticks_of[name] for name in named) if named <= set(ticks_of) else ticks_of["cpu"]
    return busy_ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def _busy_ticks(line: Sequence[str]) -> int:
    """Return the busy ticks of a line "cpu0 user nice system idle iowait irq softirq steal ..." (proc(5))."""
    user, nice, system, _, _, *interrupts_and_steal = map(int, line[1:9])
    return user + nice + system + sum(interrupts_and_steal)


class OthersLoad:
    """Measures how many CPUs other processes keep busy from now on."""

    def __init__(self) -> None:
        self._begin_s, self._others_begin_s = time.monotonic(), others_cpu_s()

    def cpu_count(self) -> float:
        """Return the mean number of CPUs since the start."""
        passed_s = max(time.monotonic() - self._begin_s, 1e-3)
        return max(0.0, (others_cpu_s() - self._others_begin_s) / passed_s)


def others_cpu_count() -> float:
    """Return how many CPUs other processes keep busy right now; the load average without /proc/stat."""
    if not Path("/proc/stat").is_file():
        return os.getloadavg()[0]
    load = OthersLoad()
    time.sleep(_SAMPLE_S)
    return load.cpu_count()
