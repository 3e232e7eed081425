"""A command whose flags cost imports: they are made when it is run, not when it is listed."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pathlib import Path


class LazyCommand(click.Command):
    """Its flags are made on first use: the list of commands needs none of them. Arguments come before them."""

    def __init__(self, *args: Any, make_flags: Callable[[], list[click.Parameter]], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.make_flags = make_flags
        self.has_flags = False

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
