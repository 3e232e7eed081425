"""Nothing in, how busy others keep the CPUs that this process may use out."""

import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from advisor.records.machine import LocalDevice, Machine

_SAMPLE_S = 0.3


def spare_cpu_count(machine: Machine | LocalDevice, *, used_cpu_count: float) -> float:
    """How many hardware threads of this process's mask are left to others by work on `used_cpu_count` of them."""
    return (machine.affinity_count or machine.thread_count) - used_cpu_count


def others_cpu_s(stat: Path = Path("/proc/stat"), *, affinity: Collection[int] | None = None) -> float:
    """CPU seconds that other processes and the hypervisor took since boot, of the CPUs in `affinity` (default: this
    process's mask); a constant where /proc does not say.

    /proc/stat is of the whole host, inside a container too: what others do on CPUs that are not ours disturbs nothing.
    """
    if not stat.is_file():
        return 0.0
    lines = [line.split() for line in stat.read_text(encoding="ascii").splitlines()]
    ticks_of = {line[0]: _busy_ticks(line) for line in lines if line and line[0].startswith("cpu")}
    named = {f"cpu{index}" for index in (os.sched_getaffinity(0) if affinity is None else affinity)}
    busy_ticks = sum(ticks_of[name] for name in named) if named <= set(ticks_of) else ticks_of["cpu"]
    return busy_ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def _busy_ticks(line: Sequence[str]) -> int:
    """proc(5): "cpu0", then ticks of user, nice, system, idle, iowait, irq, softirq, steal, ..."""
    user, nice, system, _, _, *interrupts_and_steal = map(int, line[1:9])
    return user + nice + system + sum(interrupts_and_steal)


def others_cpu_count() -> float:
    """How many CPUs other processes keep busy right now; the load average where /proc does not say."""
    if not Path("/proc/stat").is_file():
        return os.getloadavg()[0]
    begin_s, others_s = time.monotonic(), others_cpu_s()
    time.sleep(_SAMPLE_S)
    return max(0.0, (others_cpu_s() - others_s) / (time.monotonic() - begin_s))
