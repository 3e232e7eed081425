"""Answer coding agents over the Model Context Protocol."""

import sys
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from advisor.cli.command import Command
from advisor.cli.flags import flag, option_flags
from advisor.cli.terminal import say
from advisor.errors import ExitCode, UsageError
from advisor.records.options import Options

_ANSWERS_HELP = "folder for the full answers (default: a temporary one, removed at the end)"
_RUN_HELP = "folder whose model files and scripts may be EXECUTED, with your permissions; repeat for several"


@click.command(
    "mcp",
    cls=Command,
    params=[
        flag("--answers", _ANSWERS_HELP, metavar="DIR", read=Path),
        flag("--allow-run", _RUN_HELP, metavar="DIR", read=Path, multiple=True),
        *option_flags(only=("profiles", "prices")),
    ],
)
def command(answers: Path | None, allow_run: tuple[Path, ...], options: Options) -> int:
    """Answer a coding agent's questions over the Model Context Protocol, on stdin and stdout.

    An agent starts this command itself; docs/mcp.md has its settings. The tools are recommend, explain, memory,
    breakeven and prices. They answer for hf:, timm: and torchvision: names and for files saved by
    "advise profile -o". A model file is executed only if it is in a folder that --allow-run names.

    \b
    Examples:
      advise mcp
      advise mcp --answers answers --prices negotiated.yaml
      advise mcp --allow-run models
    """
    try:
        from advisor.mcp.server import serve
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed", hint="the MCP server needs it: pip install mcp") from error
    from advisor.mcp.tools import Settings

    for name, folder in (("--answers", answers), *(("--allow-run", folder) for folder in allow_run)):
        if folder is not None and not folder.is_dir():
            raise UsageError(f"{name} {folder}: no such folder", hint="create it, or name another")
    if sys.stdin.isatty():
        say("note: an agent is expected on stdin: see docs/mcp.md. Ctrl-C ends the server.")
    prices = tuple(map(Path, options.prices))
    profiles = Path(options.profiles) if options.profiles else None
    with nullcontext(str(answers)) if answers else TemporaryDirectory(prefix="advise-") as place:
        serve(Settings(answers=Path(place), allow_run=allow_run, profiles=profiles, prices=prices))
    return ExitCode.ANSWER
