"""The commands: one file per command, with its click command under the name `command` and its short help on line 1."""

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click


@cache
def command_names() -> tuple[str, ...]:
    """Return the name of every command, as the user types it."""
    files = (name for name in os.listdir(__path__[0]) if name.endswith(".py") and name != "__init__.py")
    return tuple(sorted(name.removesuffix(".py").replace("_", "-") for name in files))


def load_command(name: str) -> "click.Command":
    """Import and return the command with this name, one of `command_names()`."""
    module = import_module(f"{__name__}.{_module(name)}")
    command: click.Command = module.command
    command.short_help = module.__doc__
    return command


def short_help(name: str) -> str:
    """Return the docstring of a command's module; reading it takes a tenth of the time of importing the command."""
    with open(os.path.join(__path__[0], f"{_module(name)}.py"), encoding="utf-8") as file:
        return file.readline().strip().strip('"')


def _module(name: str) -> str:
    return name.replace("-", "_")
