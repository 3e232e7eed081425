"""`advise doctor`: check that everything works on this machine, and say how to fix what does not."""

from typing import TYPE_CHECKING, Any

import click

from advisor.cli.lazy import LazyCommand
from advisor.cli.progress import progress
from advisor.errors import ExitCode

if TYPE_CHECKING:
    from advisor.cli.output import Output

_OPTION_FLAGS = ("timeout", "profiles", "prices")


def _flags() -> list[click.Parameter]:
    from advisor.cli.flags import option_flags
    from advisor.cli.output import output_flag

    return [
        *option_flags(only=_OPTION_FLAGS),
        output_flag({"table": ".txt", "json": ".json"}, help_text="table, or json, to stdout; or a file (.txt .json)"),
    ]


@click.command(
    "doctor",
    cls=LazyCommand,
    make_flags=_flags,
    exits=(ExitCode.NOTHING_FITS,),
    meanings={ExitCode.NOTHING_FITS: "the main job cannot run"},
    short_help="Check that everything works on this machine.",
)
def command(output: "Output", **params: Any) -> int:
    """Run the whole program once with a tiny model, and say what is missing and how to fix it.

    The command checks the profiles, the cache folder, torch in a child process, a trace, a ranking, the devices of this
    machine and the optional packages. The main job is "advise FILE".

    \b
    Examples:
      advise doctor
      advise doctor --profiles mine -o json
    """
    from advisor.answers.checkup import examine
    from advisor.cli.flags import options_from
    from advisor.cli.output import view_of, write

    options = options_from(params)
    with progress("checking every stage"):
        checks = examine(options)
    if output.format == "json":
        from advisor.report.as_json import to_json

        write(to_json({"checks": checks}), output)
    else:
        from advisor.report.checkup import checkup_content
        from advisor.report.terminal import to_text

        write(to_text(checkup_content(checks), view_of(output, top=options.top)), output)
    return ExitCode.NOTHING_FITS if any(check.state == "fails" for check in checks) else ExitCode.ANSWER
