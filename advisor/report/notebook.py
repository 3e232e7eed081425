"""Renders a recommendation as an HTML fragment for notebooks."""

from collections.abc import Iterable
from html import escape

from advisor.records.answer import Recommendation
from advisor.report import sentence
from advisor.report.printable import printable
from advisor.report.quote_columns import table_rows
from advisor.report.token_columns import columns_for


def render_html(recommendation: Recommendation, *, top: int = 10) -> str:
    """Return the headline, the table and the folded rest, in plain elements that take the notebook's theme."""
    rows = table_rows(recommendation, top=top)
    parts = [f"<p><strong>{_literal(sentence.headline(recommendation))}</strong></p>"]
    if rows:
        columns = columns_for(rows)
        head = _cells("th", (column.header for column in columns))
        body = "".join(f"<tr>{_cells('td', (column.cell(row) for column in columns))}</tr>" for row in rows)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        parts += [
            f"<p>{_literal(note)}</p>" for note in sentence.table_notes(rows, quote_count=len(recommendation.quotes))
        ]
    parts.append(_folded("Assumes", sentence.basis(recommendation)))
    parts.append(_folded(f"Left out ({len(recommendation.rejected):,})", sentence.left_out(recommendation)))
    parts += [f"<p>Warning: {_literal(warning)}</p>" for warning in recommendation.warnings]
    return "".join(parts)


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{_literal(text)}</{tag}>" for text in texts)


def _folded(title: str, lines: Iterable[str]) -> str:
    items = "".join(f"<li>{_literal(line)}</li>" for line in lines)
    return f"<details><summary>{_literal(title)}</summary><ul>{items}</ul></details>" if items else ""


def _literal(text: str) -> str:
    return escape(printable(text))
