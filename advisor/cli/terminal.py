"""Writes all text and progress to the terminal; escapes characters that could control it or forge a line of output."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper

import click

_UNPRINTABLE = r"[^\n\t\x20-\x7e]"
_COLOR = r"\x1b\[(?:[012]|3[0-7])(?:;(?:[012]|3[0-7]))*m"
_ESCAPED_IN_MESSAGES = re.compile(_UNPRINTABLE)
_ESCAPED_IN_ANSWERS = re.compile(f"{_COLOR}|{_UNPRINTABLE}")
"""Keeps the colour codes of our own tables; none of them can hide text."""
_FORGED_LINE = re.compile(r"\n(?=\S)")
_ERASE_LINE = "\r\x1b[K"


def say(text: str) -> None:
    """Write a message to stderr; indent every line after the first, so that none can pass for our own."""
    click.echo(_FORGED_LINE.sub("\n  ", visible(text)), err=True)


def visible(text: str) -> str:
    r"""Return `text` with unprintable characters escaped, as in `\u001b`; keep line breaks and tabs."""
    return _ESCAPED_IN_MESSAGES.sub(_escaped, text)


def reads_escapes() -> bool:
    """Return whether a terminal understands colours and the like; TERM=dumb says that it does not."""
    return os.environ.get("TERM") != "dumb"


def write_stdout(text: str) -> None:
    """Write to stdout and flush, with unprintable characters escaped; on OSError, call `discard_stdout` and raise."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(_ESCAPED_IN_ANSWERS.sub(_escaped, text))
        sys.stdout.flush()
    except OSError:
        discard_stdout()
        raise


def discard_stdout() -> None:
    """Drop what is still buffered; otherwise the interpreter's flush at exit would fail again."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if len(character) > 1 or character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


@contextmanager
def progress(message: str) -> Iterator[None]:
    """Show `message` while the block runs, if stderr is a terminal and not TERM=dumb."""
    with _one_line() as show:
        show(f"{visible(message)} ...")
        yield


@contextmanager
def counted_progress(message: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows `done` of `total`, if stderr is a terminal and not TERM=dumb."""
    with _one_line() as show:
        yield lambda done, total: show(f"{_ERASE_LINE}{message}: {done:,} of {total:,}")


@contextmanager
def _one_line() -> Iterator[Callable[[str], None]]:
    """Yield a function that writes to stderr if it is a terminal that can erase a line; erase it at the end."""
    if not (sys.stderr.isatty() and reads_escapes()):
        yield lambda text: None
        return

    def show(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    try:
        yield show
    finally:
        show(_ERASE_LINE)
