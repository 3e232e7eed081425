"""Bytes of JSON that somebody else wrote in, a document or a record out; what no JSON of ours holds is refused."""

import json
import math
from typing import TYPE_CHECKING, Any, TypeVar

from advisor.errors import DocumentError, LoadError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_T = TypeVar("_T")


def parse_json(text: bytes, *, where: str, hint: str) -> Any:
    """The document in `text`, all of its numbers finite and no key repeated; raise `LoadError` where there is none.

    Python's own parser takes NaN, reads 1e999 as infinity, and lets the last of repeated keys win.
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
        raise LoadError(f"{where}: found {error}, which is no number", hint=hint) from None
    except _RepeatedKeyError as error:
        raise LoadError(f"{where}: the key {str(error)!r:.80} is repeated", hint="keep one of the two") from None
    except RecursionError:
        raise LoadError(f"{where}: nested too deeply", hint=hint) from None
    except ValueError as error:  # also of a whole number with thousands of digits
        raise LoadError(f"{where}: not JSON: {error}", hint=hint) from None


def read_as(adapter: "TypeAdapter[_T]", document: Any, *, where: str, hint: str) -> _T:
    """The record in `document`; raise `DocumentError` at the first key that is not what it should be."""
    from pydantic import ValidationError

    try:
        # As JSON, since only there "strict" (no "3" for 3, no true for 1) lets a list stand for a tuple.
        return adapter.validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        found = f", found {first['input']!r:.80}" if first["type"] != "missing" else ""
        key = ".".join(str(part) for part in first["loc"])
        raise DocumentError(f"{first['msg'].lower()}{found}", where=where, key=key, hint=hint) from None
    except RecursionError:
        raise DocumentError("nested too deeply", where=where, hint=hint) from None


class _NoNumberError(Exception):
    """NaN, an infinity, or a number too large to be held."""


class _RepeatedKeyError(Exception):
    """An object has the same key twice."""


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
