import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.calibrate import noise as module
from advisor.calibrate.noise import OthersLoad, children_cpu_s, noise_of, others_cpu_count, others_cpu_s
from advisor.records.calibration import Timings
from tests.calibrate.toys import EPYC, local, shipped, timed_by, timings


def quiet(*, iqr_ratio: float = 0.02) -> Timings:
    device = local(EPYC)
    return timings(timed_by(shipped(device), device, iqr_ratio=iqr_ratio))


def test_a_quiet_machine_is_not_warned_of() -> None:
    noise = noise_of(quiet(), spare_cpu_count=0, used_cpu_count=4)

    assert noise.warnings == ()
    # A normal's interquartile range is 1.349 standard deviations: 0.02 / 1.349
    assert noise.log_spread == pytest.approx(0.0148, abs=1e-4)


def test_blocks_that_lie_apart_are_said() -> None:
    noise = noise_of(quiet(iqr_ratio=0.2), spare_cpu_count=0, used_cpu_count=4)

    assert "vary by 20 %" in noise.warnings[0]
    assert noise.log_spread == pytest.approx(0.2 / 1.349)


def test_a_clock_that_falls_is_said() -> None:
    operators = quiet().operators
    halves = [
        replace(one, pace_ratio=1.0 if index < len(operators) / 2 else 1.5) for index, one in enumerate(operators)
    ]

    noise = noise_of(timings(halves), spare_cpu_count=0, used_cpu_count=4)

    assert len(halves) % 2 == 0
    assert "up to 50 % longer" in noise.warnings[0]
    # The logarithms of 1 and 1.5 lie 0.405 apart, so 0.203 from their mean.
    assert noise.log_spread == pytest.approx(np.hypot(0.2027, 0.0148), abs=1e-3)


def test_one_busy_core_of_others_is_said_and_widens() -> None:
    noise = noise_of(replace(quiet(), others_cpu_count=1.0), spare_cpu_count=0, used_cpu_count=4)

    assert "other processes kept 1.0 CPUs busy" in noise.warnings[0]
    # One of four CPUs: log(1.25) = 0.223
    assert noise.log_spread == pytest.approx(np.hypot(0.2231, 0.0148), abs=1e-3)
    assert not noise.is_too_much


def test_others_on_spare_cores_disturb_nobody() -> None:
    noise = noise_of(replace(quiet(), others_cpu_count=1.0), spare_cpu_count=4, used_cpu_count=4)

    assert noise.warnings == ()


def test_others_on_every_core_make_timings_worthless() -> None:
    noise = noise_of(replace(quiet(), others_cpu_count=4.0), spare_cpu_count=0, used_cpu_count=4)

    assert noise.is_too_much  # log(2) = 0.69


def test_the_time_of_others_is_all_that_was_busy_but_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    # user, nice, system, idle, iowait, irq, softirq, steal: all but idle and iowait are busy, 100 + 10 + 50 + 1 + 2 + 7
    stat.write_text("cpu  100 10 50 9000 800 1 2 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    monkeypatch.setattr(time, "process_time", lambda: 0.5)

    assert others_cpu_s(stat) == pytest.approx(170 / 100 - 0.5)


def test_without_proc_nothing_is_known_of_others(tmp_path: Path) -> None:
    assert others_cpu_s(tmp_path / "stat") == 0.0


def test_the_load_of_this_machine_can_be_read() -> None:
    assert 0 <= others_cpu_count() < 10_000


def test_what_others_do_on_cpus_that_are_not_ours_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    lines = [
        "cpu  1000 0 0 9 9 0 0 0 0 0",
        *(f"cpu{index} {ticks} 0 0 9 9 0 0 0 0 0" for index, ticks in enumerate((900, 30, 70))),
    ]
    stat.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    monkeypatch.setattr(time, "process_time", lambda: 0.5)

    assert others_cpu_s(stat, affinity={1, 2}) == pytest.approx(100 / 100 - 0.5)
    assert others_cpu_s(stat, affinity={1, 9}) == pytest.approx(1000 / 100 - 0.5)  # a kernel that hides some


BUSY_CHILD = """
import sys, time
while time.process_time() < 0.3:
    pass
print("done", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_the_time_of_children_counts_as_this_processs_own_while_they_run_and_afterwards() -> None:
    before_s = children_cpu_s()
    with subprocess.Popen(
        [sys.executable, "-c", BUSY_CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "done\n"
        running_s = children_cpu_s() - before_s
    ended_s = children_cpu_s() - before_s

    assert running_s > 0.25  # 0.3 s in ticks of 10 ms
    assert ended_s >= running_s - 0.05


def test_a_load_is_a_mean_over_three_tenths_of_a_second_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.001, 0.6])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    busy, children = iter([5.0, 5.01, 6.2]), iter([1.0, 1.0, 1.6])
    monkeypatch.setattr(module, "others_cpu_s", lambda: next(busy))
    monkeypatch.setattr(module, "children_cpu_s", lambda: next(children))

    load = OthersLoad()

    assert load.cpu_count() == pytest.approx(0.01 / 0.3)  # a tick of the kernel, after a millisecond
    assert load.cpu_count() == pytest.approx((1.2 - 0.6) / 0.6)
