"""A click command that makes its flags only when it runs, and lists its exit codes in its help."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from advisor.errors import EXIT_MEANINGS, ExitCode

if TYPE_CHECKING:
    from pathlib import Path


_ALWAYS = (ExitCode.ANSWER, ExitCode.USAGE, ExitCode.INTERRUPT)


def write_exit_codes(
    formatter: click.HelpFormatter, codes: Iterable[ExitCode], *, meanings: Mapping[ExitCode, str] = EXIT_MEANINGS
) -> None:
    """Write the "Exit codes" section of a help text."""
    with formatter.section("Exit codes"):
        formatter.write_dl([(str(int(code)), meanings[code]) for code in sorted(codes)])


class LazyCommand(click.Command):
    """A command that makes its flags on first use; listing the commands does not need them.

    `exits` are its exit codes in addition to those of every command; `meanings` replaces their descriptions. Arguments
    come before flags.
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
        self.make_flags = make_flags
        self.has_flags = False
        self._exits = (*_ALWAYS, *exits)
        self._meanings = {**EXIT_MEANINGS, **(meanings or {})}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes at the end of the help."""
        write_exit_codes(formatter, self._exits, meanings=self._meanings)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the arguments and flags of the command, including `--help`."""
        if not self.has_flags:
            self.params = [*self.params, *self.make_flags()]
            self.has_flags = True
        return super().get_params(ctx)


def path_of(text: str) -> "Path":
    """Return a file argument as a path; pathlib is imported only when such an argument is read."""
    from pathlib import Path

    return Path(text)
