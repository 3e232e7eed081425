"""`advise SOURCE -o report.html`."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from advisor.cli.commands.rank import command
from tests.cli.conftest import Pipeline, Result
from tests.report.report_toys import report
from tests.report.toys import recommendation
from tests.says import assert_says

Advise = Callable[..., Result]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline) -> list[dict[str, Any]]:
    """Stands in for `advisor.answers.full_report`: reports the pipeline's answer, and returns what was asked."""
    module = ModuleType("advisor.answers.full_report")
    module.report = lambda question: report(pipeline.rank(question))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "advisor.answers.full_report", module)
    return pipeline.asked


def test_the_suffix_of_a_file_asks_for_a_report(advise: Advise, asked: list[dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    assert advise("model.py", "--top", "3", "-o", str(file)) == Result(0, "", "")
    page = file.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert asked[0]["source"] == "model.py"
    assert asked[0]["run"] is False
    assert advise("model.py", "-o", "html").out == page


def test_a_report_in_which_nothing_fits_exits_with_1(
    advise: Advise, asked: list[dict[str, Any]], pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.answer = recommendation()
    file = tmp_path / "report.html"
    assert advise("model.py", "-o", str(file)).code == 1
    assert "0 offers" in file.read_text(encoding="utf-8")


def test_a_comparison_is_no_report(advise: Advise, asked: list[dict[str, Any]], tmp_path: Path) -> None:
    result = advise("model.py", "--compare-to", "base.json", "-o", str(tmp_path / "report.html"))
    assert result.code == 2
    assert_says(result.err, "error:", "-o html", "comparison")
    assert asked == []


def test_the_help_names_the_suffix() -> None:
    (output,) = (flag for flag in command.get_params(command.make_context("rank", ["x"])) if flag.name == "output")
    assert ".html" in (getattr(output, "help", None) or "")
