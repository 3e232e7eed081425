"""`advise validate` from a table of measurements to its score, through the real command line and real traces."""

import csv
import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import platformdirs
import pytest

from advisor.answers import validation
from advisor.answers.validation import has_half_attention, known_of
from advisor.catalog.overlay import load_catalog
from advisor.cli.main import run
from advisor.devices.named_device import named_device
from advisor.errors import ExitCode
from advisor.question.from_source import profile_source
from advisor.records.device import Efficiency
from advisor.records.options import Options
from advisor.workload.file import workload_to_json
from tests.machines import machine
from tests.says import assert_says

COLUMNS = (
    "model",
    "mode",
    "precision",
    "layout",
    "compile",
    "attention",
    "batch",
    "input",
    "device",
    "step_s",
    "source",
)
ROW: Mapping[str, str] = {
    "model": "net.py",
    "mode": "inference",
    "precision": "fp32",
    "batch": "8",
    "device": "t4",
    "step_s": "0.001",
    "source": "by hand",
}
NET = """
    import torch
    from torch import nn

    def get_model():
        return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 16))

    def example_inputs(batch=4):
        return torch.zeros(batch, 64)
"""
FIXED = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 64)

        def forward(self, x):
            x = self.layer(x)
            return x if len(x) < 20 else self.layer(x)

    def example_inputs(batch=16):
        return torch.zeros(batch, 64)
"""

Validate = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def folder(tmp_path: Path, filled_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the measurements, which is not the current one."""
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: filled_cache / name)
    folder = tmp_path / "measured"
    folder.mkdir()
    (folder / "net.py").write_text(dedent(NET))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return folder


@pytest.fixture
def validate(folder: Path, capsys: pytest.CaptureFixture[str]) -> Validate:
    def call(rows: list[Mapping[str, Any]], *flags: str) -> tuple[int, dict[str, Any]]:
        write(folder / "mine.csv", rows)
        code = run(["validate", "--measurements", str(folder / "mine.csv"), "-o", "json", "--rows", *flags])
        out, err = capsys.readouterr()
        assert err == ""
        return code, json.loads(out)

    return call


def write(file: Path, rows: list[Mapping[str, Any]]) -> None:
    with file.open("w", newline="") as stream:
        table = csv.DictWriter(stream, COLUMNS)
        table.writeheader()
        table.writerows([ROW | row for row in rows])


def test_measurements_that_equal_the_predictions_score_no_error(validate: Validate) -> None:
    rows: list[Mapping[str, Any]] = [
        {"mode": mode, "device": device, "batch": batch}
        for mode in ("inference", "forward_backward", "training")
        for device in ("t4", "Tesla V100-SXM2-16GB", "aws-graviton3", "aws-graviton3@4")
        for batch in (8, 64, 512)
    ]
    _, first = validate(rows)
    assert (first["overall"]["n"], first["failed"]) == (36, [])
    truths = [row | {"step_s": found["predicted_s"]} for row, found in zip(rows, first["rows"], strict=True)]
    code, document = validate(truths, "--max-mape", "0.001")
    assert code == ExitCode.ANSWER
    overall = document["overall"]
    assert (overall["mape"], overall["coverage_90"], overall["kendall"]) == (0.0, 1.0, 1.0)
    assert overall["bias"] == pytest.approx(0.0)
    assert (overall["kendall_devices"], overall["cheapest_right_ratio"]) == (1.0, 1.0)
    by_device = {group["by"]["device"]: group["n"] for group in document["groups"] if "device" in group["by"]}
    assert by_device == {"t4": 9, "v100-sxm2-16gb": 9, "aws-graviton3": 9, "aws-graviton3@4": 9}


def test_cpu_is_that_of_this_machine_and_an_absent_gpu_fails_alone(
    validate: Validate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "this_machine", machine)
    _, document = validate([{"device": name} for name in ("cpu", "amd-epyc-7763@8", "cuda:0")])
    here, named = document["rows"]
    assert (here["device"], named["device"]) == ("amd-epyc-7763", "amd-epyc-7763@8")
    assert here["predicted_s"] == pytest.approx(named["predicted_s"], rel=0.2)  # shares of caches and bandwidth differ
    assert [row["device"] for row in document["failed"]] == ["cuda:0"]


def test_an_optimizer_takes_time_that_forward_and_backward_do_not(validate: Validate) -> None:
    modes = ("inference", "forward_backward", "training")
    _, document = validate([{"mode": mode} for mode in modes])
    times_s = [row["predicted_s"] for row in document["rows"]]
    assert times_s[0] < times_s[1] < times_s[2]


def test_what_cannot_be_predicted_is_listed_and_counts_as_100_percent(validate: Validate, folder: Path) -> None:
    (folder / "broken.py").write_text("import os; os.abort()")
    rows: list[Mapping[str, Any]] = [
        {},
        {"model": "broken.py"},
        {"model": "missing.py"},
        {"device": "gtx-9999"},
        {"device": "t4@4"},
        {"device": "aws-graviton2", "precision": "bf16"},  # it multiplies no halves
    ]
    code, document = validate(rows, "--max-mape", "50%")
    assert code == ExitCode.THRESHOLD  # five of six rows are off by 100 %
    assert document["overall"]["failed_count"] == 5
    reasons = {row["line"]: row["reason"] for row in document["failed"]}
    assert_says(reasons[3], "broken.py", "SIGABRT")
    assert_says(reasons[4], "missing.py")
    assert_says(reasons[5], "'gtx-9999'")
    assert_says(reasons[6], "t4@4", "@N", "cores", "CPU")
    assert_says(reasons[7], "aws-graviton2", "bf16")


