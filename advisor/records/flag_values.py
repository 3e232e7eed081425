"""A field of `Options` and what a user gave for it in, its value out: for the command line, Python and the service."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field
from decimal import Decimal
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from advisor import units
from advisor.errors import UsageError

TAKES_COMMAS = frozenset({"provider", "region", "tier", "device"})
"""Names never hold a comma; file names and input specifications may."""

_BATCH_DIGITS = 9
"""A step of a thousand million samples fits nowhere."""


def flag_name(field: str) -> str:
    """`max_usd` as it is typed: `--max-usd`."""
    return f"--{field.replace('_', '-')}"


def converter(field: Field[Any], *, called: str = "") -> Callable[[Any], Any]:
    """From text to one value of the field: a number that does not say how it is read is a count from 1 or a time.

    The converter raises `UsageError` that begins with `called`, the flag where nothing else is said.
    """
    called, item_type = called or flag_name(field.name), value_type(field.type)
    if get_origin(item_type) is Literal:
        return choice(called, get_args(item_type))
    if item_type is str:
        return field.metadata.get("parse") or str
    by_type: dict[Any, Callable[[str], float]] = {int: units.parse_count, float: units.parse_duration_s}
    return reader(called, field.metadata.get("parse") or by_type[item_type])


def reader(called: str, read: Callable[[str], Any]) -> Callable[[Any], Any]:
    """`read`, with what it raises said of `called`, the flag or the keyword."""

    def convert(text: Any) -> Any:
        try:
            return read(str(text))
        except UsageError as error:
            raise UsageError(f"{called}: {error.message}", hint=error.hint) from error

    return convert


def option_value(field: Field[Any], value: Any, *, called: str) -> Any:
    """The value of the field that is meant by text as on the command line, a number, true or false, or several names.

    Raises `UsageError` that begins with `called`: all that the command line refuses is refused here.
    """
    if field.type is bool:
        if isinstance(value, bool):
            return value
        raise _wrong_type(value, "true or false", called=called)
    convert = converter(field, called=called)
    if not is_several(field):
        return convert(_as_typed(value, called=called))
    names = [value] if isinstance(value, (str, Path)) else value
    if not isinstance(names, Iterable) or isinstance(names, Mapping):
        raise _wrong_type(value, "a name or a list of names", called=called)
    split = comma_list(convert) if field.name in TAKES_COMMAS else lambda text: (convert(text),)
    found: list[Any] = []
    for name in names:
        if not isinstance(name, (str, Path)):
            raise _wrong_type(name, "a name", called=called)
        found += split(str(name))
    return tuple(found)


def _as_typed(value: Any, *, called: str) -> str:
    """Text as it is; a number as it is typed, without an exponent."""
    if isinstance(value, (str, Path)):
        return str(value)
    if isinstance(value, Real) and not isinstance(value, bool):
        return f"{Decimal(int(value)) if isinstance(value, Integral) else Decimal(repr(float(value))):f}"
    raise _wrong_type(value, "text or a number", called=called)


def _wrong_type(value: Any, wanted: str, *, called: str) -> UsageError:
    return UsageError(f"{called}: found {value!r:.80}, expected {wanted}", hint=f"give {wanted}, or leave it out")


def single_batch_of(text: str) -> int | None:
    """The batch size where `--batch text` is one number that a step can have."""
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _BATCH_DIGITS else None


def choice(flag: str, choices: tuple[str, ...]) -> Callable[[str], str]:
    """A converter that takes one of `choices` in any case, and says which one was probably meant."""

    def convert(text: str) -> str:
        if text.lower() in choices:
            return text.lower()
        close = get_close_matches(text.lower(), choices, n=1)
        listed = f"one of {', '.join(choices)}"
        raise UsageError(
            f"{flag}: {text!r} is not {listed}", hint=f"did you mean {close[0]}?" if close else f"give {listed}"
        )

    return convert


def comma_list(convert: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Each value between commas; nothing between two commas is nothing."""
    return lambda text: tuple(convert(part.strip()) for part in text.split(",") if part.strip())


def value_type(annotation: Any) -> Any:
    """`int` of `int | None`, `str` of `tuple[str, ...]`, any other type itself."""
    if get_origin(annotation) is UnionType or get_origin(annotation) is tuple:
        return next(member for member in get_args(annotation) if member not in (type(None), Ellipsis))
    return annotation


def is_several(field: Field[Any]) -> bool:
    """Whether the flag can be repeated."""
    return get_origin(field.type) is tuple


def is_workload_file(source: str) -> bool:
    """Whether SOURCE is what `advise profile -o` writes."""
    return source.endswith(".json") and not source.startswith("hf:")
