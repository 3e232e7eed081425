"""Parses JSON from outside strictly: no NaN or infinity, no repeated keys, no values of the wrong type."""

import json
import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from advisor.errors import DocumentError, LoadError
from advisor.files.regular_file import read_regular_file

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_T = TypeVar("_T")


def read_json(path: Path, *, hint: str) -> Any:
    """Return the document in a file; raise `LoadError` if it cannot be read or is not valid."""
    try:
        text = read_regular_file(path)
    except OSError as error:
        raise LoadError(f"{path}: {error.strerror}", hint="check the path and its permissions") from None
    return parse_json(text, where=str(path), hint=hint)


def parse_json(text: bytes, *, where: str, hint: str) -> Any:
    """Return the document in `text`; raise `LoadError` if it is not JSON, or has a non-finite number or a repeated key.

    Python's own parser accepts NaN, reads 1e999 as infinity, and keeps the last of repeated keys.
    """
    try:
        return json.loads(
            text.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_without_repeats,
        )
    except UnicodeDecodeError:
        raise LoadError(f"{where}: not UTF-8 text", hint=hint) from None
    except _NoNumberError as error:
        raise LoadError(f"{where}: found {error}, which is not a finite number", hint=hint) from None
    except _RepeatedKeyError as error:
        raise LoadError(f"{where}: the key {str(error)!r:.80} is repeated", hint="keep one of the two") from None
    except RecursionError:
        raise LoadError(f"{where}: nested too deeply", hint=hint) from None
    except ValueError as error:  # also raised for an integer with thousands of digits
        raise LoadError(f"{where}: not JSON: {error}", hint=hint) from None


@cache
def adapter_of(kind: Any) -> "TypeAdapter[Any]":
    """Return the validator and serializer of a type; making one of a large record takes a tenth of a second."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def read_as(kind: type[_T], document: Any, *, where: str, hint: str) -> _T:
    """Return the record in `document`; raise `DocumentError` at the first key with an invalid value."""
    from pydantic import ValidationError

    try:
        # Validated as JSON because strict mode (no "3" for 3, no true for 1) accepts a list for a tuple only there.
        record: _T = adapter_of(kind).validate_json(json.dumps(document), strict=True)  # type: ignore[arg-type] # a class
        return record
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        found = f", found {first['input']!r:.80}" if first["type"] != "missing" else ""
        key = ".".join(str(part) for part in first["loc"])
        raise DocumentError(f"{first['msg'].lower()}{found}", where=where, key=key, hint=hint) from None
    except RecursionError:
        raise DocumentError("nested too deeply", where=where, hint=hint) from None


class _NoNumberError(Exception):
    """Raised for NaN, an infinity, or a number too large for a float."""


class _RepeatedKeyError(Exception):
    """Raised for an object that has the same key twice."""


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        raise _RepeatedKeyError(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return values


def _refuse_constant(name: str) -> Any:
    raise _NoNumberError(name)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _NoNumberError(f"{text:.20}")
    return number
