"""One command a file; each has its click command under the name `command`."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click


@cache
def command_names() -> tuple[str, ...]:
    """Every command by the name that is typed."""
    return tuple(module.name.replace("_", "-") for module in iter_modules(__path__))


def load_command(name: str) -> "click.Command":
    """The command of one of `command_names`, from its file."""
    command: click.Command = import_module(f"{__name__}.{name.replace('-', '_')}").command
    return command
