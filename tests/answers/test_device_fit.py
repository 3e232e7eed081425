"""`advise fit-device` from a table of measurements to a profile that predicts them, through the real command line."""

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import platformdirs
import pytest

from advisor.answers.device_fit import fit_device
from advisor.catalog.device_files import read_cpus, read_gpus
from advisor.catalog.overlay import load_catalog
from advisor.catalog.yaml_text import device_yaml
from advisor.cli.main import run
from advisor.errors import ExitCode
from advisor.records.device import Gpu
from advisor.records.options import Options
from tests.says import assert_says

ROW: Mapping[str, Any] = {
    "mode": "inference",
    "precision": "fp32",
    "batch": 4096,
    "device": "t4",
    "step_s": 1.0,
    "source": "by hand",
}
NETS = """
    import torch
    from torch import nn

    class Widened(nn.Module):  # narrow inputs, so that their copy to the device does not count
        def __init__(self, *layers):
            super().__init__()
            self.layers = nn.Sequential(*layers)

        def forward(self, x):
            return self.layers(x.repeat(1, 64))

    def wide():
        return nn.Sequential(nn.Linear(64, 4096), nn.Linear(4096, 4096))

    def deep():
        return nn.Sequential(nn.Linear(64, 2048), nn.Linear(2048, 8192), nn.Linear(8192, 2048))

    def streaming():
        return Widened(nn.ReLU(), nn.Sigmoid(), nn.Tanh())

    def normed():
        return Widened(nn.LayerNorm(4096), nn.GELU(), nn.LayerNorm(4096))

    def example_inputs(batch=4):
        return torch.zeros(batch, 64)
"""
OWN = ("sustained_compute_ratio", "sustained_memory_ratio", "sustained_source")
MODELS = ("wide", "deep", "streaming", "normed")

