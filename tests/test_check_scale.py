"""Predictions of several GPUs, held to published ones: the tables that the script has written, and a few rows anew."""

import csv
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.catalog.overlay import load_catalog

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "tests/data/scale"
MOSAICML = {
    # One row of the published table.
    "Model": "125m", "SeqLen (T)": "2048", "# GPUs": "8", "GPU": "a100_80gb", "MicroBatchSize": "32", "GradAccum": "2",
    "Throughput (T/s/GPU)": "141737", "Activation Checkpointing": "False",
}  # fmt: skip
NEUSIGHT = [
    {"model_name": "gpt2_large", "batch": "4", "option": "dp4", "label_e2e_ms": "452.2998"},
    {"model_name": "gpt2_large", "batch": "4", "option": "tp4", "label_e2e_ms": "484.8684"},
    {"model_name": "gpt2_large", "batch": "4", "option": "pp4_1", "label_e2e_ms": "1597.641"},
]


def rows(name: str) -> list[dict[str, str]]:
    with (TABLES / name).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def write(path: Path, *written: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(written[0]))
        table.writeheader()
        table.writerows(written)
    return path


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("check_scale")


def test_mosaicmls_rows_that_were_not_fitted_are_within_the_bars() -> None:
    table = rows("mosaicml.csv")
    fitted = [row for row in table if row["fitted"]]
    errors = np.abs([float(row["error"]) for row in table if not row["fitted"]])
    assert len(fitted) <= len(table) / 5
    assert len(errors) + len(fitted) == 139
    assert errors.mean() <= 0.15
    assert np.median(errors) <= 0.10


def test_every_published_step_fits_and_none_of_eight_times_its_batch() -> None:
    table = rows("mosaicml.csv")
    assert {row["ran_fits"] for row in table} == {"yes"}
    assert {row["eightfold_fits"] for row in table} == {"no"}
    assert {row["unsharded_fits"] for row in table if " 70b " in row["name"]} == {"no"}


def test_neusights_rows_are_within_15_percent_each() -> None:
    table = rows("neusight.csv")
    assert [row["name"] for row in table] == ["gpt2_large dp4", "gpt2_large tp4", "gpt2_large pp4_1"]
    assert all(abs(float(row["error"])) <= 0.15 for row in table)


def test_the_efficiency_of_data_parallel_gpus_is_as_far_off_as_the_page_says() -> None:
    off = [float(row["predicted_efficiency"]) - float(row["measured_efficiency"]) for row in rows("resnet50.csv")]
    assert len(off) == 38
    assert np.mean(off) <= 0.035
    assert np.abs(off).max() <= 0.14


@pytest.mark.slow
def test_the_table_of_efficiencies_is_that_of_today(script: Any) -> None:
    for row, kept in zip(script.scaling_rows(load_catalog()), rows("resnet50.csv"), strict=True):
        assert row["name"] == kept["name"]
        assert row["measured_efficiency"] == kept["measured_efficiency"]
        assert float(row["predicted_efficiency"]) == pytest.approx(float(kept["predicted_efficiency"]), abs=0.01)


def test_a_published_step_comes_out_as_the_table_says(script: Any, tmp_path: Path) -> None:
    catalog = load_catalog()
    (case,) = script.mosaicml_cases(write(tmp_path / "table.csv", MOSAICML), catalog)
    # 2 passes x 32 samples x 2,048 tokens / 141,737 tokens a second.
    assert case.measured_s == pytest.approx(0.9248, rel=1e-3)
    predicted_s = script.step_s(case, catalog.efficiencies, script.Kernels(attention=1.89, all=1.08))
    assert predicted_s == pytest.approx(case.measured_s, rel=0.15)
    verdicts = script.memory_of(case)
    assert (verdicts["ran_fits"], verdicts["eightfold_fits"]) == ("yes", "no")


@pytest.mark.slow
def test_neusights_four_gpus_come_out_within_15_percent_today(script: Any, tmp_path: Path) -> None:
    catalog = load_catalog()
    write(tmp_path / "neusight/e2e_measured_and_predicted.csv", *NEUSIGHT)
    for case in script.neusight_cases(tmp_path, catalog):
        predicted_s = script.step_s(case, catalog.efficiencies, script.Kernels())
        assert predicted_s == pytest.approx(case.measured_s, rel=0.15), case.name
