"""One file for each engine."""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


def engine_names() -> tuple[str, ...]:
    """Every engine by the name that is typed."""
    return tuple(sorted(module.name for module in iter_modules(__path__)))


def engine_module(name: str) -> ModuleType:
    """The module of one of `engine_names`."""
    return import_module(f"{__name__}.{name}")
