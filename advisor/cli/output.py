"""`-o`: a format's name or a file in, text on stdout or an atomically written file out."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import click

from advisor.cli.terminal import write_stdout
from advisor.errors import UsageError
from advisor.files.whole_file import write_whole
from advisor.report.view import View

PAGE_SUFFIXES = {"html": ".html"}
"""Of a report: it is made from more than a recommendation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where the answer goes: `path` None is stdout."""

    format: str
    path: Path | None


def output_flag(suffixes: Mapping[str, str], *, help_text: str) -> click.Option:
    """`-o`, for the formats that are the keys of `suffixes`."""
    return click.Option(
        ["-o", "--output"],
        type=lambda text: parse_output(text, suffixes),
        default="table",
        metavar="|".join((*suffixes, "FILE")),
        help=help_text,
    )


def parse_output(text: str, suffixes: Mapping[str, str]) -> Output:
    """A format, or a file whose suffix names one; refuse the rest, and a missing folder, before work is done."""
    if text.lower() in suffixes:
        return Output(format=text.lower(), path=None)
    path = Path(text)
    formats = {suffix: name for name, suffix in suffixes.items()}
    if path.suffix.lower() not in formats:
        close = get_close_matches(text.lower(), list(suffixes), n=1)
        raise UsageError(
            f"-o {text}: neither a format nor a file whose suffix names one",
            hint=f"did you mean {close[0]}?" if close else f"formats: {_listed(suffixes)}",
        )
    if not path.parent.is_dir():
        raise UsageError(f"-o {text}: there is no folder {path.parent}", hint="make the folder first")
    return Output(format=formats[path.suffix.lower()], path=path)


def _listed(suffixes: Mapping[str, str]) -> str:
    return ", ".join(f"{name} (*{suffix})" for name, suffix in suffixes.items())


def view_of(output: Output, *, top: int) -> View:
    """As wide as the terminal and in colours on one; 80 columns and plain elsewhere. COLUMNS and NO_COLOR win."""
    on_terminal = output.path is None and sys.stdout.isatty()
    width = shutil.get_terminal_size(fallback=(80, 24)).columns if on_terminal or "COLUMNS" in os.environ else 80
    return View(top=top, width=width, color=on_terminal and not os.environ.get("NO_COLOR"))


def write(text: str, output: Output) -> None:
    """Write the answer; raise `UsageError` where the file or the stream does not take it."""
    try:
        if output.path is None:
            write_stdout(text)
        else:
            write_whole(text, output.path)
    except BrokenPipeError:  # no mistake of the user: `main` ends quietly
        raise
    except OSError as error:
        where = "stdout" if output.path is None else str(output.path)
        raise UsageError(f"cannot write to {where}: {error.strerror}", hint="choose another place with -o") from error
