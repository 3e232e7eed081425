"""SOURCE, `--run` and the arguments of a script."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.question import early_trace as module
from advisor.question.early_trace import early_trace
from advisor.records.options import Options, ScriptOptions
from tests.cli.conftest import Pipeline, Result
from tests.says import assert_says

Advise = Callable[..., Result]


def test_what_follows_the_dashes_belongs_to_the_script(advise: Advise, pipeline: Pipeline) -> None:
    assert advise("train.py", "--run", "--batch", "8", "--", "--batch", "16", "data").code == 0
    call = pipeline.asked[0]
    assert (call["run"], call["script_args"], call["options"].batch) == (True, ("--batch", "16", "data"), "8")


def test_arguments_without_a_script_to_run_are_refused(advise: Advise, pipeline: Pipeline) -> None:
    result = advise("train.py", "--", "--lr", "0.1")
    assert result.code == 2
    assert_says(result.err, "error:", "'--lr'", "'train.py'", "hint:", "--run", "--")
    assert pipeline.asked == []


def test_a_source_that_starts_with_a_dash_stands_after_two(advise: Advise, pipeline: Pipeline) -> None:
    advise("--", "-odd.py")
    assert pipeline.asked[0]["source"] == "-odd.py"


class Trace:
    """Stands in for a child process."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Trace:
    started = Trace()
    monkeypatch.setattr(module.SourceTrace, "start", lambda _: started)
    return started


def test_the_trace_that_starts_early_is_the_one_that_is_ranked(
    advise: Advise, pipeline: Pipeline, trace: Trace
) -> None:
    assert advise("model.py").code == 0
    assert pipeline.asked[0]["trace"] is trace
    assert trace.is_closed


def test_the_trace_ends_where_the_flags_cannot_be_combined(advise: Advise, pipeline: Pipeline, trace: Trace) -> None:
    assert advise("model.py", "--fail-if-cost-rises", "10%").code == 2
    assert pipeline.asked == []
    assert trace.is_closed


@pytest.mark.parametrize("source", ["workload.json", "missing.py"])
def test_what_cannot_be_traced_starts_no_process(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("advisor.workload.spawn.SourceProcess.start", fail)
    monkeypatch.chdir(tmp_path)
    assert early_trace(source, Options(), run=False, script_args=()) is None


def test_the_flags_that_are_given_are_known(advise: Advise, pipeline: Pipeline) -> None:
    advise("train.py", "--run", "--compile", "eager", "--max-hourly", "3")
    advise("model.py", "--compile", "eager")
    of_script, of_model = (call["options"] for call in pipeline.asked)
    assert of_script.given == {"compile", "max_hourly"}
    assert of_model.given == {"compile"}
    # A model file sets nothing for itself.
    assert (isinstance(of_script, ScriptOptions), isinstance(of_model, ScriptOptions)) == (True, False)
