"""Reads and checks the body of a request; nothing in it is executed or used as a path on the server."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from advisor.errors import DocumentError, UsageError
from advisor.files.json_text import parse_json
from advisor.question.from_source import as_saved
from advisor.records.flag_values import flag_name, option_value
from advisor.records.options import Options
from advisor.records.workload import Workload
from advisor.serve.option_fields import ALLOWED, MOST_NAMES, REFUSED
from advisor.workload.file import workload_from_json

_HINT = 'a request is {"workload": {...}, "options": {...}}'
_MOST_ROWS = 10_000
"""Models have a few hundred rows, because equal calls share one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A workload and the options of the command; `on` has the names of `advise explain --on`."""

    workload: Workload
    options: Options
    on: tuple[str, ...] = ()


def read_request(body: bytes, *, takes_on: bool = False) -> Asked:
    """Parse and check the body, with the same checks as on the command line.

    Raise `LoadError` if it is not JSON, and `DocumentError` or `UsageError` for other mistakes.
    """
    document = parse_json(body, where="request", hint=_HINT)
    keys = ("workload", "options", "on") if takes_on else ("workload", "options")
    _check_keys(document, keys, key="")
    if "workload" not in document:
        raise DocumentError("missing", where="", key="workload", hint=_HINT)
    options = options_of(document.get("options", {}))
    workload = workload_from_json(document["workload"], where="workload")
    if len(workload.rows) > _MOST_ROWS:
        problem = f"{len(workload.rows):,} rows, but at most {_MOST_ROWS:,} are allowed"
        raise DocumentError(problem, where="", key="workload.rows", hint="merge equal calls into one row with a count")
    return Asked(
        workload=workload,
        options=as_saved(options, workload, where=repr(workload.name)),
        on=_names(document.get("on", []), key="on"),
    )


def options_of(document: Any) -> Options:
    """Return the options, given by flag name with underscores; values are text, numbers or lists."""
    _check_keys(document, (*ALLOWED, *REFUSED), key="options")
    given = {}
    for name, value in document.items():
        key = f"options.{name}"
        if name in REFUSED:
            raise DocumentError("cannot be set here", where="", key=key, hint=REFUSED[name])
        if value is not None:
            given[name] = _value(name, value, key=key)
    return Options(**given)


def _value(name: str, value: Any, *, key: str) -> Any:
    if isinstance(value, list) and len(value) > MOST_NAMES:
        raise _too_many(value, key=key)
    try:
        return option_value(ALLOWED[name], value, called=flag_name(name))
    except UsageError as error:
        raise DocumentError(error.message, where="", key=key, hint=error.hint) from None


def _names(value: Any, *, key: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _wrong_type(value, "a list of names", key=key)
    if len(names) > MOST_NAMES:
        raise _too_many(names, key=key)
    return tuple(names)


def _too_many(names: list[Any], *, key: str) -> DocumentError:
    return DocumentError(f"{len(names)} names, but at most {MOST_NAMES} are allowed", where="", key=key, hint=_HINT)


def _check_keys(document: Any, known: tuple[str, ...], *, key: str) -> None:
    if not isinstance(document, Mapping):
        raise _wrong_type(document, "an object", key=key)
    for name in document:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"one of {', '.join(known)}"
            raise DocumentError(f"unknown key {name!r:.80}", where="", key=key, hint=hint)


def _wrong_type(value: Any, wanted: str, *, key: str) -> DocumentError:
    return DocumentError(f"found {value!r:.80}, expected {wanted}", where="", key=key, hint=_HINT)
