"""Reads what a user gives for a field of `Options`, in the same way on the command line, in Python and over HTTP."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import Field, fields
from decimal import Decimal
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from advisor import units
from advisor.errors import UsageError, did_you_mean
from advisor.records.options import TAKES_COMMAS, Options
from advisor.records.workload import Workload

_BATCH_DIGITS = 9
"""A step with more digits of samples fits no device."""


def flag_name(field: str) -> str:
    """Return the flag of a field: `--max-usd` for `max_usd`."""
    return f"--{field.replace('_', '-')}"


_FLAGS = re.compile(r"`advise [^`]*`|--[a-z]+(?:-[a-z0-9]+)*")
_ON = "on"
"""The devices to explain: no option, but a keyword in Python and a key of a request beside the options."""
_FIELD_OF_FLAG = {
    **{flag_name(name): name for name in (*(field.name for field in fields(Options)), _ON)},
    "`advise rank`": "`recommend`",
}


def first_field(text: str) -> str:
    """Return the place in a request of the first flag in a message: "options.max_usd", or "" if it names none."""
    flags = (found for found in _FLAGS.findall(text) if not found.startswith("`"))
    field = _FIELD_OF_FLAG.get(next(flags, ""), "")
    return field if field in ("", _ON) else f"options.{field}"


def with_fields(text: str, *, without: Collection[str] = ()) -> str:
    """Return a message with flags named as fields, `max_usd` for `--max-usd`, and `recommend` for `advise rank`.

    Other commands of `advise` stay as they are, and so do the flags of the fields in `without`.
    """

    def named(found: re.Match[str]) -> str:
        field = _FIELD_OF_FLAG.get(found.group(), found.group())
        return found.group() if field in without else field

    return _FLAGS.sub(named, text)


def value_type(annotation: Any) -> Any:
    """Return `int` for `int | None`, `str` for `tuple[str, ...]`, and any other type unchanged."""
    if get_origin(annotation) is UnionType or get_origin(annotation) is tuple:
        return next(member for member in get_args(annotation) if member not in (type(None), Ellipsis))
    return annotation


def is_several(field: Field[Any]) -> bool:
    """Return whether the flag can be repeated."""
    return get_origin(field.type) is tuple


def reader_of(field: Field[Any], *, called: str = "") -> Callable[[Any], Any]:
    """Return a function that reads a value of the field: text as on the command line, a number, a boolean or names.

    A field without its own parser is a count of at least 1 if it is an int, and a time if it is a float. The function
    raises `UsageError` with a message that begins with `called`, by default the flag.
    """
    called = called or flag_name(field.name)
    if field.type is bool:
        return partial(_boolean, called=called)
    read_one = _text_reader(field, called=called)
    if not is_several(field):
        return lambda value: read_one(_text(value, called=called))
    split = comma_list(read_one) if field.name in TAKES_COMMAS else lambda text: (read_one(text),)
    return lambda value: tuple(item for name in _names(value, called=called) for item in split(name))


def _text_reader(field: Field[Any], *, called: str) -> Callable[[str], Any]:
    item_type, parse = value_type(field.type), field.metadata.get("parse")
    if get_origin(item_type) is Literal:
        return choice(called, get_args(item_type))
    if item_type is str:
        return parse or str
    by_type: dict[Any, Callable[[str], float]] = {int: units.parse_count, float: units.parse_duration_s}
    return naming(called, parse or by_type[item_type])


def naming(called: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return `read` with errors that begin with `called`, the flag or the keyword."""

    def read_named(text: str) -> Any:
        try:
            return read(text)
        except UsageError as error:
            raise UsageError(f"{called}: {error.message}", hint=error.hint) from error

    return read_named


def choice(flag: str, choices: tuple[str, ...]) -> Callable[[str], str]:
    """Return a function that accepts one of `choices` in any case and suggests the closest one otherwise."""

    def read(text: str) -> str:
        if text.lower() in choices:
            return text.lower()
        raise UsageError(f"{flag}: {text!r} is not one of {', '.join(choices)}", hint=did_you_mean(text, choices))

    return read


def comma_list(read: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Return a function that reads comma-separated values; empty values are skipped."""
    return lambda text: tuple(read(part.strip()) for part in text.split(",") if part.strip())


def _boolean(value: Any, *, called: str) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong_type(value, "true or false", called=called)


def _text(value: Any, *, called: str) -> str:
    """Return text unchanged, and a number as digits without an exponent."""
    if isinstance(value, (str, Path)):
        return str(value)
    if isinstance(value, Real) and not isinstance(value, bool):
        return f"{Decimal(int(value)) if isinstance(value, Integral) else Decimal(repr(float(value))):f}"
    raise _wrong_type(value, "text or a number", called=called)


def _names(value: Any, *, called: str) -> Iterable[str]:
    names = [value] if isinstance(value, (str, Path)) else value
    if not isinstance(names, Iterable) or isinstance(names, Mapping):
        raise _wrong_type(value, "a name or a list of names", called=called)
    for name in names:
        if not isinstance(name, (str, Path)):
            raise _wrong_type(name, "a name", called=called)
        yield str(name)


def _wrong_type(value: Any, wanted: str, *, called: str) -> UsageError:
    return UsageError(f"{called}: found {value!r:.80}, expected {wanted}", hint=f"use {wanted}, or leave it out")


def single_batch_of(text: str) -> int | None:
    """Return the batch size if the text of `--batch` is a single number above 0 of at most 9 digits, else None."""
    digits = text.strip()
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _BATCH_DIGITS
    return (int(digits) or None) if is_number else None


def own_batch(workload: Workload, options: Options) -> int:
    """Return the global batch size that is used without `--batch`.

    If it is not known how the step grows with the batch, every pass of every GPU takes the workload's own batch.
    """
    passes = 1 if workload.batch_is_affine else (options.gpus or 1) * options.accumulate
    return workload.batch * passes


def takes_own_batch(workload: Workload, options: Options) -> bool:
    """Return whether `--batch` leaves the step at `own_batch`, the only one known of a step of unknown growth."""
    return not workload.batch_is_affine and options.batch.strip() in ("", "auto", str(own_batch(workload, options)))


def is_given(options: Options, name: str) -> bool:
    """Return whether the option of this name has another value than its default."""
    return getattr(options, name) not in (None, Options.__dataclass_fields__[name].default)


def is_recipe(source: str) -> bool:
    """Return whether the source is a trainer's configuration file, by its suffix."""
    return source.endswith((".yaml", ".yml")) and ":" not in source


def is_workload_file(source: str) -> bool:
    """Return whether SOURCE is a file from `advise profile -o`."""
    return source.endswith(".json") and not source.startswith("hf:")
