"""`advise`: arguments in, an exit code out; a user's mistake ends in `error:` and `hint:`, never in a traceback."""

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import click

from advisor import __version__
from advisor.cli.commands import command_names, load_command
from advisor.cli.lazy import write_exit_codes
from advisor.cli.terminal import discard_stdout, say, write_stdout
from advisor.errors import AdvisorError, ExitCode, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

DEFAULT_COMMAND = "rank"
_OWN_FLAGS = ("-h", "--help", "--version", "--completion")
_COMPLETE = "_ADVISE_COMPLETE"
"""The variable by which a shell asks what could follow (click's convention)."""
_SHELLS = ("bash", "zsh", "fish")


class AdviseGroup(click.Group):
    """Finds its commands in `advisor.cli.commands` and imports one only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The default command first."""
        return sorted(command_names(), key=lambda name: (name != DEFAULT_COMMAND, name))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, if there is one."""
        return load_command(cmd_name) if cmd_name in command_names() else None

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The exit codes of all commands."""
        write_exit_codes(formatter, ExitCode)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Commands, and where none begins so the files that may be ranked."""
        from click.shell_completion import CompletionItem

        return super().shell_complete(ctx, incomplete) or [CompletionItem(incomplete, type="file")]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What does not start with a command or a flag of the group is for the default command."""
        if ctx.resilient_parsing:  # a shell asks what could follow
            return super().parse_args(ctx, args if not args or args[0] in command_names() else [DEFAULT_COMMAND, *args])
        if not args:
            raise UsageError("no model is named", hint="advise model.py, or advise --help")
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
    help="Print the script that completes commands and flags in a shell, and exit.",
)
def advise() -> None:
    """Say which CPU or GPU instance does a PyTorch job for the least money, how sure that is, and why.

    SOURCE is a model: a Python file, a training script, torchvision:NAME, timm:NAME, hf:CONFIG, a .pt2 or a saved
    workload. A Python file, a script and a .pt2 are EXECUTED, in a process of their own but with your rights: name only
    files that you trust. No GPU is needed, no weights are loaded, and nothing is rented.

    Without a command, SOURCE is ranked; "advise rank --help" lists the flags. A command wins over a file of the same
    name, which ./NAME reaches.

    \b
    Examples:
      advise model.py                         cheapest for a million samples
      advise model.py --mode training --samples 50000 --epochs 90
      advise train.py --run -- --lr 0.1       trace the first step of a script
      advise torchvision:resnet50 --device gpu --provider aws,gcp
      advise profile model.py --by module     where the FLOP and the bytes go
      advise explain model.py --on t4         where the time goes
      advise memory model.py --mode training  which devices it fits
      eval "$(advise --completion bash)"      completes commands and flags by TAB
      advise breakeven model.py               where a CPU and a GPU cost the same

    \b
    Environment:
      NO_COLOR    no colours
      COLUMNS     width of tables (default: the terminal's; 80 without one)
    """


def main() -> NoReturn:
    """Run `advise` on the process's arguments and leave with its exit code."""
    if instruction := os.environ.get(_COMPLETE):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(advise, {}, "advise", _COMPLETE, instruction))
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup has SIGHUP ignored
            signal.signal(number, signal.default_int_handler)  # as Ctrl-C: what has been started is ended
    sys.exit(run(sys.argv[1:]))


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
        with advise.make_context("advise", list(arguments)) as context:
            return int(advise.invoke(context))
    except AdvisorError as error:
        return _fail(error.message, hint=error.hint, code=error.exit_code)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        return _fail(_message(error), hint=_usage_hint(error), code=ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPT
    except BrokenPipeError:  # the reader (`| head`) has what it wanted
        discard_stdout()
        return ExitCode.ANSWER


def _fail(message: str, *, hint: str, code: ExitCode) -> int:
    say(f"error: {message}")
    if hint:
        say(f"hint: {hint}")
    return code


def _message(error: click.ClickException) -> str:
    """Click's message in the shape of ours: no capital, no full stop, no suggestion."""
    if isinstance(error, click.NoSuchOption):
        return f"there is no flag {error.option_name}"
    message = error.format_message().rstrip(".")
    return message[:1].lower() + message[1:]


def _usage_hint(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        return f"did you mean {' or '.join(sorted(error.possibilities))}?"
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'advise'} --help lists what can be given"
