"""The entry point of `advise`: runs a command and reports a user's mistake without a traceback."""

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import click

from advisor import __version__
from advisor.cli.command import complete_source, write_exit_codes
from advisor.cli.commands import command_names, load_command, short_help
from advisor.cli.terminal import discard_stdout, say, write_stdout
from advisor.errors import AdvisorError, ExitCode, UsageError, did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

DEFAULT_COMMAND = "rank"
_OWN_FLAGS = ("-h", "--help", "--version", "--completion")
_COMPLETE = "_ADVISE_COMPLETE"
"""The variable that a shell sets to ask for completions (click's convention)."""
_SHELLS = ("bash", "zsh", "fish")
_SYNONYMS = {
    "--gpu": "--device NAME, such as --device t4",
    "--accelerator": "--device NAME, such as --device t4",
    "--spot": "--price spot",
    "--budget": "--max-usd USD",
    "--quantization": "--weights FORMAT, such as --weights int4",
    "--dtype": "--precision NAME, such as --precision bf16",
    "--max-batch-size": "--batch 1..N",
}
"""Flags of other tools -> the flag of this program."""


class AdviseGroup(click.Group):
    """The group of all commands in `advisor.cli.commands`; it imports a command only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, the default command first."""
        return sorted(command_names(), key=lambda name: (name != DEFAULT_COMMAND, name))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with that name, or None."""
        return load_command(cmd_name) if cmd_name in command_names() else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every command with its short help, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, short_help(name)) for name in self.list_commands(ctx)])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes of all commands."""
        write_exit_codes(formatter, ExitCode)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete commands, or files if no command begins like this."""
        return super().shell_complete(ctx, incomplete) or complete_source(incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; without a command or a flag of the group, they are for the default command."""
        if ctx.resilient_parsing:  # a shell asks for completions
            return super().parse_args(ctx, args if not args or args[0] in command_names() else [DEFAULT_COMMAND, *args])
        if not args:
            raise UsageError("no model given", hint="try `advise model.py` or `advise --help`")
        if args[0] not in (*command_names(), *_OWN_FLAGS):
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=AdviseGroup, context_settings={"help_option_names": ["-h", "--help"]}, subcommand_metavar="[COMMAND] SOURCE"
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option(
    "--completion",
    type=click.Choice(_SHELLS),
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, _flag, shell: _print_completion(ctx, shell),
    help="Print the completion script for a shell, and exit.",
)
def advise() -> None:
    """Find the CPU or GPU instance that runs a PyTorch job for the least money, with the uncertainty and the reason.

    SOURCE is a model: a Python file, a training script, torchvision:NAME, timm:NAME, hf:ID_OR_CONFIG, a .pt2, an .onnx,
    a trainer's .yaml or a saved workload. Python files, scripts and .pt2 files are EXECUTED, in a separate process but
    with your permissions: name only files that you trust. No GPU is needed, no weights are loaded, nothing is rented.

    Without a command, "advise SOURCE" ranks; "advise rank --help" lists the flags. If a file has the name of a command,
    write ./NAME to mean the file.

    \b
    Examples:
      advise model.py                         cheapest for a million samples
      advise model.py --mode training --samples 50000 --epochs 90
      advise train.py --run -- --lr 0.1       trace the first step of a script
      advise torchvision:resnet50 --device gpu --provider aws,gcp
      advise profile model.py --by module     where the FLOP and the bytes go
      advise explain model.py --on t4         where the time goes
      advise memory model.py --mode training  which devices have enough memory
      advise breakeven model.py               where a CPU and a GPU cost the same
      eval "$(advise --completion bash)"      complete commands and flags with TAB

    \b
    Environment:
      NO_COLOR        no colours
      TERM=dumb       no colours and no progress line
      COLUMNS         width of tables (default: the terminal's; 80 without one)
      XDG_CACHE_HOME  parent of the cache folder "advisor" (default: ~/.cache)
    """


def main() -> NoReturn:
    """Run `advise` on the process's arguments and leave with its exit code."""
    if instruction := os.environ.get(_COMPLETE):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(advise, {}, "advise", _COMPLETE, instruction))
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # under nohup, SIGHUP is ignored
            signal.signal(number, signal.default_int_handler)  # like Ctrl-C, so that child processes are stopped
    try:
        code = run(sys.argv[1:])
    except Exception as error:  # noqa: BLE001 - a bug; Python would exit with 1, which means that nothing fits
        sys.excepthook(type(error), error, error.__traceback__)
        code = ExitCode.INTERNAL
    sys.exit(code)


def _print_completion(context: click.Context, shell: str | None) -> None:
    if shell is None or context.resilient_parsing:
        return
    from click.shell_completion import get_completion_class

    completion = get_completion_class(shell)
    if completion is None:
        raise ValueError(f"click completes nothing in {shell}")
    write_stdout(f"{completion(advise, {}, 'advise', _COMPLETE).source()}\n")
    context.exit()


def run(arguments: Sequence[str]) -> int:
    """Run `advise` and return its exit code."""
    try:
        with advise.make_context("advise", list(arguments), terminal_width=_help_width()) as context:
            return int(advise.invoke(context))
    except AdvisorError as error:
        return _fail(error.message, hint=error.hint, code=error.exit_code)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        return _fail(_message(error), hint=_usage_hint(error, arguments), code=ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPT
    except BrokenPipeError:  # the reader (`| head`) has closed the pipe
        discard_stdout()
        return ExitCode.ANSWER


def _help_width() -> int:
    """Return the width that click gives help texts; click's own way imports compression libraries for it."""
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else 0
    if not width:
        try:
            width = os.get_terminal_size().columns
        except OSError:
            width = 80
    return max(min(width, 80) - 2, 50)


def _fail(message: str, *, hint: str, code: ExitCode) -> int:
    say(f"error: {message}")
    if hint:
        say(f"hint: {hint}")
    return code


def _message(error: click.ClickException) -> str:
    """Return click's message in our style: no capital, no full stop, no suggestion."""
    if isinstance(error, click.NoSuchOption):
        return f"no such flag: {error.option_name}"
    message = error.format_message().rstrip(".")
    return message[:1].lower() + message[1:]


def _commands_with(flag: str) -> list[str]:
    """Return the commands that have the flag."""
    return [name for name in command_names() if any(flag in one.opts for one in load_command(name).params)]


def _usage_hint(error: click.ClickException, arguments: Sequence[str]) -> str:
    if isinstance(error, click.NoSuchOption):
        name = error.option_name
        owners = ", ".join(f"`advise {command}`" for command in _commands_with(name))
        meant = f"write {_SYNONYMS[name]}" if name in _SYNONYMS else ""
        meant = f"{name} is a flag of {owners}" if owners else meant
        meant = meant or did_you_mean(name, error.possibilities or (), most=3)
        of_script = f"arguments of the script follow --: --run -- {name}" if "--run" in arguments else ""
        if meant or of_script:
            return "; ".join(filter(None, (of_script, meant)))
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'advise'} --help lists the arguments and flags"
