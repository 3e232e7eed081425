"""Reads options from a JSON object, and describes them as a JSON schema, for the service and the MCP server.

This module imports little, so that both start fast.
"""

from collections.abc import Iterable, Mapping
from dataclasses import Field, fields
from typing import Any, get_args

from advisor.errors import DocumentError, UsageError, did_you_mean
from advisor.records.flag_values import is_several, reader_of, value_type
from advisor.records.options import GivenOptions, Options, ScriptOptions

HINT = 'options are an object such as {"samples": "1e6", "provider": ["aws"]}'
_MOST_NAMES = 100
NAMES_SCHEMA = {"type": "array", "items": {"type": "string"}, "maxItems": _MOST_NAMES}


def settable(refused: Iterable[str]) -> dict[str, Field[Any]]:
    """Return the fields of `Options` by name, without those in `refused`."""
    return {field.name: field for field in fields(Options) if field.name not in refused}


def read_options(document: Any, *, refused: Mapping[str, str], of_script: bool = False) -> Options:
    """Return the options, given by flag name with underscores; values are text, numbers or lists.

    They are `ScriptOptions` for the job of a script. `refused` has the reasons why some fields cannot be set. Raises
    `DocumentError` with the key below `options`.
    """
    allowed = settable(refused)
    check_keys(document, (*allowed, *refused), key="options")
    given = {}
    for name, value in document.items():
        key = f"options.{name}"
        if name in refused:
            raise DocumentError("cannot be set here", where="", key=key, hint=refused[name])
        if isinstance(value, list):
            check_count(value, key=key)
        if value is not None:
            try:
                given[name] = reader_of(allowed[name], called=key)(value)
            except UsageError as error:
                problem = error.message.removeprefix(f"{key}: ")
                raise DocumentError(problem, where="", key=key, hint=error.hint) from None
    return (ScriptOptions if of_script else GivenOptions)(**given, given=frozenset(given))


def check_keys(document: Any, known: Iterable[str], *, key: str, hint: str = HINT) -> None:
    """Raise `DocumentError` unless the document at `key` is an object with known keys only."""
    if not isinstance(document, Mapping):
        raise wrong_type(document, "an object", key=key, hint=hint)
    for name in document:
        if name not in known:
            raise DocumentError(f"unknown key {name!r:.80}", where="", key=key, hint=did_you_mean(name, known))


def names_of(value: Any, *, key: str, hint: str = HINT) -> tuple[str, ...]:
    """Return a name or a list of names as a tuple; raise `DocumentError` for anything else and for too many."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise wrong_type(value, "a list of names", key=key, hint=hint)
    check_count(names, key=key)
    return tuple(names)


def check_count(names: list[Any], *, key: str) -> None:
    """Raise `DocumentError` if there are too many names."""
    if len(names) > _MOST_NAMES:
        problem = f"{len(names)} names, but at most {_MOST_NAMES} are allowed"
        raise DocumentError(problem, where="", key=key, hint="ask for fewer")


def wrong_type(value: Any, wanted: str, *, key: str, hint: str = HINT) -> DocumentError:
    """Return the error for a value of another type than `wanted`."""
    return DocumentError(f"found {value!r:.80}, expected {wanted}", where="", key=key, hint=hint)


def schema_of_options(*, refused: Iterable[str]) -> dict[str, Any]:
    """Return the JSON schema of the options: flags by name, as text like on the command line, or as numbers."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {**_option_schema(field), "description": field.metadata["help"]}
            for name, field in settable(refused).items()
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
