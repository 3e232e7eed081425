"""Validates keywords into `Options`, as the command line and the service do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.records.flag_values import option_value
from advisor.records.options import Options


def checked_options(**given: Any) -> Options:
    """The options that keywords give, None being the default; raise `UsageError` as the command line does."""
    known = Options.__dataclass_fields__
    return Options(
        **{name: option_value(known[name], value, called=name) for name, value in given.items() if value is not None}
    )


def names_of(value: Any) -> tuple[str, ...]:
    """One name or several, as the flags take them."""
    if isinstance(value, (str, Path)):
        return (str(value),)
    return tuple(str(name) for name in value)


_NOT_TAKEN = ("input", "timeout", "measure")
"""Of sources alone, and what `recommend` alone does."""


def options_of(flags: Mapping[str, Any], *, function: str) -> Options:
    """The options that the keywords of `recommend` say, given to `function`."""
    for name in flags:
        if name not in Options.__dataclass_fields__ or name in _NOT_TAKEN:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return checked_options(**flags)
