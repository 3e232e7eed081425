"""Finds the engines: one file per engine."""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


def engine_names() -> tuple[str, ...]:
    """Return the name of every engine, as the user types it."""
    return tuple(sorted(module.name for module in iter_modules(__path__)))


def engine_module(name: str) -> ModuleType:
    """Return the module of one of `engine_names()`."""
    return import_module(f"{__name__}.{name}")
