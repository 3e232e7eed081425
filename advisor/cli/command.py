"""The click commands behind `advise`: they make their flags only when they run, and list their exit codes."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from advisor.cli.commands import command_names
from advisor.errors import EXIT_MEANINGS, ExitCode, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem

_SCRIPT_HINT = "to run a script, add --run and put its arguments after --"
_ALWAYS = (ExitCode.ANSWER, ExitCode.USAGE, ExitCode.INTERNAL, ExitCode.INTERRUPT)


def write_exit_codes(
    formatter: click.HelpFormatter, codes: Iterable[ExitCode], *, meanings: Mapping[ExitCode, str] = EXIT_MEANINGS
) -> None:
    """Write the "Exit codes" section of a help text."""
    with formatter.section("Exit codes"):
        formatter.write_dl([(str(int(code)), meanings[code]) for code in sorted(codes)])


class Command(click.Command):
    """A command that makes its flags on first use; listing the commands does not need them.

    `exits` are its exit codes in addition to those of every command; `meanings` replaces their descriptions. Arguments
    come before flags. The flags from `option_flags` reach the command's function as one record, `options`.
    """

    def __init__(
        self,
        *args: Any,
        make_flags: Callable[[], list[click.Parameter]] = list,
        exits: Iterable[ExitCode] = (),
        meanings: Mapping[ExitCode, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*args, **settings)
        self._make_flags: Callable[[], list[click.Parameter]] | None = make_flags
        self._exits = (*_ALWAYS, *exits)
        self._meanings = {**EXIT_MEANINGS, **(meanings or {})}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes at the end of the help."""
        write_exit_codes(formatter, self._exits, meanings=self._meanings)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the arguments and flags of the command, including `--help`."""
        if self._make_flags is not None:
            self.params, self._make_flags = [*self.params, *self._make_flags()], None
        return super().get_params(ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command's function."""
        self.gather_options(ctx)
        return super().invoke(ctx)

    def gather_options(self, ctx: click.Context) -> None:
        """Replace the values of the flags from `option_flags` by one record, `options`."""
        from advisor.cli.flags import OptionFlag
        from advisor.records.options import Options, ScriptOptions

        gathered = {flag.name: ctx.params.pop(flag.name) for flag in self.params if isinstance(flag, OptionFlag)}
        if gathered and ctx.params.get("run"):
            given = {name for name in gathered if ctx.get_parameter_source(str(name)) is ParameterSource.COMMANDLINE}
            ctx.params["options"] = ScriptOptions(**gathered, given=frozenset(map(str, given)))
        elif gathered:
            ctx.params["options"] = Options(**gathered)


class SourceCommand(Command):
    """A command that reads a model; SOURCE, `-- ARGS` and `--run` come before its own flags.

    With `traces_early`, the command's function takes the result of `early_trace` as `trace`.
    """

    def __init__(
        self,
        *args: Any,
        make_flags: Callable[[], list[click.Parameter]],
        traces_early: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(*args, make_flags=lambda: [*_source_parameters(), *make_flags()], **settings)
        self._traces_early = traces_early

    def gather_options(self, ctx: click.Context) -> None:
        """Start the trace with the options; raise `UsageError` if arguments follow SOURCE without `--run`."""
        source, following = ctx.params["source"], ctx.params["script_args"]
        if following and not ctx.params["run"]:
            from difflib import get_close_matches

            close = get_close_matches(source, command_names(), n=1)
            hint = f"did you mean the command {close[0]}?" if close else _SCRIPT_HINT
            problem = f"{following[0]!r} follows the source {source!r}, but only one source is allowed"
            raise UsageError(problem, hint=hint)
        super().gather_options(ctx)
        if self._traces_early:
            from advisor.question.early_trace import early_trace

            trace = early_trace(source, ctx.params["options"], run=ctx.params["run"], script_args=following)
            if trace is not None:
                ctx.call_on_close(trace.close)
            ctx.params["trace"] = trace


def _source_parameters() -> list[click.Parameter]:
    return [
        click.Argument(["source"], shell_complete=lambda *_: _files()),
        click.Argument(["script_args"], nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]"),
        click.Option(["--run"], is_flag=True, help="run SOURCE as a script, with ARGS, until its first step"),
    ]


def _files() -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    return [CompletionItem("", type="file")]


def path_of(text: str) -> "Path":
    """Return a file argument as a path; pathlib is imported only when such an argument is read."""
    from pathlib import Path

    return Path(text)