Advise = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path, filled_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with models in it; nothing of the user's is in force."""
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: filled_cache / name)
    monkeypatch.setattr(platformdirs, "user_config_path", lambda name: tmp_path / "config" / name)
    for kind in ("gpu", "cpu"):
        (tmp_path / "own/devices" / kind).mkdir(parents=True)
    (tmp_path / "nets.py").write_text(dedent(NETS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def advise(folder: Path, capsys: pytest.CaptureFixture[str]) -> Advise:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        return code, *capsys.readouterr()

    return call


def write(rows: list[Mapping[str, Any]], *, file: str = "mine.csv") -> None:
    with Path(file).open("w", newline="") as stream:
        table = csv.DictWriter(stream, ("model", *ROW))
        table.writeheader()
        table.writerows([ROW | row for row in rows])


def validated(advise: Advise, *flags: str) -> dict[str, Any]:
    code, out, err = advise("validate", "--measurements", "mine.csv", "-o", "json", "--rows", *flags)
    assert (code, err) == (ExitCode.ANSWER, "")
    answer: dict[str, Any] = json.loads(out)
    return answer


def true_rows(advise: Advise, device: Gpu, names: tuple[str, ...] = ("t4",)) -> list[Mapping[str, Any]]:
    """Rows with the times that are predicted on `device`."""
    Path("own/devices/gpu/true.yaml").write_text(device_yaml(device, comments=()))
    rows = [{"model": f"nets.py::{model}", "device": name} for model in MODELS for name in names]
    write(rows)
    found = validated(advise, "--profiles", "own")["rows"]
    Path("own/devices/gpu/true.yaml").unlink()
    return [row | {"step_s": one["predicted_s"]} for row, one in zip(rows, found, strict=True)]


def test_a_device_that_sustains_less_is_predicted_with_figures_of_its_own(advise: Advise) -> None:
    t4 = load_catalog().gpus["t4"]
    slow = replace(t4, sustained_compute_ratio=0.7, sustained_memory_ratio=0.8)
    write(true_rows(advise, slow, names=("Tesla T4", "t4")))
    fit = ("fit-device", "--measurements", "mine.csv", "--device", "Tesla T4")
    code, out, err = advise(*fit, "-o", "own/devices/gpu/t4.yaml")
    assert (code, err) == (ExitCode.ANSWER, "")
    assert_says(out, "8 measured steps", "4 models")
    (fitted,) = read_gpus([Path("own/devices/gpu/t4.yaml")], measured=None).values()
    # Two models of each kind outweigh the prior 200 : 44, less where they compute and stream at once.
    assert 0.7 < (fitted.sustained_compute_ratio or 1) < 0.8
    assert 0.8 < (fitted.sustained_memory_ratio or 1) < 0.88
    assert_says(fitted.sustained_source or "", "8 measured steps", "by hand")
    assert replace(fitted, **{name: getattr(t4, name) for name in OWN}) == t4

    overall = validated(advise, "--profiles", "own")["overall"]
    assert overall["own_figures_count"] == 8
    assert overall["mape"] < 0.1
    # Without them a step takes 0.7 to 0.8 of the truth.
    assert 0.2 < overall["mape_without_own_figures"] < 0.3
    found = fit_device([Path("mine.csv")], "t4", Options(), date="2026-01-01")
    assert (found.mape, found.mape_without) == pytest.approx((overall["mape"], overall["mape_without_own_figures"]))
    assert found.mape < found.left_out_mape < found.mape_without
    # Figures that the profile has already are replaced, not added to.
    assert fit_device([Path("mine.csv")], "t4", Options(profiles="own"), date="2026-01-01") == found
    _, text, _ = advise(*fit)
    assert text == Path("own/devices/gpu/t4.yaml").read_text()


def test_all_sizes_of_a_cpu_share_its_figures(advise: Advise) -> None:
    sizes = ("aws-graviton3", "aws-graviton3@8", "AWS Graviton3@4")
    write([{"model": "nets.py::wide", "device": size} for size in (*sizes, "aws-graviton2")])
    code, out, _ = advise("fit-device", "--measurements", "mine.csv", "--device", "aws-graviton3", "-o", "cpu.yaml")
    assert code == ExitCode.ANSWER
    assert_says(out, "3 measured steps", "1 models")
    (cpu,) = read_cpus([Path("cpu.yaml")], measured=None).values()
    assert cpu.id == "aws-graviton3"
    assert cpu.sustained_compute_ratio not in (None, 1.0)


@pytest.mark.parametrize(
    ("device", "rows", "error"),
    [
        ("gtx-1085", [{}], "error: no profile describes the device 'gtx-1085'\nhint: did you mean gtx-1080"),
        ("l4", [{}, {"device": "odd"}], "error: no row was measured on l4\nhint: the rows are of t4, odd\n"),
        ("t4", [{}, {}], "error: 2 of 2 rows of t4 can be predicted, and 3 are needed\nhint: add rows of that device"),
        (
            "t4",
            [{}, {"model": "missing.py"}, {"model": "missing.py"}],
            "error: 1 of 3 rows of t4 can be predicted, and 3 are needed: there is no file missing.py (2 rows)\nhint:",
        ),
    ],
)
def test_what_cannot_be_fitted_is_said_with_its_reason(
    advise: Advise, device: str, rows: list[dict[str, Any]], error: str
) -> None:
    write([{"model": "nets.py::streaming"} | row for row in rows])
    code, out, err = advise("fit-device", "--measurements", "mine.csv", "--device", device)
    assert (code, out) == (ExitCode.USAGE, "")
    assert err.startswith(error)


def test_a_profile_goes_to_a_yaml_file_alone(advise: Advise) -> None:
    code, _, err = advise("fit-device", "--measurements", "mine.csv", "--device", "t4", "-o", "t4.json")
    assert code == ExitCode.USAGE
    assert_says(err, "error:", "-o t4.json")


def test_the_help_says_that_files_are_executed(advise: Advise) -> None:
    _, out, _ = advise("fit-device", "--help")
    assert "EXECUTED" in out
    assert "Examples:\n    advise fit-device" in out
