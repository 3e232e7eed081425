"""The parent's side with small children of its own making, then one real child."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.calibrate import operator_process as process
from advisor.calibrate.operator_process import TimingRequest, time_operators
from advisor.errors import UsageError
from advisor.workload.file import workload_from_json
from tests.calibrate.fake_child import SCRIPT

PACE = {"product_s": 4e-4, "calls_s": 1e-4}
OPERATOR = {"name": "relu", "precision": "fp32", "batch": 1, "workload": {}, "step_s": 0.001, "iqr_ratio": 0.02}
SLOWED = {"product_s": 8e-4, "calls_s": 2e-4}


def answer(*names: str, slowed: str = "", **figures: Any) -> dict[str, Any]:
    """Some operators, all timed at the usual pace but the one that is `slowed`."""
    timed = [{"operator": OPERATOR | {"name": name}, "pace": SLOWED if name == slowed else PACE} for name in names]
    figures = {"planned_count": 3, "others_cpu_count": 0.5, "host_to_device_bytes_per_s": None} | figures
    return {"timed": timed, **figures}


def request(*, budget_s: float = 60.0, device: str = "cpu") -> TimingRequest:
    return TimingRequest(device=device, thread_count=1, precisions=("fp32",), budget_s=budget_s)


def child(monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Any], then: str = "time.sleep(1000)") -> None:
    """Start in the child's place one that gives these answers, then does something."""
    monkeypatch.setattr(process, "_CHILD", "tests.calibrate.fake_child")
    monkeypatch.setenv(SCRIPT, json.dumps({"answers": answers, "then": then}))


def test_what_the_child_answers_is_collected_until_all_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, answer("relu", "add"), answer("gelu", others_cpu_count=0.7))

    timings = time_operators(request())

    assert [operator.name for operator in timings.operators] == ["relu", "add", "gelu"]
    assert (timings.planned_count, timings.operators[0].step_s) == (3, 0.001)
    assert timings.others_cpu_count == 0.7
    assert timings.host_to_device_bytes_per_s is None


def test_an_operator_counts_as_at_the_usual_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, answer("relu", "add", "gelu", slowed="gelu"))

    usual, _, corrected = time_operators(request()).operators

    assert (usual.step_s, usual.pace_ratio) == (0.001, 1.0)
    # Where a product and calls take twice as long, an operator takes 2^0.6 x 2^0.2 as long.
    assert corrected.pace_ratio == pytest.approx(2**0.8)
    assert corrected.step_s == pytest.approx(0.001 / 2**0.8)


def test_a_gpus_operator_counts_as_it_was_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, answer("relu", "add", "gelu", slowed="gelu"))

    *_, last = time_operators(request(device="cuda:0")).operators

    assert (last.step_s, last.pace_ratio) == (0.001, pytest.approx(2**0.8))  # told, and part of the noise


def test_a_gpus_copies_come_with_its_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, answer("relu", "add", "gelu", host_to_device_bytes_per_s=2.5e10))

    assert time_operators(request()).host_to_device_bytes_per_s == 2.5e10


@pytest.mark.parametrize("then", ["os.kill(os.getpid(), 9)", "os._exit(3)", "sys.exit('boom')", "1 / 0"])
def test_a_child_that_dies_half_way_leaves_what_was_timed(monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    child(monkeypatch, answer("relu"), then=then)

    assert len(time_operators(request()).operators) == 1


def test_a_child_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_OVERTIME_S", 0.1)
    child(monkeypatch, answer("relu"))

    assert len(time_operators(request(budget_s=1.0)).operators) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a session of its own is not followed")
def test_what_a_child_starts_ends_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    daemon = (
        "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, file=open({!r}, 'w'))"
    )
    child(monkeypatch, answer("relu"), then=daemon.format(str(tmp_path / "pid")) + "; os._exit(0)")

    time_operators(request())

    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        ("raise UsageError('cuda:0 cannot be timed: torch 2.13 sees 0 CUDA devices')", "torch 2.13 sees 0"),
        ("raise RuntimeError('CUDA error: out of memory')", "RuntimeError: CUDA error: out of memory"),
        ("os._exit(3)", "advise calibrate ended the interpreter with exit code 3"),
    ],
)
def test_a_child_that_fails_at_once_is_quoted(monkeypatch: pytest.MonkeyPatch, then: str, reason: str) -> None:
    child(monkeypatch, then=then)

    with pytest.raises(UsageError, match=f"cuda:0 cannot be timed: .*{reason}"):
        time_operators(request(device="cuda:0"))


def test_too_little_time_for_one_operator_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_OVERTIME_S", 0.1)
    child(monkeypatch)

    with pytest.raises(UsageError, match=r"no operator .*\b0\.1 s") as caught:
        time_operators(request(budget_s=0.1))
    assert "--time-budget 10s" in caught.value.hint


def test_the_budget_to_try_next_is_three_times_the_one_that_failed() -> None:
    assert [process.longer(budget_s) for budget_s in (8.5, 10.0, 38.5)] == [
        "--time-budget 30s", "--time-budget 30s", "--time-budget 120s",
    ]  # fmt: skip


def test_an_interrupt_before_the_first_operator_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores interrupts
    child(monkeypatch, then=f"os.kill({os.getpid()}, 2); time.sleep(1000)")

    try:
        with pytest.raises(KeyboardInterrupt):
            time_operators(request())
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_real_child_times_real_operators_and_an_interrupt_keeps_them() -> None:
    timings = time_operators(request(), on_progress=interrupt_at(2))

    assert (2 <= len(timings.operators) < timings.planned_count, timings.is_interrupted) == (True, True)
    assert all(operator.step_s > 0 for operator in timings.operators)
    assert timings.planned_count > 20
    workload = workload_from_json(timings.operators[0].workload, where="here")
    assert {row.family for row in workload.rows} > {"conv", "norm", "matmul"}
    assert workload.unknown_ops == {}


def test_a_gpu_that_torch_does_not_see_is_said() -> None:
    with pytest.raises(UsageError, match=r"cuda:7 .*torch .*\b\d+ CUDA"):
        time_operators(request(device="cuda:7"))


def interrupt_at(wanted: int) -> Any:
    """Press Ctrl-C once so many operators are timed."""

    def on_progress(done: int, total: int) -> None:
        if done >= wanted:
            raise KeyboardInterrupt

    return on_progress
