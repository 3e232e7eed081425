"""Renders a comparison as text for a terminal."""

from advisor.records.change import Comparison
from advisor.report.comparison_rows import HEADINGS, headline, tables
from advisor.report.text_page import Heading, Page
from advisor.report.view import View


def render_comparison(comparison: Comparison, *, view: View) -> str:
    """Return the headline, a table for each kind of change, and notes on what makes the two hard to compare."""
    page = Page(width=view.width, color=view.color)
    page.line(headline(comparison), style="bold")
    for table in tables(comparison, top=view.top):
        page.blank()
        page.line(table.title)
        headings = [Heading(text=text, is_number=bool(text) and text != "change") for text in HEADINGS]
        page.table(headings, table.rows, first_row_style="")
    page.titled_list("Notes:", comparison.notes)
    return page.text()
