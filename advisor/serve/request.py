"""Reads and checks the body of a request; nothing in it is executed or used as a path on the server."""

from dataclasses import dataclass

from advisor.errors import DocumentError
from advisor.files.json_text import parse_json
from advisor.question.from_source import as_saved
from advisor.question.json_options import check_keys, names_of
from advisor.records.options import Options
from advisor.records.workload import Workload
from advisor.serve.options import HINT, options_of
from advisor.workload.file import workload_from_json

_MOST_ROWS = 10_000
"""Models have a few hundred rows, because equal calls share one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRequest:
    """A workload and the options of the command; `on` has the names of `advise explain --on`."""

    workload: Workload
    options: Options
    on: tuple[str, ...] = ()


def read_request(body: bytes, *, takes_on: bool = False) -> AnswerRequest:
    """Parse and check the body, with the same checks as on the command line.

    Raise `LoadError` if it is not JSON, and `DocumentError` or `UsageError` for other mistakes.
    """
    document = parse_json(body, where="request", hint=HINT)
    check_keys(document, ("workload", "options", "on") if takes_on else ("workload", "options"), key="", hint=HINT)
    if "workload" not in document:
        raise DocumentError("missing", where="", key="workload", hint=HINT)
    options = options_of(document.get("options", {}))
    workload = workload_from_json(document["workload"], where="workload")
    if len(workload.rows) > _MOST_ROWS:
        problem = f"{len(workload.rows):,} rows, but at most {_MOST_ROWS:,} are allowed"
        raise DocumentError(problem, where="", key="workload.rows", hint="merge equal calls into one row with a count")
    return AnswerRequest(
        workload=workload,
        options=as_saved(options, workload, where=repr(workload.name)),
        on=names_of(document.get("on", []), key="on", hint=HINT),
    )
