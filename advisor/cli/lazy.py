"""A command whose flags cost imports: they are made when it is run, not when it is listed. Its help ends with the codes
that it exits with."""

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
    """The section of a help that lists them."""
    with formatter.section("Exit codes"):
        formatter.write_dl([(str(int(code)), meanings[code]) for code in sorted(codes)])


class LazyCommand(click.Command):
    """Its flags are made on first use: the list of commands needs none of them. Arguments come before them.

    `exits` are the codes that it can exit with beside those of every command; `meanings` are those that it words anew.
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
        """The exit codes, where other programs have their notes."""
        write_exit_codes(formatter, self._exits, meanings=self._meanings)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own arguments and flags, `--help`."""
        if not self.has_flags:
            self.params = [*self.params, *self.make_flags()]
            self.has_flags = True
        return super().get_params(ctx)


def path_of(text: str) -> "Path":
    """The type of an argument that is a file; the list of commands is spared the import."""
    from pathlib import Path

    return Path(text)
