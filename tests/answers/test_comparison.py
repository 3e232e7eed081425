import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.answers.comparison import compare_files, read_base
from advisor.errors import AdvisorError, DocumentError, UsageError
from advisor.report.as_json import render
from advisor.report.content import View
from tests.report.toys import GENOA, L4, T4, recommendation
from tests.serve.conftest import WORKLOAD


def saved(folder: Path, name: str, document: Any) -> Path:
    file = folder / name
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return file


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    return saved(tmp_path, "answer.json", render(recommendation(L4, T4, GENOA), View()))


def test_an_answer_that_was_saved_is_read_back_whole(answer: Path) -> None:
    assert json.loads(render(read_base(answer), View())) == json.loads(answer.read_text())


def test_two_answers_are_compared(answer: Path, tmp_path: Path) -> None:
    other = saved(tmp_path, "other.json", render(recommendation(T4, GENOA), View()))
    comparison = compare_files(answer, other)
    assert comparison.kind == "answers"
    assert comparison.cheapest is not None


def test_another_model_is_the_same_job_and_more_samples_are_not(answer: Path, tmp_path: Path) -> None:
    def notes(**changes: Any) -> tuple[str, ...]:
        other = recommendation(L4, T4, GENOA)
        other = replace(other, job=replace(other.job, **changes))
        return compare_files(answer, saved(tmp_path, "other.json", render(other, View()))).notes

    assert notes(weight_bytes=84e6) == ()
    (note,) = notes(samples=123)
    assert "123" in note


def test_two_workloads_are_compared_by_module(tmp_path: Path) -> None:
    wider = json.loads(json.dumps(WORKLOAD))
    wider["rows"]["count"][0] *= 2
    comparison = compare_files(saved(tmp_path, "a.json", WORKLOAD), saved(tmp_path, "b.json", wider))
    (module,) = comparison.modules
    assert (comparison.kind, module.name, module.flops.ratio) == ("workloads", WORKLOAD["rows"]["module"][0], 2.0)
    assert comparison.notes == ()


def test_an_answer_and_a_workload_are_not_compared(answer: Path, tmp_path: Path) -> None:
    workload = saved(tmp_path, "w.json", WORKLOAD)
    with pytest.raises(UsageError, match=r"\banswer\b.*\bworkload\b"):
        compare_files(answer, workload)
    with pytest.raises(UsageError, match=r"w\.json.*\bworkload\b.*\banswer\b"):
        read_base(workload)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("{}", "schema_version"),
        ("[1]", "schema_version"),
        ('{"schema_version": NaN}', "not a finite number"),
    ],
)
def test_what_is_neither_is_refused_with_the_file(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(AdvisorError, match=problem) as caught:
        read_base(saved(tmp_path, "x.json", text))
    assert "x.json" in caught.value.message


def test_a_wrong_figure_is_named_by_its_key(answer: Path) -> None:
    document = json.loads(answer.read_text())
    document["quotes"][1]["step_s"]["mid"] = "fast"
    answer.write_text(json.dumps(document))
    with pytest.raises(DocumentError, match=r"quotes\.1\.step_s\.mid") as caught:
        read_base(answer)
    assert caught.value.key == "quotes.1.step_s.mid"


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(AdvisorError, match="No such file"):
        read_base(tmp_path / "none.json")
