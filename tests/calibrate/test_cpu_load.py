import os
import time
from pathlib import Path

import pytest

from advisor.calibrate.cpu_load import others_cpu_count, others_cpu_s


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
