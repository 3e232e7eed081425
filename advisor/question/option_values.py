"""Validates keywords into `Options`, as the command line and the service do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.records.flag_values import option_value
from advisor.records.options import Options

_NOT_TAKEN = ("input", "timeout", "measure")
"""The first two are about sources; only `recommend` measures."""


def checked_options(**given: Any) -> Options:
    """Return the options that the keywords give; None stands for the default.

    Raises `UsageError` as the command line does.
    """
    known = Options.__dataclass_fields__
    return Options(
        **{name: option_value(known[name], value, called=name) for name, value in given.items() if value is not None}
    )


def options_of(flags: Mapping[str, Any], *, function: str) -> Options:
    """Return the options that the `**flags` of a public function give; raise `TypeError` for other keywords."""
    for name in flags:
        if name not in Options.__dataclass_fields__ or name in _NOT_TAKEN:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return checked_options(**flags)


def options_among(arguments: Mapping[str, Any]) -> Options:
    """Return the options that are among a function's arguments."""
    return checked_options(**{name: value for name, value in arguments.items() if name in Options.__dataclass_fields__})


def names_of(value: Any) -> tuple[str, ...]:
    """Return one name or several as the flags take them."""
    if isinstance(value, (str, Path)):
        return (str(value),)
    return tuple(str(name) for name in value)
