import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.report.as_json import render
from advisor.report.content import View
from advisor.units import parse_ratio
from tests.answers.test_answer_changes import slower
from tests.cli.conftest import Pipeline, Result
from tests.report.toys import L4, recommendation
from tests.says import assert_says

Advise = Callable[..., Result]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    file = tmp_path / "base.json"
    file.write_text(render(recommendation(L4), View()))
    return file


@pytest.fixture
def dearer(tmp_path: Path) -> Path:
    """By 15 %."""
    file = tmp_path / "new.json"
    file.write_text(render(recommendation(slower(L4, 1.15)), View()))
    return file


def test_two_files_are_compared_in_every_format(advise: Advise, base: Path, dearer: Path, tmp_path: Path) -> None:
    assert "15 % more" in " ".join(advise("diff", str(base), str(dearer)).out.split())
    assert "**resnet50" in advise("diff", str(base), str(dearer), "-o", "markdown").out
    assert json.loads(advise("diff", str(base), str(dearer), "-o", "json").out)["kind"] == "answers"
    comment = tmp_path / "comment.md"
    assert advise("diff", str(base), str(dearer), "-o", str(comment)) == Result(0, "", "")
    assert "cost of the job" in comment.read_text()


@pytest.mark.parametrize(("threshold", "code"), [("10%", 3), ("0.1", 3), ("15.1%", 0), ("20 %", 0)])
def test_a_rise_above_the_threshold_exits_with_3_after_the_answer(
    advise: Advise, base: Path, dearer: Path, threshold: str, code: int
) -> None:
    result = advise("diff", str(base), str(dearer), "--fail-if-cost-rises", threshold)
    assert result.code == code
    if code:
        assert_says(result.err, "error:", "15 %", "--fail-if-cost-rises 10 %")
    else:
        assert result.err == ""
    assert "15 % more" in " ".join(result.out.split())


def test_a_fall_exits_with_0(advise: Advise, base: Path, dearer: Path) -> None:
    assert advise("diff", str(dearer), str(base), "--fail-if-cost-rises", "0").code == 0


@pytest.mark.parametrize(("before", "now", "code"), [(False, True, 0), (True, False, 3), (False, False, 3)])
def test_the_threshold_fails_a_job_that_no_instance_can_do_now(
    advise: Advise, base: Path, tmp_path: Path, before: bool, now: bool, code: int
) -> None:
    none = tmp_path / "none.json"
    none.write_text(render(recommendation(), View()))
    files = [str(base if fits else none) for fits in (before, now)]
    result = advise("diff", *files, "--fail-if-cost-rises", "10%")
    assert (result.code, "no instance can do the new job" in result.err, "was 0" in result.err) == (
        code,
        not now,
        False,
    )


@pytest.mark.parametrize(
    ("times", "threshold"), [(1.0994, "9.9%"), (1.1000004, "10%"), (1.12, "11.96%"), (1.004, "0.3%")]
)
def test_the_rise_that_fails_is_shown_above_the_threshold(
    advise: Advise, base: Path, tmp_path: Path, times: float, threshold: str
) -> None:
    new = tmp_path / "new.json"
    new.write_text(render(recommendation(slower(L4, times)), View()))
    result = advise("diff", str(base), str(new), "--fail-if-cost-rises", threshold)
    rise, limit = (float(found) for found in re.findall(r"([\d.]+) %", result.err))
    assert result.code == 3
    assert limit == pytest.approx(100 * parse_ratio(threshold))
    assert limit < rise == pytest.approx(100 * (times - 1), rel=0.05)


@pytest.mark.parametrize("threshold", ["-1", "much", "10%%", "nan", "inf", "10", "1"])
def test_a_threshold_that_is_no_share_is_refused(advise: Advise, base: Path, threshold: str) -> None:
    result = advise("diff", str(base), str(base), "--fail-if-cost-rises", threshold)
    assert (result.code, result.out) == (2, "")
    assert_says(result.err, "error:", "--fail-if-cost-rises", repr(threshold), "hint:")


def test_an_answer_of_now_is_compared_with_a_file(advise: Advise, pipeline: Pipeline, base: Path) -> None:
    pipeline.answer = recommendation(slower(L4, 1.15))
    result = advise("model.py", "--compare-to", str(base), "--fail-if-cost-rises", "10%")
    assert result.code == 3
    assert "15 % more" in " ".join(result.out.split())


def test_what_does_not_go_with_a_comparison_is_refused_before_work_is_done(
    advise: Advise, pipeline: Pipeline, base: Path, tmp_path: Path
) -> None:
    for flags in (
        ["--fail-if-cost-rises", "10%"],
        ["--compare-to", str(base), "-o", "csv"],
        ["--compare-to", str(base), "--emit", "skypilot"],
        ["--compare-to", str(tmp_path / "none.json")],
    ):
        result = advise("model.py", *flags)
        assert result.code in (2, 4)
        assert result.err.startswith("error: ")
    assert pipeline.asked == []
