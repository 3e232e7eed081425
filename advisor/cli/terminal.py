"""The one place where text leaves for the terminal: no name or message in it steers the terminal or forges a line."""

import os
import re
import sys
from io import TextIOWrapper

import click

_UNSEEN = r"[^\n\t\x20-\x7e]"
_COLOR = r"\x1b\[(?:[012]|3[0-7])(?:;(?:[012]|3[0-7]))*m"
_IN_TALK = re.compile(_UNSEEN)
_IN_ANSWERS = re.compile(f"{_COLOR}|{_UNSEEN}")
"""The colours of our own tables stay; nothing that hides text is among them."""
_FORGED_LINE = re.compile(r"\n(?=\S)")


def say(text: str) -> None:
    """Write a line of talk to stderr. Lines after its first are indented, so that none looks like a line of ours."""
    click.echo(_FORGED_LINE.sub("\n  ", visible(text)), err=True)


def visible(text: str) -> str:
    r"""`text` with `\u001b` in the place of what cannot be printed; line breaks and tabs stay."""
    return _IN_TALK.sub(_escaped, text)


def write_stdout(text: str) -> None:
    """Write and flush, what cannot be printed or encoded as JSON's escapes; raise OSError after `discard_stdout`."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(_IN_ANSWERS.sub(_escaped, text))
        sys.stdout.flush()
    except OSError:
        discard_stdout()
        raise


def discard_stdout() -> None:
    """Send what is still buffered nowhere, or the interpreter's own flush at exit would fail a second time."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if len(character) > 1 or character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
