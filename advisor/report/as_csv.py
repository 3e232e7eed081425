"""`-o csv`: one line for each quote, base units in the column names."""

import csv
from dataclasses import fields, is_dataclass
from io import StringIO
from typing import Any

from advisor.records.answer import CostParts, Interval, Quote, QuotedDevice, Recommendation
from advisor.report.columns import unranked
from advisor.report.printable import printable
from advisor.report.view import View

SUFFIX = ".csv"
_NESTED = {
    "device": QuotedDevice,
    "step_s": Interval,
    "job_usd": Interval,
    "job_s": Interval,
    "job_parts_usd": CostParts,
}
_FORMULA_STARTS = ("=", "+", "-", "@")
"""Spreadsheets run a cell that starts so (OWASP, CSV Injection)."""


def render(recommendation: Recommendation, view: View) -> str:
    """Every quote, cheapest first, whatever the view shows; the machine at hand, without a rank, at the end."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("rank", *_header(), "job_samples", "coverage_ratio"))
    job, workload = recommendation.job, recommendation.workload
    rows: list[tuple[int | str, Quote]] = list(enumerate(recommendation.quotes, start=1))
    at_hand = unranked(recommendation)
    if at_hand is not None:
        rows.append(("", at_hand))
    for rank, quote in rows:
        writer.writerow((rank, *_cells(quote), job.samples, workload.coverage_ratio))
    return out.getvalue()


def _header() -> list[str]:
    """The quote's fields; those of a record in it follow its own name: `step_s_mid`."""
    return [
        name
        for field in fields(Quote)
        for name in (
            [f"{field.name}_{inner.name}" for inner in fields(_NESTED[field.name])]
            if field.name in _NESTED
            else [field.name]
        )
    ]


def _cells(record: Any) -> list[Any]:
    values = (getattr(record, field.name) for field in fields(record))
    return [cell for value in values for cell in (_cells(value) if is_dataclass(value) else [_cell(value)])]


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
