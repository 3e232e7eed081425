"""The body of a request in, what is asked for out; nothing in it is run, and no file of the server is named by it."""

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
"""Models have some hundreds: equal calls are one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A saved workload, and the options of the command; `on` are the names of `advise explain --on`."""

    workload: Workload
    options: Options
    on: tuple[str, ...] = ()


def read_request(body: bytes, *, takes_on: bool = False) -> Asked:
    """What `body` asks for, checked as the command line checks it.

    Raises `LoadError` where it is not JSON, else `DocumentError` and `UsageError`.
    """
    document = parse_json(body, where="request", hint=_HINT)
    keys = ("workload", "options", "on") if takes_on else ("workload", "options")
    _check_keys(document, keys, key="")
    if "workload" not in document:
        raise DocumentError("not there", where="", key="workload", hint=_HINT)
    options = options_of(document.get("options", {}))
    workload = workload_from_json(document["workload"], where="workload")
    if len(workload.rows) > _MOST_ROWS:
        problem = f"{len(workload.rows):,} rows, at most {_MOST_ROWS:,} are taken"
        raise DocumentError(problem, where="", key="workload.rows", hint="equal calls are one row with a count")
    return Asked(
        workload=workload,
        options=as_saved(options, workload, where=repr(workload.name)),
        on=_names(document.get("on", []), key="on"),
    )


def options_of(document: Any) -> Options:
    """The options by the names of the flags, with underscores: text as on the command line, numbers, or lists."""
    _check_keys(document, (*ALLOWED, *REFUSED), key="options")
    given = {}
    for name, value in document.items():
        key = f"options.{name}"
        if name in REFUSED:
            raise DocumentError("cannot be given here", where="", key=key, hint=REFUSED[name])
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
    return DocumentError(f"{len(names)} names, at most {MOST_NAMES} are taken", where="", key=key, hint=_HINT)


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
