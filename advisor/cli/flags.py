"""Makes click's flags: from the fields of `Options`, and for single commands."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, get_args

import click

from advisor.records.flag_values import choice, flag_name, is_several, naming, reader_of, value_type
from advisor.records.options import Options


class OptionFlag(click.Option):
    """The flag of a field of `Options`."""

    def __init__(self, field: Field[Any]) -> None:
        read, default, choices = reader_of(field), field.default, get_args(value_type(field.type))
        several = is_several(field)
        super().__init__(
            [flag_name(field.name)],
            type=bool if field.type is bool else click.UNPROCESSED,
            is_flag=field.type is bool,
            multiple=several,
            default=f"{default:g}" if isinstance(default, float) else default,
            show_default=not (several or field.type is bool or default in (None, "")),
            metavar=None if field.type is bool else field.metadata["metavar"] or "|".join(choices),
            help=field.metadata["help"],
            callback=lambda _context, _flag, value: None if value is None else read(value),
            shell_complete=_completing(choices),
        )


def option_flags(*, only: Collection[str] | None = None, without: Collection[str] = ()) -> list[click.Parameter]:
    """Return the flags of `Options`, or only those named in `only`, except those in `without`, in field order."""
    named = [field for field in fields(Options) if only is None or field.name in only]
    return [OptionFlag(field) for field in named if field.name not in without]


def for_one_batch(flags: Sequence[click.Parameter]) -> Sequence[click.Parameter]:
    """Return the flags, `--batch` and `--concurrency` as those of a command that takes one number."""
    texts = {
        "batch": "global batch size (over all GPUs); default: the source's own",
        "concurrency": "LLM serving: requests in flight",
    }
    for one in flags:
        if isinstance(one, OptionFlag) and one.name in texts:
            one.metavar, one.help = "N", texts[one.name]
    return flags


def flag(
    name: str,
    help_text: str,
    *,
    metavar: str = "",
    read: Callable[[str], Any] = str,
    choices: Sequence[str] = (),
    default: str | None = None,
    **settings: Any,
) -> click.Option:
    """Return a flag of a single command, whose text `read` converts, or which is one of `choices`."""
    return click.Option(
        [name],
        type=choice(name, tuple(choices)) if choices else naming(name, read),
        metavar=metavar or "|".join(choices),
        default=default,
        show_default=default is not None,
        help=help_text,
        shell_complete=_completing(choices),
        **settings,
    )


def measurements_flag() -> click.Option:
    """Return the flag `--measurements`, for every command that reads measured steps."""
    return flag(
        "--measurements",
        "CSV of measured steps: model, mode, precision, batch, device, step_s, source and more",
        metavar="FILE",
        read=Path,
        multiple=True,
        required=True,
    )


def _completing(choices: Sequence[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    return lambda _context, _flag, typed: [one for one in choices if one.startswith(typed)]