def test_a_saved_workload_that_cannot_be_evaluated_fails_alone(validate: Validate, folder: Path) -> None:
    document = workload_to_json(profile_source(str(folder / "net.py"), Options()).workload)
    (folder / "good.json").write_text(json.dumps(document))
    (folder / "bad.json").write_text(json.dumps(document).replace('"aten.addmm"', '"aten.convolution"'))

    _, found = validate([{"model": "good.json"}, {"model": "bad.json"}])

    assert len(found["rows"]) == 1
    assert [row["line"] for row in found["failed"]] == [3]


def test_a_second_run_traces_nothing(validate: Validate, monkeypatch: pytest.MonkeyPatch) -> None:
    first = validate([{}])
    monkeypatch.delattr(subprocess, "Popen")
    assert validate([{}]) == first


def test_a_step_that_is_no_line_in_the_batch_is_traced_at_the_measured_batch(validate: Validate, folder: Path) -> None:
    (folder / "fixed.py").write_text(dedent(FIXED))
    _, document = validate([{"model": "fixed.py", "batch": batch} for batch in (8, 16, 32)])
    # Twice the samples are twice the FLOP, and from 20 samples on the layer runs twice.
    flops = [row["flops"] for row in document["rows"]]
    assert flops[1] == pytest.approx(2 * flops[0])
    assert flops[2] == pytest.approx(2 * 2 * flops[1])


def test_a_saved_workload_is_a_model_of_its_own_mode(validate: Validate, folder: Path) -> None:
    workload = profile_source(str(folder / "net.py"), Options()).workload
    (folder / "net.json").write_text(json.dumps(workload_to_json(workload)))
    _, document = validate([{}, {"model": "net.json"}, {"model": "net.json", "mode": "training"}])
    live, saved = document["rows"]
    assert saved["predicted_s"] == live["predicted_s"]
    assert_says(document["failed"][0]["reason"], "net.json", "inference", "training")


def test_what_was_known_of_a_device_follows_from_the_devices_of_its_fit() -> None:
    catalog = load_catalog()
    ampere = next(one for one in catalog.efficiencies if (one.generation, one.precision) == ("Ampere", "fp32"))
    general = replace(ampere, generation="*", vendor="*", fitted_vendors=("NVIDIA",), fitted_on=("rtx-3090", "renamed"))
    own = replace(general, device="mi100")

    def known(name: str, *efficiencies: Efficiency) -> str:
        device = named_device(name, catalog)[1]
        return known_of(device, "fp32", replace(catalog, efficiencies=efficiencies))

    names = ("rtx-3090", "a10g", "t4", "mi100")
    assert [known(name, general) for name in names] == ["device", "generation", "vendor", "other-vendor"]
    assert known("mi100", general, own) == "calibrated"
    # A fit of the generation alone, whatever its devices are called today.
    assert known("a10g", replace(ampere, fitted_on=("renamed",))) == "generation"
    parts = replace(general, kind="cpu", fitted_on=("amd-epyc-9r45@2",))
    assert known("amd-epyc-9r45@8", parts) == "device"


def test_the_answer_is_also_a_drawing_and_a_page(validate: Validate, folder: Path) -> None:
    validate([{}, {"batch": 64}])
    for suffix, start in (("svg", "<svg "), ("html", "<!doctype html>")):
        file = folder / f"accuracy.{suffix}"
        assert run(["validate", "--measurements", str(folder / "mine.csv"), "-o", str(file)]) == ExitCode.ANSWER
        assert file.read_text().startswith(start)
    write(folder / "mine.csv", [{"device": "gtx-9999"}])
    assert run(["validate", "--measurements", str(folder / "mine.csv"), "-o", "svg"]) == ExitCode.USAGE
    assert run(["validate", "--measurements", str(folder / "mine.csv"), "-o", "x.png"]) == ExitCode.USAGE


def test_several_files_are_one_table(validate: Validate, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder / "mine.csv", [{}, {"batch": 16}])
    write(folder / "yours.csv", [{"batch": 32}])
    files = [flag for name in ("mine", "yours") for flag in ("--measurements", str(folder / f"{name}.csv"))]
    assert run(["validate", *files]) == ExitCode.ANSWER
    assert_says(capsys.readouterr().out, "3 measured steps", "0")


def test_a_wrong_file_or_bound_is_a_usage_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder / "mine.csv", [{"batch": "many"}])
    assert run(["validate", "--measurements", str(folder / "mine.csv")]) == ExitCode.USAGE
    assert_says(capsys.readouterr().err, "error:", f"{folder}/mine.csv:2: batch:", "'many'")
    assert run(["validate", "--measurements", str(folder / "mine.csv"), "--max-mape", "few"]) == ExitCode.USAGE
    assert_says(capsys.readouterr().err, "error:", "--max-mape:", "'few'", "hint:", "0.1")
    assert run(["validate"]) == ExitCode.USAGE


@pytest.mark.parametrize(("release", "expected"), [("1.12", True), ("2.4", True), ("2.5", False), ("", False)])
def test_attention_stayed_in_half_until_torch_2_4(release: str, expected: bool) -> None:
    assert has_half_attention(release) is expected
