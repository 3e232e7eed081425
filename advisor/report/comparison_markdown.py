"""Renders a comparison as Markdown, for a comment on a pull request."""

from advisor.records.change import Comparison
from advisor.report.as_markdown import bullets, escape, table_line
from advisor.report.comparison_rows import HEADINGS, headline, tables


def render_comparison_markdown(comparison: Comparison, *, top: int) -> str:
    """Return the headline, the tables and the notes of a comparison."""
    lines = [f"**{escape(headline(comparison))}**", ""]
    for table in tables(comparison, top=top):
        lines += [
            escape(table.title),
            "",
            table_line(HEADINGS),
            "|---|---:|---:|---|",
            *map(table_line, table.rows),
            "",
        ]
    lines += bullets("Notes", comparison.notes)
    return "\n".join(lines).rstrip() + "\n"
