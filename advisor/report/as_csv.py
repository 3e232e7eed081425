"""`-o csv`: one line for each quote, base units in the column names."""

import csv
from collections.abc import Iterator
from dataclasses import fields
from io import StringIO
from typing import Any

from advisor.records.answer import CostParts, Interval, Quote, QuotedDevice, Recommendation, TokenQuote
from advisor.records.scale import Plan
from advisor.report.printable import printable
from advisor.report.quote_columns import unranked
from advisor.report.view import View

SUFFIX = ".csv"
_NESTED = {
    "device": QuotedDevice,
    "step_s": Interval,
    "job_usd": Interval,
    "job_s": Interval,
    "job_parts_usd": CostParts,
    "plan": Plan,
    "tokens": TokenQuote,
    "ttft_s": Interval,
    "tpot_s": Interval,
}
_FORMULA_STARTS = ("=", "+", "-", "@")
"""Spreadsheets run a cell that starts so (OWASP, CSV Injection)."""


def render(recommendation: Recommendation, view: View) -> str:
    """Every quote in the order of the ranking, whatever the view shows; the machine at hand is last, unranked."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("rank", *_names(Quote), "job_samples", "coverage_ratio"))
    job, workload = recommendation.job, recommendation.workload
    rows: list[tuple[int | str, Quote]] = list(enumerate(recommendation.quotes, start=1))
    at_hand = unranked(recommendation)
    if at_hand is not None:
        rows.append(("", at_hand))
    for rank, quote in rows:
        writer.writerow((rank, *_cells(quote, Quote), job.samples, workload.coverage_ratio))
    return out.getvalue()


def _names(kind: Any, *, before: str = "") -> Iterator[str]:
    """The record's fields; those of a record in it follow its own name: `step_s_mid`."""
    for field in fields(kind):
        if field.name in _NESTED:
            yield from _names(_NESTED[field.name], before=f"{before}{field.name}_")
        else:
            yield before + field.name


def _cells(record: Any, kind: Any) -> Iterator[Any]:
    """A cell for each of the names; those of a record that is not there are empty."""
    for field in fields(kind):
        value = None if record is None else getattr(record, field.name)
        if field.name in _NESTED:
            yield from _cells(value, _NESTED[field.name])
        else:
            yield _cell(value)


def _cell(value: Any) -> Any:
    """Text that a spreadsheet would run gets a leading quote; numbers stay numbers, booleans are as in JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return " ".join(value)
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA_STARTS) else text
