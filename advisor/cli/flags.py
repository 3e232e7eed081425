"""The fields of `Options` in, click options out: a flag is defined once, in the record."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, fields
from difflib import get_close_matches
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import click

from advisor import units
from advisor.errors import UsageError
from advisor.records.options import Options

_TAKES_COMMAS = frozenset({"provider", "region", "tier", "device"})
"""Names never hold a comma; file names and input specifications may."""


def option_flags(*, only: Collection[str] | None = None) -> list[click.Parameter]:
    """The flags of `Options`, or those named in `only`, in the order of the record."""
    return [_flag(field) for field in fields(Options) if only is None or field.name in only]


def options_from(params: Mapping[str, Any]) -> Options:
    """The record that click's parameters say; parameters that are no field of it are not read."""
    given: dict[str, Any] = {field.name: params[field.name] for field in fields(Options) if field.name in params}
    for name in _TAKES_COMMAS & given.keys():
        given[name] = tuple(item for items in given[name] for item in items)
    return Options(**given)


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


def _flag(field: Field[Any]) -> click.Option:
    """The click option of one field, by the field's type."""
    flag = f"--{field.name.replace('_', '-')}"
    default = f"{field.default:g}" if isinstance(field.default, float) else field.default
    settings: dict[str, Any] = {"default": default, "help": field.metadata["help"]}
    if field.type is bool:
        return click.Option([flag], is_flag=True, **settings)
    item_type = _item_type(field.type)
    convert = _converter(flag, item_type, parse=field.metadata.get("parse"))
    if get_origin(field.type) is tuple:
        settings |= {"multiple": True, "type": _comma_list(convert) if field.name in _TAKES_COMMAS else convert}
    else:
        settings |= {"type": convert, "show_default": field.default not in (None, "")}
    choices = "|".join(get_args(item_type))
    return click.Option([flag], metavar=field.metadata["metavar"] or choices, **settings)


def _item_type(annotation: Any) -> Any:
    """`int` of `int | None`, `str` of `tuple[str, ...]`, any other type itself."""
    if get_origin(annotation) is UnionType or get_origin(annotation) is tuple:
        return next(member for member in get_args(annotation) if member not in (type(None), Ellipsis))
    return annotation


def _converter(flag: str, item_type: Any, *, parse: Callable[[str], Any] | None) -> Callable[[Any], Any]:
    """From the text of a flag to its value: a number that does not say how it is read is a count from 1 or a time."""
    if get_origin(item_type) is Literal:
        return choice(flag, get_args(item_type))
    if item_type is str:
        return str
    by_type: dict[Any, Callable[[str], float]] = {int: units.parse_count, float: units.parse_duration_s}
    read = parse or by_type[item_type]

    def convert(text: Any) -> Any:
        try:
            return read(str(text))
        except UsageError as error:
            raise UsageError(f"{flag}: {error.message}", hint=error.hint) from error

    return convert


def _comma_list(convert: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Each value between commas; nothing between two commas is nothing."""
    return lambda text: tuple(convert(part.strip()) for part in text.split(",") if part.strip())
