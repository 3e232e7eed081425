"""What is said while work is done."""

import sys
from io import StringIO

import pytest

from advisor.cli.progress import counted_progress, progress


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


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
