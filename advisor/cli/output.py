"""Parses `-o` and writes the answer in its format, to stdout or atomically to a file."""

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from advisor.cli.terminal import reads_escapes, write_stdout
from advisor.errors import UsageError, did_you_mean
from advisor.files.whole_file import require_folder, write_whole
from advisor.report.content import View

if TYPE_CHECKING:
    from advisor.report.content import Block

PAGE_SUFFIXES = {"html": ".html"}
"""The formats of a full report, which needs more data than a recommendation."""
TABLE_OR_JSON = {"table": ".txt", "json": ".json"}

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The format of the answer and where it goes: a file, or stdout if `path` is None."""

    format: str
    path: Path | None


STDOUT = Output(format="table", path=None)


def output_flag(suffixes: Mapping[str, str], *, help_text: str, metavar: str = "") -> click.Option:
    """Return the flag `-o` for the formats in `suffixes` (format to file suffix); the first is the default."""
    return click.Option(
        ["-o", "--output"],
        type=lambda text: parse_output(text, suffixes),
        default=next(iter(suffixes)),
        metavar=metavar or "|".join((*suffixes, "FILE")),
        help=help_text,
    )


def table_or_json_flag(json: str = "json") -> click.Option:
    """Return the flag `-o` of a command that writes a table or JSON; `json` says what the JSON contains."""
    return output_flag(TABLE_OR_JSON, help_text=f"table, or {json}, to stdout; or a file (.txt .json)")


def parse_output(text: str, suffixes: Mapping[str, str]) -> Output:
    """Parse the value of `-o`: a format, or a file with the suffix of one.

    Raise `UsageError` for anything else and for a missing folder, before any work is done.
    """
    if text.lower() in suffixes:
        return Output(format=text.lower(), path=None)
    path = Path(text)
    formats = {suffix: name for name, suffix in suffixes.items()}
    if path.suffix.lower() not in formats:
        listed = ", ".join(f"{name} (*{suffix})" for name, suffix in suffixes.items())
        hint = did_you_mean(text, suffixes, otherwise=f"formats: {listed}")
        raise UsageError(f"-o {text}: unknown format", hint=hint)
    require_folder(path, flag="-o")
    return Output(format=formats[path.suffix.lower()], path=path)


def view_of(output: Output, *, top: int = 10, folded: str = "") -> View:
    """Return the view for an output: terminal width and colours on a terminal, otherwise 80 columns and no colours.

    COLUMNS, NO_COLOR and TERM=dumb override this. `folded` says how to see what a terminal leaves out, "" shows it.
    """
    on_terminal = output.path is None and sys.stdout.isatty()
    width = shutil.get_terminal_size(fallback=(80, 24)).columns if on_terminal or "COLUMNS" in os.environ else 80
    color = on_terminal and not os.environ.get("NO_COLOR") and reads_escapes()
    return View(top=top, width=width, color=color, folded=folded)


def write(text: str, output: Output) -> None:
    """Write the answer; raise `UsageError` if that fails."""
    try:
        if output.path is None:
            write_stdout(text)
        else:
            write_whole(text, output.path)
    except BrokenPipeError:  # not a user's mistake: `main` exits quietly
        raise
    except OSError as error:
        where = "stdout" if output.path is None else str(output.path)
        raise UsageError(f"cannot write to {where}: {error.strerror}", hint="choose another place with -o") from error


def write_answer(
    answer: _Answer,
    output: Output,
    content: "Callable[[_Answer], Iterable[Block]]",
    *,
    as_json: Callable[[_Answer], str] | None = None,
) -> None:
    """Write the content of the answer as text, or JSON, by default every field; raise `UsageError` if that fails."""
    if output.format == "json":
        from advisor.report.as_json import to_json

        write((as_json or to_json)(answer), output)
    else:
        from advisor.report.terminal import to_text

        write(to_text(content(answer), view_of(output)), output)
