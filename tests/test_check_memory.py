"""The committed comparison of predicted and real peaks of memory."""

import statistics
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from advisor.workload.trace import trace

ROOT = Path(__file__).parents[1]
Rows = dict[tuple[str, ...], dict[str, str]]


@pytest.fixture(scope="module")
def script() -> Any:
    """The scripts import each other as they do where they are run."""
    sys.path.insert(0, str(ROOT / "scripts"))
    yield import_module("check_memory")
    sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture(scope="module")
def rows(script: ModuleType) -> Rows:
    found: Rows = script.read(ROOT / "tests/data/measured/own/memory_check.csv")
    return found


def test_twelve_models_are_off_by_a_tenth_at_most(script: ModuleType, rows: Rows) -> None:
    assert len({row["model"] for row in rows.values()}) == 12
    assert {row["checkpointed"] for row in rows.values()} == {"", "yes"}
    assert statistics.mean(abs(script.error_ratio(row)) for row in rows.values()) <= 0.10


def test_nine_of_ten_are_inside_the_spread(script: ModuleType, rows: Rows) -> None:
    assert statistics.mean(script.is_inside(row) for row in rows.values()) >= 0.9


def test_the_documented_table_is_that_of_the_rows(script: ModuleType, rows: Rows) -> None:
    page = script.DOCS.read_text(encoding="utf-8")
    assert page.partition(script.BEGIN)[2].partition(script.END)[0].strip() == script.table(rows.values()).strip()


@pytest.mark.parametrize("model", ["mlp", "lstm"])
def test_the_predictions_are_those_of_today(model: str, script: ModuleType, rows: Rows) -> None:
    cases = [case for case in script.cases() if case.model.endswith(f"{model}.py")]
    assert len(cases) == 3
    for case in cases:
        workload = trace(script.loaded_for(case), mode=case.mode, batch=case.batch)
        found = script.predict(workload, batch=case.batch)
        expected = int(rows[script.key_of(case)]["predicted_bytes"])
        assert found["predicted_bytes"] == pytest.approx(expected, rel=0.01)


def test_what_a_process_holds_is_read_from_proc(script: ModuleType, tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmHWM:\t    20 kB\nVmRSS:\t    10 kB\nRssFile:\t   3 kB\nThreads:\t1\n")
    assert script.process_bytes(status) == {"VmHWM": 20480, "VmRSS": 10240, "RssFile": 3072}
