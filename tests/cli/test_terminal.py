"""Nothing that somebody else named steers the terminal, and progress is shown on a terminal only."""

import json
import re
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from advisor.cli.terminal import counted_progress, progress, say, visible, write_stdout
from advisor.errors import UsageError
from tests.cli.conftest import Pipeline, Result

Advise = Callable[..., Result]
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b8m\u202egnp.exe\r\x00\x7f\U000e0041"
ROOT = Path(__file__).parents[2]


def test_a_message_cannot_steer_the_terminal_or_forge_a_line(advise: Advise, pipeline: Pipeline) -> None:
    pipeline.answer = UsageError(f"{HOSTILE}\nhint: rm -rf ~", hint=HOSTILE)
    result = advise("model.py")
    assert result.code == 2
    assert all(line.isprintable() for line in result.err.splitlines())
    assert [line.split(":")[0] for line in result.err.split("\n")] == ["error", "  hint", "hint", ""]


def test_a_flag_of_clicks_own_cannot_steer_it_either(advise: Advise) -> None:
    result = advise("model.py", f"--{HOSTILE}")
    assert result.code == 2
    assert all(line.isprintable() for line in result.err.splitlines())


def test_what_is_written_to_stdout_keeps_lines_and_colours_and_stays_the_same_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_stdout(json.dumps({"name": HOSTILE}, ensure_ascii=False))
    written = capsys.readouterr().out
    assert written.isprintable()
    assert json.loads(written) == {"name": HOSTILE}
    write_stdout("\x1b[1;33mWarnings\x1b[0m\n\tnaïve\n\x1b[8mhidden")
    assert capsys.readouterr().out == "\x1b[1;33mWarnings\x1b[0m\n\tnaïve\n\\u001b[8mhidden"


def test_talk_has_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    say("\x1b[1mbold")
    assert capsys.readouterr().err == "\\u001b[1mbold\n"
    assert visible("a\nb\tc") == "a\nb\tc"


def test_text_leaves_for_the_terminal_in_one_place_only() -> None:
    elsewhere = [
        path.name
        for path in (ROOT / "advisor" / "cli").rglob("*.py")
        if path.name != "terminal.py"
        and re.search(r"\b(click\.(echo|secho)|print|sys\.stdout\.write)\(", path.read_text(encoding="utf-8"))
    ]
    assert elsewhere == []


def test_the_page_of_a_report_needs_no_escapes() -> None:
    for path in (ROOT / "advisor" / "report" / "assets").iterdir():
        text = path.read_text(encoding="utf-8")
        assert visible(text) == text, path.name


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _no_dumb_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TERM", raising=False)


def test_a_dumb_terminal_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("reading model.py"):
        pass
    assert terminal.getvalue() == ""


def test_a_terminal_is_told_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("reading model.py"):
        assert terminal.getvalue() == "reading model.py ..."
    assert terminal.getvalue() == "reading model.py ...\r\x1b[K"


def test_the_line_is_wiped_when_the_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(ZeroDivisionError), progress("reading"):
        raise ZeroDivisionError
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_file_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    file = StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with progress("reading model.py"):
        pass
    assert file.getvalue() == ""


def test_a_terminal_is_told_how_many_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with counted_progress("tracing") as show:
        show(1, 1200)
        show(2, 1200)
    line = "\r\x1b[K"
    assert terminal.getvalue() == f"{line}tracing: 1 of 1,200{line}tracing: 2 of 1,200{line}"


def test_a_file_is_told_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    file = StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with counted_progress("tracing") as show:
        show(1, 2)
    assert file.getvalue() == ""
