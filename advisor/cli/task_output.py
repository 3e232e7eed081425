"""Writes the task file of `--emit ENGINE` instead of the answer."""

from datetime import date
from typing import TYPE_CHECKING

import click

from advisor.cli.flags import flag
from advisor.cli.output import STDOUT, Output, write
from advisor.cli.terminal import say
from advisor.errors import UsageError
from advisor.launch.engines import engine_names
from advisor.units import parse_count

if TYPE_CHECKING:
    from advisor.records.answer import Recommendation
    from advisor.records.script import Script

TASK_SUFFIXES = {"yaml": ".yaml", "yml": ".yml"}


def emit_flags() -> list[click.Option]:
    """Return `--emit` and the flags of its file."""
    emit_help = (
        "write a task file, or with --requests-per-day or -per-second a service's, that runs SOURCE on the best "
        "instance, to stdout or to -o FILE (.yaml .yml)"
    )
    idle_help = "with --emit: stop the machine after N idle minutes"
    return [
        flag("--emit", emit_help, choices=engine_names()),
        flag("--idle-minutes", idle_help, metavar="N", read=parse_count, default=10),
        flag(
            "--port",
            "with --emit: the port on which a service's script listens",
            metavar="N",
            read=parse_count,
            default=8000,
        ),
    ]


def check_task_output(source: str, *, emit: str | None, output: Output) -> None:
    """Raise `UsageError` if `--emit`, `-o` and the source cannot be combined, before any work is done."""
    is_task_file = output.format in TASK_SUFFIXES
    if emit is None:
        if is_task_file:
            raise UsageError(f"-o {output.format}: only a task file is YAML", hint="add --emit skypilot or dstack")
        return
    if not is_task_file and output != STDOUT:
        raise UsageError(f"-o {output.path or output.format}: a task file is YAML", hint="write -o task.yaml")

    from advisor.answers.launch_file import check_launchable

    check_launchable(source)


def write_task(
    recommendation: "Recommendation",
    *,
    engine: str,
    source: str,
    script_args: tuple[str, ...],
    idle_minutes: int,
    port: int,
    output: Output,
    captured: "Script | None",
) -> None:
    """Write the task file, and its notes to stderr."""
    from advisor.answers.launch_file import task_file

    task = task_file(
        recommendation,
        engine=engine,
        source=source,
        script_args=script_args,
        idle_minutes=idle_minutes,
        port=port,
        captured=captured,
        file=output.path,
        today=date.today(),
    )
    write(task.text, output)
    for note in task.notes:
        say(f"note: {note}")
    if output.path is not None:
        say(f"wrote {output.path}: run it with `{task.command} {output.path}`")
