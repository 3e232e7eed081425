"""`-o markdown`: renders the answer for an issue, a pull request or a wiki."""

import re
from collections.abc import Iterable

from advisor.records.answer import Recommendation
from advisor.report import sentence
from advisor.report.printable import printable
from advisor.report.quote_columns import Column, table_rows
from advisor.report.token_columns import columns_for
from advisor.report.view import View

SUFFIX = ".md"
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$])")


def render(recommendation: Recommendation, view: View) -> str:
    """Return the headline, assumptions, table with every column, offers left out and warnings."""
    rows = table_rows(recommendation, top=view.top)
    lines = [f"**{escape(sentence.headline(recommendation))}**", ""]
    lines += bullets("Assumes", sentence.basis(recommendation))
    if rows:
        columns = columns_for(rows)
        lines.append(table_line(column.header for column in columns))
        lines.append(_rule(columns))
        lines += [table_line(column.cell(row) for column in columns) for row in rows]
        lines.append("")
        lines += bullets("Rows", sentence.table_notes(rows, quote_count=len(recommendation.quotes)))
    lines += bullets(f"Left out ({len(recommendation.rejected):,})", sentence.left_out(recommendation))
    lines += bullets("Warnings", recommendation.warnings)
    return "\n".join(lines).rstrip() + "\n"


def escape(text: str) -> str:
    """Return `text` as literal Markdown on one line, escaped so that it cannot become a link, HTML or a table cell."""
    return _SPECIAL.sub(r"\\\1", printable(text))


def table_line(cells: Iterable[str]) -> str:
    """Return one row of a table."""
    return "| " + " | ".join(escape(cell) for cell in cells) + " |"


def _rule(columns: Iterable[Column]) -> str:
    return "|" + "|".join("---:" if column.is_number else "---" for column in columns) + "|"


def bullets(title: str, lines: Iterable[str]) -> list[str]:
    """Return a title and a list, or nothing if there are no lines."""
    items = [f"- {escape(line)}" for line in lines]
    return [f"{escape(title)}:", "", *items, ""] if items else []
