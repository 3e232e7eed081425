"""`-o csv`: writes one line per quote, with base units in the column names."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from io import StringIO
from typing import Any, get_args, get_type_hints

from advisor.records.answer import Quote, Recommendation
from advisor.report.content import View, printable
from advisor.report.quote_columns import unranked

SUFFIX = ".csv"
_FORMULA_STARTS = ("=", "+", "-", "@")
"""Spreadsheets run a cell that starts with one of these as a formula (OWASP, CSV Injection)."""


def render(recommendation: Recommendation, view: View) -> str:
    """Return every quote in ranking order, regardless of the view; an unranked local machine comes last."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("rank", *(name for name, _ in _cells(None, Quote)), "job_samples", "coverage_ratio"))
    job, workload = recommendation.job, recommendation.workload
    rows: list[tuple[int | str, Quote]] = list(enumerate(recommendation.quotes, start=1))
    at_hand = unranked(recommendation)
    if at_hand is not None:
        rows.append(("", at_hand))
    for rank, quote in rows:
        cells = (cell for _, cell in _cells(quote, Quote))
        writer.writerow((rank, *cells, job.samples, workload.coverage_ratio))
    return out.getvalue()


@cache
def _fields(kind: type) -> Mapping[str, Any]:
    """Return the fields of a record, each with the type of its nested record, if it is one."""
    return {
        name: next((part for part in (hint, *get_args(hint)) if is_dataclass(part)), None)
        for name, hint in get_type_hints(kind).items()
    }


def _cells(record: Any, kind: type, *, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name and the cell of each column; the cells of a missing record are empty.

    The fields of a nested record have the prefix of its own name, as in `step_s_mid`.
    """
    for name, nested in _fields(kind).items():
        value = None if record is None else getattr(record, name)
        if nested is None:
            yield before + name, _cell(value)
        else:
            yield from _cells(value, nested, before=f"{before}{name}_")


def _cell(value: Any) -> Any:
    """Return the value of a cell: text that a spreadsheet would run gets a leading quote; booleans are as in JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return " ".join(value)
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA_STARTS) else text
