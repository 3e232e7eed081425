"""Nothing in, how busy others keep this machine out."""

import os
import time
from pathlib import Path

_SAMPLE_S = 0.3


def others_cpu_s(stat: Path = Path("/proc/stat")) -> float:
    """CPU seconds that other processes and the hypervisor took since boot; a constant where /proc does not say."""
    if not stat.is_file():
        return 0.0
    # proc(5): ticks of user, nice, system, idle, iowait, irq, softirq, steal
    user, nice, system, _, _, *interrupts_and_steal = map(int, stat.read_text(encoding="ascii").split()[1:9])
    busy_ticks = user + nice + system + sum(interrupts_and_steal)
    return busy_ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def others_cpu_count() -> float:
    """How many CPUs other processes keep busy right now; the load average where /proc does not say."""
    if not Path("/proc/stat").is_file():
        return os.getloadavg()[0]
    begin_s, others_s = time.monotonic(), others_cpu_s()
    time.sleep(_SAMPLE_S)
    return max(0.0, (others_cpu_s() - others_s) / (time.monotonic() - begin_s))
