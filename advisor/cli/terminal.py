"""Writes all text to the terminal, and escapes characters that could control it or forge a line of output."""

import os
import re
import sys
from io import TextIOWrapper

import click

_UNSEEN = r"[^\n\t\x20-\x7e]"
_COLOR = r"\x1b\[(?:[012]|3[0-7])(?:;(?:[012]|3[0-7]))*m"
_IN_TALK = re.compile(_UNSEEN)
_IN_ANSWERS = re.compile(f"{_COLOR}|{_UNSEEN}")
"""Keeps the colour codes of our own tables; none of them can hide text."""
_FORGED_LINE = re.compile(r"\n(?=\S)")


def say(text: str) -> None:
    """Write a message to stderr; indent every line after the first, so that none can pass for our own."""
    click.echo(_FORGED_LINE.sub("\n  ", visible(text)), err=True)


def visible(text: str) -> str:
    r"""Return `text` with unprintable characters escaped, as in `\u001b`; keep line breaks and tabs."""
    return _IN_TALK.sub(_escaped, text)


def write_stdout(text: str) -> None:
    """Write to stdout and flush, with unprintable characters escaped; on OSError, call `discard_stdout` and raise."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(_IN_ANSWERS.sub(_escaped, text))
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
