"""Renders a recommendation as text: headline, assumptions, table, offers left out, warnings."""

from collections.abc import Sequence

from rich.cells import cell_len

from advisor.records.answer import Recommendation
from advisor.report import sentence
from advisor.report.batch_text import add_batch_tables
from advisor.report.machine_text import add_machine_table
from advisor.report.quote_columns import Column, RankedQuote, table_rows
from advisor.report.text_page import COLUMN_GAP, Heading, Page
from advisor.report.token_columns import columns_for


def render_text(recommendation: Recommendation, *, width: int, color: bool, top: int = 10) -> str:
    """Return the whole answer, at most `width` characters wide, with `top` rows that include CPUs and GPUs."""
    page = Page(width=width, color=color)
    page.line(sentence.headline(recommendation), style="bold")
    page.titled_list("Assumes:", sentence.basis(recommendation))
    rows = table_rows(recommendation, top=top)
    if rows:
        columns = fitting_columns(rows, width=width)
        page.blank()
        page.table(
            [Heading(text=column.header, is_number=column.is_number) for column in columns],
            [[column.cell(row) for column in columns] for row in rows],
        )
        notes = sentence.table_notes(rows, quote_count=len(recommendation.quotes))
        for note in (*notes, *_dropped_note(columns_for(rows), columns)):
            page.line(note, style="dim")
    add_batch_tables(page, recommendation)
    add_machine_table(page, recommendation)
    page.titled_list(f"Left out ({len(recommendation.rejected):,}):", sentence.left_out(recommendation))
    page.titled_list("Warnings:", recommendation.warnings, style="yellow")
    return page.text()


def fitting_columns(rows: Sequence[RankedQuote], *, width: int) -> tuple[Column, ...]:
    """Return the columns that fit `width`; the lowest drop order is dropped first."""
    columns = list(columns_for(rows))
    widths = {column: _column_width(column, rows) for column in columns}
    for column in sorted((c for c in columns if c.drop_order is not None), key=lambda c: c.drop_order or 0):
        if sum(widths[c] for c in columns) + COLUMN_GAP * (len(columns) - 1) <= width:
            break
        columns.remove(column)
    return tuple(columns)


def _column_width(column: Column, rows: Sequence[RankedQuote]) -> int:
    widest = max(cell_len(text) for text in (column.header, *(column.cell(row) for row in rows)))
    return widest if column.wraps_at is None else min(widest, column.wraps_at)


def _dropped_note(every: Sequence[Column], columns: Sequence[Column]) -> list[str]:
    dropped = [column.header for column in every if column not in columns]
    return [f"Columns hidden at this width: {', '.join(dropped)}."] if dropped else []
