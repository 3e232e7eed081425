"""`-o csv`: writes one line per quote, with base units in the column names."""

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
"""Spreadsheets run a cell that starts with one of these as a formula (OWASP, CSV Injection)."""


def render(recommendation: Recommendation, view: View) -> str:
    """Return every quote in ranking order, regardless of the view; an unranked local machine comes last."""
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
    """Yield the column names; a nested record's field has the prefix of its own name, as in `step_s_mid`."""
    for field in fields(kind):
        if field.name in _NESTED:
            yield from _names(_NESTED[field.name], before=f"{before}{field.name}_")
        else:
            yield before + field.name


def _cells(record: Any, kind: Any) -> Iterator[Any]:
    """Yield one cell per column name; the cells of a missing nested record are empty."""
    for field in fields(kind):
        value = None if record is None else getattr(record, field.name)
        if field.name in _NESTED:
            yield from _cells(value, _NESTED[field.name])
        else:
            yield _cell(value)


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
