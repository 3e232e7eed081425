"""The click commands behind `advise`: they list their exit codes, and read a source with its flags."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from advisor.cli.commands import command_names
from advisor.errors import EXIT_MEANINGS, ExitCode, UsageError, did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from advisor.question.record import Question
    from advisor.records.options import Options
    from advisor.workload.source_trace import SourceTrace

_SCRIPT_HINT = "to run a script, add --run and put its arguments after --"
_NO_COMMANDS = {
    "compare": "`advise diff BASE.json NEW.json` compares two answers, `advise SOURCE --compare-to BASE.json` a new one"
}
"""Hints for commands that users expect and that have other names."""
_ALWAYS = (ExitCode.ANSWER, ExitCode.USAGE, ExitCode.INTERNAL, ExitCode.INTERRUPT)


def write_exit_codes(
    formatter: click.HelpFormatter, codes: Iterable[ExitCode], *, meanings: Mapping[ExitCode, str] = EXIT_MEANINGS
) -> None:
    """Write the "Exit codes" section of a help text."""
    with formatter.section("Exit codes"):
        formatter.write_dl([(str(int(code)), meanings[code]) for code in sorted(codes)])


class Command(click.Command):
    """A command that lists its exit codes: `exits` in addition to those of every command.

    `meanings` replaces their descriptions. The flags from `option_flags` reach the command's function as one record,
    `options`.
    """

    def __init__(
        self,
        *args: Any,
        exits: Iterable[ExitCode] = (),
        meanings: Mapping[ExitCode, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*args, **settings)
        self._exits = (*_ALWAYS, *exits)
        self._meanings = {**EXIT_MEANINGS, **(meanings or {})}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes at the end of the help."""
        write_exit_codes(formatter, self._exits, meanings=self._meanings)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command's function."""
        self.gather_options(ctx)
        return super().invoke(ctx)

    def gather_options(self, ctx: click.Context) -> None:
        """Replace the values of the flags from `option_flags` by one record, `options`."""
        from advisor.cli.flags import OptionFlag
        from advisor.records.options import GivenOptions, ScriptOptions

        gathered = {flag.name: ctx.params.pop(flag.name) for flag in self.params if isinstance(flag, OptionFlag)}
        if gathered:
            given = {name for name in gathered if ctx.get_parameter_source(str(name)) is ParameterSource.COMMANDLINE}
            kind = ScriptOptions if ctx.params.get("run") else GivenOptions
            ctx.params["options"] = kind(**gathered, given=frozenset(map(str, given)))


class Asked(NamedTuple):
    """SOURCE, what is given with it, and its trace where that has started."""

    source: str
    run: bool
    script_args: tuple[str, ...]
    options: "Options"
    trace: "SourceTrace | None" = None

    def question(self, **how: Any) -> "Question":
        """Trace the source and collect what its answer needs; `how` is as `question_from_source` takes it."""
        from advisor.question.from_source import question_from_source

        return question_from_source(
            self.source, self.options, run=self.run, script_args=self.script_args, trace=self.trace, **how
        )


class SourceCommand(Command):
    """A command that reads a model; SOURCE, `-- ARGS` and `--run` come before its own flags.

    They and the options reach the command's function as `asked`. With `traces_early` the trace starts at once.
    """

    def __init__(self, *args: Any, params: list[click.Parameter], traces_early: bool = False, **settings: Any) -> None:
        super().__init__(*args, params=[*_source_parameters(), *params], **settings)
        self._traces_early = traces_early

    def gather_options(self, ctx: click.Context) -> None:
        """Gather what is asked, and start the trace; raise `UsageError` if arguments follow SOURCE without `--run`."""
        source, following = ctx.params["source"], ctx.params["script_args"]
        if following and not ctx.params["run"]:
            problem = f"{following[0]!r} follows the source {source!r}, but only one source is allowed"
            hint = _NO_COMMANDS.get(source) or did_you_mean(source, command_names(), otherwise=_SCRIPT_HINT)
            raise UsageError(problem, hint=hint)
        super().gather_options(ctx)
        asked = Asked(**{name: ctx.params.pop(name) for name in ("source", "run", "script_args", "options")})
        if self._traces_early:
            from advisor.question.early_trace import early_trace

            trace = early_trace(source, asked.options, run=asked.run, script_args=following)
            if trace is not None:
                ctx.call_on_close(trace.close)
            asked = asked._replace(trace=trace)
        ctx.params["asked"] = asked


def complete_source(typed: str) -> "list[CompletionItem]":
    """Complete `hf:` by the models whose configs are on this disk, and anything else as a file."""
    from click.shell_completion import CompletionItem

    if not typed.startswith("hf:"):
        return [CompletionItem(typed, type="file")]
    from advisor.workload.model_config import known_ids

    return [CompletionItem(source) for one in known_ids() if (source := f"hf:{one}").startswith(typed)]


def _source_parameters() -> list[click.Parameter]:
    return [
        click.Argument(["source"], shell_complete=lambda _context, _argument, typed: complete_source(typed)),
        click.Argument(["script_args"], nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]"),
        click.Option(["--run"], is_flag=True, help="run SOURCE as a script, with ARGS, until its first step"),
    ]
