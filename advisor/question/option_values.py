"""Validates keywords into `Options`, as the command line and the service do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.records.flag_values import reader_of
from advisor.records.options import NOT_IN_PYTHON, GivenOptions, Options

MODEL_FUNCTIONS = ("loss", "optimizer", "train_step")
"""Keywords of the public functions that are not flags."""


def checked_options(**given: Any) -> Options:
    """Return the options that the keywords give; None stands for the default.

    Raises `UsageError` as the command line does.
    """
    known = Options.__dataclass_fields__
    values = {name: reader_of(known[name], called=name)(value) for name, value in given.items() if value is not None}
    return GivenOptions(**values, given=frozenset(values))


def options_of(keywords: Mapping[str, Any], *, function: str, without: tuple[str, ...] = ("measure",)) -> Options:
    """Return the options among the keywords of a public function; raise `TypeError` for keywords it does not take."""
    flags = {name: value for name, value in keywords.items() if name not in MODEL_FUNCTIONS}
    for name in flags:
        if name not in Options.__dataclass_fields__ or name in (*NOT_IN_PYTHON, *without):
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return checked_options(**flags)


def names_of(value: Any) -> tuple[str, ...]:
    """Return one name or several as the flags take them."""
    if isinstance(value, (str, Path)):
        return (str(value),)
    return tuple(str(name) for name in value)
