"""The options of a request: which ones it may set, how they are read, and their schema; also an example workload.

This module imports little, so that the service starts fast.
"""

from collections.abc import Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, get_args

from advisor.errors import DocumentError, UsageError, did_you_mean
from advisor.records.flag_values import is_several, reader_of, value_type
from advisor.records.options import NOT_SERVED, Options

ALLOWED = {field.name: field for field in fields(Options) if field.name not in NOT_SERVED}
_MOST_NAMES = 100
NAMES_SCHEMA = {"type": "array", "items": {"type": "string"}, "maxItems": _MOST_NAMES}
EXAMPLE_WORKLOAD = Path(__file__).parent / "example_workload.json"
HINT = 'a request is {"workload": {...}, "options": {...}}'


def options_of(document: Any) -> Options:
    """Return the options, given by flag name with underscores; values are text, numbers or lists."""
    check_keys(document, (*ALLOWED, *NOT_SERVED), key="options")
    given = {}
    for name, value in document.items():
        key = f"options.{name}"
        if name in NOT_SERVED:
            raise DocumentError("cannot be set here", where="", key=key, hint=NOT_SERVED[name])
        if isinstance(value, list):
            check_count(value, key=key)
        if value is not None:
            try:
                given[name] = reader_of(ALLOWED[name])(value)
            except UsageError as error:
                raise DocumentError(error.message, where="", key=key, hint=error.hint) from None
    return Options(**given)


def check_keys(document: Any, known: tuple[str, ...], *, key: str) -> None:
    """Raise `DocumentError` unless the document at `key` is an object with known keys only."""
    if not isinstance(document, Mapping):
        raise wrong_type(document, "an object", key=key)
    for name in document:
        if name not in known:
            raise DocumentError(f"unknown key {name!r:.80}", where="", key=key, hint=did_you_mean(name, known))


def check_count(names: list[Any], *, key: str) -> None:
    """Raise `DocumentError` if there are too many names."""
    if len(names) > _MOST_NAMES:
        problem = f"{len(names)} names, but at most {_MOST_NAMES} are allowed"
        raise DocumentError(problem, where="", key=key, hint=HINT)


def wrong_type(value: Any, wanted: str, *, key: str) -> DocumentError:
    """Return the error for a value of another type than `wanted`."""
    return DocumentError(f"found {value!r:.80}, expected {wanted}", where="", key=key, hint=HINT)


def options_schema() -> dict[str, Any]:
    """Return the JSON schema of the options: flags by name, as text like on the command line, or as numbers."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {**_option_schema(field), "description": field.metadata["help"]} for name, field in ALLOWED.items()
        },
    }


def _option_schema(field: Field[Any]) -> dict[str, Any]:
    choices = get_args(value_type(field.type))
    one = {"type": "string", "enum": list(choices)} if choices else {"type": "string"}
    if field.type is bool:
        return {"type": "boolean"}
    if is_several(field):
        return {**NAMES_SCHEMA, "items": one}
    return one if choices else {"type": ["string", "number", "null"]}
