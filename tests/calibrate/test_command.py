"""`advise calibrate` from its arguments to its text, with a recorded timer in the place of the child."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.calibrate import store
from advisor.calibrate.operator_process import TimingRequest
from advisor.catalog.device_files import read_efficiencies
from advisor.cli.main import run
from advisor.records.calibration import Timings
from tests.calibrate.toys import EPYC, calibration, catalog, local, shipped, slower, timed_by, timings
from tests.says import assert_says


@pytest.fixture(autouse=True)
def requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[TimingRequest]:
    """A machine with an EPYC 7763 and an empty cache, on which all that is timed takes twice what is shipped."""
    asked: list[TimingRequest] = []
    known = catalog()

    def time_operators(request: TimingRequest, **_: Any) -> Timings:
        asked.append(request)
        return timings(timed_by(slower(shipped(local(EPYC)), 0.5), local(EPYC)))

    monkeypatch.setattr("advisor.calibrate.calibration_run.time_operators", time_operators)
    monkeypatch.setattr("advisor.question.from_source.load_catalog", lambda **_: known)
    monkeypatch.setattr("advisor.machine.this_machine.this_machine", lambda: EPYC)
    monkeypatch.setattr(store, "folder", lambda: tmp_path / "calibrations")
    return asked


def test_a_calibration_is_shown_with_what_each_timed_family_sustains(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "amd-epyc-7763 with 4 cores: calibrated just now"
    assert_says(lines[1], "10 of 10", "torch")
    shown = [line.split()[0] for line in lines if line.endswith(("  3", "  4"))]
    assert shown == ["matmul", "norm", "pointwise"]


def test_the_flags_are_those_of_the_timing(requests: list[TimingRequest]) -> None:
    assert run(["calibrate", "--on", "cpu", "--time-budget", "20s", "--precision", "fp32"]) == 0

    assert (requests[0].device, requests[0].thread_count, requests[0].precisions) == ("cpu", 4, ("fp32",))
    assert requests[0].budget_s == 18.5  # 1.5 s are left for the fit


def test_what_is_in_force_is_shown_without_timing(
    requests: list[TimingRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    store.keep(calibration())

    assert run(["calibrate", "--show"]) == 0

    assert requests == []
    assert capsys.readouterr().out.startswith("amd-epyc-7763 with 4 cores: calibrated ")


def test_without_a_calibration_there_is_nothing_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "--show"]) == 2

    assert_says(capsys.readouterr().err, "error:", "no calibration", "hint:", "`advise calibrate`")


def test_a_broken_file_is_named_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    store.keep(calibration())
    (store.folder() / "broken.yaml").write_text("{")

    assert run(["calibrate", "--show"]) == 0

    assert "broken.yaml" in capsys.readouterr().err


def test_an_export_is_a_profile_that_others_can_use(tmp_path: Path) -> None:
    kept = calibration()
    store.keep(kept)
    file = tmp_path / "here.yaml"

    assert run(["calibrate", "--show", "--export", str(file)]) == 0

    assert tuple(read_efficiencies([file])) == kept.efficiencies


def test_what_was_disturbed_too_much_is_not_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def disturbed(request: TimingRequest, **_: Any) -> Timings:
        return timings(timed_by(shipped(local(EPYC)), local(EPYC)), others_cpu_count=4.0)

    monkeypatch.setattr("advisor.calibrate.calibration_run.time_operators", disturbed)
    file = tmp_path / "here.yaml"

    assert run(["calibrate", "--export", str(file)]) == 2

    assert "no measurement was stable enough" in capsys.readouterr().err
    assert not file.exists()


def test_what_is_not_kept_is_not_shown_as_if_it_were(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def disturbed(request: TimingRequest, **_: Any) -> Timings:
        return timings(timed_by(shipped(local(EPYC)), local(EPYC)), others_cpu_count=4.0)

    monkeypatch.setattr("advisor.calibrate.calibration_run.time_operators", disturbed)

    assert run(["calibrate"]) == 3

    out, err = capsys.readouterr()
    assert out.strip() == ""
    assert "when the machine is quiet" in err


def test_a_calibration_of_other_conditions_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    kept = calibration()
    store.keep(replace(kept, key=replace(kept.key, torch="1.0")))

    assert run(["calibrate", "--show"]) == 2

    assert "no calibration is in force" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--on", "cuda:0"], "error: --on cuda:0: this machine has no such device\nhint: found: cpu\n"),
        (["--time-budget", "1"], "error: --time-budget: 1 s is too short to time anything\n"),
        (["--time-budget", "soon"], "error: --time-budget: 'soon' is not a duration\n"),
        (["--threads", "9"], "error: --threads 9: this process may use only 4 cores, with one thread each\n"),
        (["--show", "--on", "cuda:7"], "error: --on cuda:7: this machine has no such device\nhint: found: cpu\n"),
        (["--show", "--threads", "1"], "error: --show and --threads cannot be used together\n"),
        (["--show", "--precision", "fp32"], "error: --show and --precision cannot be used together\n"),
        (["--collect", "fleet", "--show"], "error: --collect and --show cannot be used together\n"),
        (
            ["--export", "no/such/folder/x.yaml"],
            "error: --export no/such/folder/x.yaml: folder no/such/folder does not exist",
        ),
    ],
)
def test_bad_input_is_said_before_anything_is_timed(
    arguments: list[str], error: str, requests: list[TimingRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["calibrate", *arguments]) == 2

    assert capsys.readouterr().err.startswith(error)
    assert requests == []


def test_where_no_device_can_be_timed_the_error_says_why_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "--precision", "fp16"]) == 2

    error = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("error: "))
    assert "--precision fp16" in error
