"""The arguments that every command which reads a model has: SOURCE, `--run` and the script's own arguments."""

from collections.abc import Callable
from typing import Any

import click

from advisor.cli.commands import command_names
from advisor.cli.lazy import LazyCommand
from advisor.errors import UsageError


class SourceCommand(LazyCommand):
    """A command that reads a model; SOURCE, `-- ARGS` and `--run` come before its own flags."""

    def __init__(self, *args: Any, make_flags: Callable[[], list[click.Parameter]], **settings: Any) -> None:
        super().__init__(*args, make_flags=lambda: [*_source_parameters(), *make_flags()], **settings)


def _source_parameters() -> list[click.Parameter]:
    return [
        click.Argument(["source"], shell_complete=lambda *_: _files()),
        click.Argument(["script_args"], nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]"),
        click.Option(["--run"], is_flag=True, help="run SOURCE as a script, with ARGS, until its first step"),
    ]


def _files() -> list[Any]:
    from click.shell_completion import CompletionItem

    return [CompletionItem("", type="file")]


def check_script_args(source: str, script_args: tuple[str, ...], *, run: bool) -> None:
    """Raise `UsageError` if arguments follow SOURCE without `--run`."""
    if not script_args or run:
        return
    from difflib import get_close_matches

    close = get_close_matches(source, command_names(), n=1)
    hint = (
        f"did you mean the command {close[0]}?"
        if close
        else "to run a script, add --run and put its arguments after --"
    )
    raise UsageError(f"{script_args[0]!r} follows the source {source!r}, but only one source is allowed", hint=hint)
