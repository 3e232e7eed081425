"""Makes the click options of the fields of `Options`, so that a flag is defined once, in the record."""

from collections.abc import Collection, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, get_args

import click

from advisor.records.flag_values import TAKES_COMMAS, comma_list, converter, flag_name, is_several, value_type
from advisor.records.options import Options


def option_flags(*, only: Collection[str] | None = None, without: Collection[str] = ()) -> list[click.Parameter]:
    """Return the flags of `Options`, or only those named in `only`, except those in `without`, in field order."""
    named = [field for field in fields(Options) if only is None or field.name in only]
    return [_flag(field) for field in named if field.name not in without]


def measurements_flag() -> click.Option:
    """Return the flag `--measurements`, for every command that reads measured steps."""
    return click.Option(
        ["--measurements"],
        type=Path,
        multiple=True,
        required=True,
        metavar="FILE",
        help="CSV of measured steps: model, mode, precision, batch, device, step_s, source and more",
    )


def options_from(params: Mapping[str, Any]) -> Options:
    """Return the `Options` for click's parameters; ignore parameters that are not a field of it."""
    given: dict[str, Any] = {field.name: params[field.name] for field in fields(Options) if field.name in params}
    for name in TAKES_COMMAS & given.keys():
        given[name] = tuple(item for items in given[name] for item in items)
    return Options(**given)


def _flag(field: Field[Any]) -> click.Option:
    """Return the click option for a field, according to its type."""
    flag = flag_name(field.name)
    default = f"{field.default:g}" if isinstance(field.default, float) else field.default
    settings: dict[str, Any] = {"default": default, "help": field.metadata["help"]}
    if field.type is bool:
        return click.Option([flag], is_flag=True, **settings)
    convert = converter(field)
    if is_several(field):
        settings |= {"multiple": True, "type": comma_list(convert) if field.name in TAKES_COMMAS else convert}
    else:
        settings |= {"type": convert, "show_default": field.default not in (None, "")}
    choices = get_args(value_type(field.type))
    return click.Option(
        [flag],
        metavar=field.metadata["metavar"] or "|".join(choices),
        shell_complete=lambda _context, _flag, typed: [one for one in choices if one.startswith(typed)],
        **settings,
    )
