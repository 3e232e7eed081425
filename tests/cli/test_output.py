"""The destination and format of the answer."""

import json
import stat
import sys
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from advisor.cli import output
from advisor.cli.output import Output, parse_output, view_of, write
from advisor.errors import UsageError
from advisor.report.formats import format_suffixes
from tests.cli.conftest import Pipeline, Result
from tests.report.toys import L4, recommendation
from tests.says import assert_says

Advise = Callable[..., Result]


def test_every_format_has_a_suffix_of_its_own() -> None:
    assert format_suffixes() == {"table": ".txt", "csv": ".csv", "json": ".json", "markdown": ".md"}


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("table", "aws g6.xlarge (1x L4)"),
        ("csv", "rank,id,"),
        ("json", '{\n  "schema_version": 1'),
        ("markdown", "**aws"),
    ],
)
def test_a_format_is_written_to_stdout(advise: Advise, pipeline: Pipeline, name: str, start: str) -> None:
    result = advise("model.py", "-o", name)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(start)
    assert result.out.endswith("\n")


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".json", ".md", ".JSON"])
def test_the_suffix_of_a_file_names_the_format(advise: Advise, pipeline: Pipeline, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"answer{suffix}"
    assert advise("model.py", "-o", str(path)) == Result(0, "", "")
    format_name = {value: key for key, value in format_suffixes().items()}[suffix.lower()]
    assert path.read_text(encoding="utf-8") == advise("model.py", "-o", format_name, "--details").out


def test_only_the_text_on_stdout_leaves_details_out(advise: Advise, pipeline: Pipeline) -> None:
    pipeline.answer = recommendation(L4)
    detailed = advise("model.py", "--details").out
    assert "--details" not in detailed
    assert advise("model.py").out != detailed
    assert advise("model.py", "-o", "markdown").out == advise("model.py", "-o", "markdown", "--details").out


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".json", ".md"])
def test_python_saves_what_the_command_writes(advise: Advise, pipeline: Pipeline, tmp_path: Path, suffix: str) -> None:
    written, saved = tmp_path / f"written{suffix}", tmp_path / f"saved{suffix}"
    pipeline.answer = recommendation(L4)
    advise("model.py", "-o", str(written))
    pipeline.answer.save(str(saved))
    assert saved.read_bytes() == written.read_bytes()


def test_python_saves_in_no_other_format_or_missing_folder_and_says_what_writes_a_report(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"answer\.docx") as refused:
        recommendation(L4).save(tmp_path / "answer.docx")
    assert_says(refused.value.hint, ".txt .csv .json .md")
    with pytest.raises(UsageError) as page:
        recommendation(L4).save(tmp_path / "answer.html")
    assert "advisor.save_report(" in page.value.hint
    with pytest.raises(UsageError, match="missing does not exist"):
        recommendation(L4).save(tmp_path / "missing" / "answer.csv")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_suffix_is_refused_before_any_work(advise: Advise, pipeline: Pipeline) -> None:
    result = advise("model.py", "-o", "answer.docx")
    assert result.code == 2
    assert_says(
        result.err,
        *("error:", "-o answer.docx", "hint:", "table (*.txt)", "csv (*.csv)", "json (*.json)"),
        *("markdown (*.md)", "html (*.html)", "yaml (*.yaml)", "yml (*.yml)"),
    )
    assert pipeline.asked == []


def test_a_mistyped_format_is_recognised() -> None:
    with pytest.raises(UsageError) as caught:
        parse_output("jsno", {"table": ".txt", "json": ".json"})
    assert caught.value.hint == "did you mean json?"


def test_a_folder_that_is_not_there_is_refused_before_any_work(
    advise: Advise, pipeline: Pipeline, tmp_path: Path
) -> None:
    result = advise("model.py", "-o", str(tmp_path / "no" / "answer.json"))
    assert result.code == 2
    assert f"folder {tmp_path / 'no'} does not exist" in result.err
    assert pipeline.asked == []


def test_a_file_is_replaced_as_a_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    path.write_text("old")
    write("new", Output(format="json", path=path))
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "answer.json"
    path.write_text("old")

    def fail(part: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(UsageError, match="No space left on device"):
        write("new", Output(format="json", path=path))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_can_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    plain = tmp_path / "plain"
    plain.touch()
    write("new", Output(format="json", path=path))
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_link_is_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    write("new", Output(format="json", path=link))
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_character_that_the_stream_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = BytesIO()
    stream = TextIOWrapper(raw, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    write("caf\u00e9\n", Output(format="table", path=None))
    monkeypatch.undo()
    assert raw.getvalue() == b"caf\\xe9\n"


class _Terminal(TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_colours_need_a_terminal_and_no_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    to_stdout, to_file = Output(format="table", path=None), Output(format="table", path=Path("a.txt"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("TERM", raising=False)
    assert not view_of(to_stdout, top=10).color
    monkeypatch.setattr(output.sys, "stdout", _Terminal(BytesIO()))
    assert view_of(to_stdout, top=10).color
    assert not view_of(to_file, top=10).color
    monkeypatch.setenv("NO_COLOR", "1")
    assert not view_of(to_stdout, top=10).color
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not view_of(to_stdout, top=10).color


def test_the_width_is_80_without_a_terminal_and_columns_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    to_stdout = Output(format="table", path=None)
    monkeypatch.delenv("COLUMNS", raising=False)
    assert view_of(to_stdout, top=10).width == 80
    monkeypatch.setenv("COLUMNS", "132")
    assert view_of(to_stdout, top=10).width == 132


def test_top_limits_the_table_and_not_the_data(advise: Advise, pipeline: Pipeline) -> None:
    pipeline.answer = recommendation(*(L4,) * 12)
    assert advise("model.py", "--top", "3").out.count("g6.xlarge") == 1 + 3  # the headline and three rows
    assert len(json.loads(advise("model.py", "--top", "3", "-o", "json").out)["quotes"]) == 12
