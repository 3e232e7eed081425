"""Check that everything works on this machine."""

import click

from advisor.cli.command import Command
from advisor.cli.flags import option_flags
from advisor.cli.output import Output, table_or_json_flag, write_answer
from advisor.cli.terminal import progress
from advisor.errors import ExitCode
from advisor.records.options import Options


@click.command(
    "doctor",
    cls=Command,
    params=[*option_flags(only=("timeout", "profiles", "prices")), table_or_json_flag()],
    exits=(ExitCode.NOTHING_FITS,),
    meanings={ExitCode.NOTHING_FITS: "the main job cannot run"},
)
def command(output: Output, options: Options) -> int:
    """Run the whole program once with a tiny model, and say what is missing and how to fix it.

    The command checks the profiles, the cache folder, torch in a child process, a trace, a ranking, the devices of this
    machine and the optional packages. The main job is "advise FILE".

    \b
    Examples:
      advise doctor
      advise doctor --profiles mine -o json
    """
    from advisor.answers.checkup import examine
    from advisor.report.as_json import to_json
    from advisor.report.devices import checkup_content

    with progress("checking every stage"):
        checks = examine(options)
    write_answer(checks, output, checkup_content, as_json=lambda checks: to_json({"checks": checks}))
    return ExitCode.NOTHING_FITS if any(check.state == "fails" for check in checks) else ExitCode.ANSWER
