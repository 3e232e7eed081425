"""The parent's side with small children of its own making, then one real child."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.calibrate import process
from advisor.calibrate.process import TimingRequest, time_operators
from advisor.errors import UsageError
from advisor.workload import supervisor
from advisor.workload.file import workload_from_json

PLANNED = {"planned_count": 3}
OPERATOR = {
    "name": "relu",
    "precision": "fp32",
    "batch": 1,
    "workload": {},
    "step_s": 0.001,
    "iqr_ratio": 0.02,
    "product_s": 4e-4,
    "calls_s": 1e-4,
    "others_cpu_count": 0.5,
}


def request(*, budget_s: float = 60.0, device: str = "cpu") -> TimingRequest:
    return TimingRequest(device=device, thread_count=1, precisions=("fp32",), budget_s=budget_s)


def child(monkeypatch: pytest.MonkeyPatch, *lines: dict[str, Any], then: str = "") -> None:
    """Start this in the child's place: it says the lines, then does something."""
    said = "".join(json.dumps(line) + "\n" for line in lines)
    worker = f"import os, sys, time; sys.stdout.write({said!r}); sys.stdout.flush(); {then}"
    start, _, _ = supervisor._START.partition("from {module}")
    monkeypatch.setattr(supervisor, "_START", start + worker.replace("{", "{{").replace("}", "}}"))


def test_what_the_child_says_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, PLANNED, OPERATOR, OPERATOR)

    timings = time_operators(request())

    assert (len(timings.operators), timings.planned_count) == (2, 3)
    assert (timings.operators[0].name, timings.operators[0].step_s) == ("relu", 0.001)
    assert timings.others_cpu_count == 0.5
    assert timings.host_to_device_bytes_per_s is None


def test_an_operator_counts_as_at_the_usual_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    slowed = OPERATOR | {"name": "gelu", "product_s": 8e-4, "calls_s": 2e-4}
    child(monkeypatch, PLANNED, OPERATOR, OPERATOR | {"name": "add"}, slowed)

    usual, _, corrected = time_operators(request()).operators

    assert (usual.step_s, usual.pace_ratio) == (0.001, 1.0)
    # Where a product and calls take twice as long, an operator takes 2^0.6 x 2^0.2 as long.
    assert corrected.pace_ratio == pytest.approx(2**0.8)
    assert corrected.step_s == pytest.approx(0.001 / 2**0.8)


def test_a_gpus_operator_counts_as_it_was_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    slowed = OPERATOR | {"name": "gelu", "product_s": 8e-4, "calls_s": 2e-4}
    child(monkeypatch, PLANNED, OPERATOR, OPERATOR | {"name": "add"}, slowed)

    *_, last = time_operators(request(device="cuda:0")).operators

    assert (last.step_s, last.pace_ratio) == (0.001, pytest.approx(2**0.8))  # told, and part of the noise


def test_a_gpus_copies_come_before_its_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, PLANNED, {"host_to_device_bytes_per_s": 2.5e10}, OPERATOR)

    timings = time_operators(request())

    assert (timings.host_to_device_bytes_per_s, len(timings.operators)) == (2.5e10, 1)


@pytest.mark.parametrize("then", ["os.kill(os.getpid(), 9)", "sys.exit('boom')"])
def test_a_child_that_dies_half_way_leaves_what_was_timed(monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    child(monkeypatch, PLANNED, OPERATOR, then=then)

    assert len(time_operators(request()).operators) == 1


def test_a_child_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_OVERTIME_S", 0.1)
    child(monkeypatch, PLANNED, OPERATOR, then="time.sleep(1000)")

    assert len(time_operators(request(budget_s=1.0)).operators) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a session of its own is not followed")
def test_what_a_child_starts_ends_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    daemon = (
        "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, file=open({!r}, 'w'))"
    )
    child(monkeypatch, PLANNED, OPERATOR, then=daemon.format(str(tmp_path / "pid")))

    time_operators(request())

    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_child_that_dies_at_once_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, then="sys.exit('torch 2.13 sees 0 CUDA devices')")

    with pytest.raises(UsageError, match=r"cuda:0 cannot be timed: torch 2\.13 sees 0 CUDA devices"):
        time_operators(request(device="cuda:0"))


def test_too_little_time_for_one_operator_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_OVERTIME_S", 0.1)
    child(monkeypatch, then="time.sleep(1000)")

    with pytest.raises(UsageError, match=r"no operator could be timed in 0.1 s"):
        time_operators(request(budget_s=0.1))


def test_an_interrupt_before_the_first_operator_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, PLANNED, then="time.sleep(1000)")

    with pytest.raises(KeyboardInterrupt):
        time_operators(request(), on_progress=interrupt_at(0))


def test_a_real_child_times_real_operators_and_an_interrupt_keeps_them() -> None:
    timings = time_operators(request(), on_progress=interrupt_at(2))

    assert (len(timings.operators), timings.is_interrupted) == (2, True)
    assert all(operator.step_s > 0 for operator in timings.operators)
    assert timings.planned_count > 20
    workload = workload_from_json(timings.operators[0].workload, where="here")
    assert {row.family for row in workload.rows} > {"conv", "norm", "matmul"}
    assert workload.unknown_ops == {}


def test_a_gpu_that_torch_does_not_see_is_said() -> None:
    with pytest.raises(UsageError, match=r"cuda:7 cannot be timed: torch .* sees \d+ CUDA devices"):
        time_operators(request(device="cuda:7"))


def interrupt_at(wanted: int) -> Any:
    """Press Ctrl-C once so many operators are timed."""

    def on_progress(done: int, total: int) -> None:
        if done == wanted:
            raise KeyboardInterrupt

    return on_progress
