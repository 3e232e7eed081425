"""A field of `Options` and the text that a user gave for it in, its value out: the command line and the service."""

from collections.abc import Callable
from dataclasses import Field
from difflib import get_close_matches
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


def converter(field: Field[Any]) -> Callable[[Any], Any]:
    """From text to one value of the field: a number that does not say how it is read is a count from 1 or a time.

    The converter raises `UsageError` that begins with the flag.
    """
    flag, item_type = flag_name(field.name), value_type(field.type)
    if get_origin(item_type) is Literal:
        return choice(flag, get_args(item_type))
    if item_type is str:
        return str
    by_type: dict[Any, Callable[[str], float]] = {int: units.parse_count, float: units.parse_duration_s}
    read = field.metadata.get("parse") or by_type[item_type]

    def convert(text: Any) -> Any:
        try:
            return read(str(text))
        except UsageError as error:
            raise UsageError(f"{flag}: {error.message}", hint=error.hint) from error

    return convert


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
