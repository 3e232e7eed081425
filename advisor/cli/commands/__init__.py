"""Finds and imports the commands: one file per command, each with its click command under the name `command`."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click


@cache
def command_names() -> tuple[str, ...]:
    """Return the name of every command, as the user types it."""
    return tuple(module.name.replace("_", "-") for module in iter_modules(__path__))


def load_command(name: str) -> "click.Command":
    """Import and return the command with this name, one of `command_names()`."""
    command: click.Command = import_module(f"{__name__}.{name.replace('-', '_')}").command
    return command
