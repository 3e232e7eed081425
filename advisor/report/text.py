"""A recommendation as text for a terminal: headline, what it rests on, table, what was left out, warnings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from advisor.records.answer import Recommendation
from advisor.report import sentence
from advisor.report.columns import COLUMNS, Column, RankedQuote, shown_quotes
from advisor.report.printable import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

COLUMN_GAP = 2


def render_text(recommendation: Recommendation, *, width: int, color: bool, top: int = 10) -> str:
    """The whole answer, at most `width` characters wide; `top` rows, both kinds of device among them."""
    console = capturing_console(width=width, color=color)
    print_line(console, sentence.headline(recommendation), style="bold")
    print_list(console, "Assumes:", sentence.basis(recommendation))
    rows = shown_quotes(recommendation.quotes, top=top)
    if rows:
        columns = fitting_columns(rows, width=width)
        dropped = [column.header for column in COLUMNS if column not in columns]
        console.print()
        console.print(_quote_table(rows, columns))
        notes = sentence.table_notes(rows, quote_count=len(recommendation.quotes))
        for note in (*notes, f"Not at this width: {', '.join(dropped)}.") if dropped else notes:
            print_line(console, note, style="dim")
    print_list(console, f"Left out ({len(recommendation.rejected):,}):", sentence.left_out(recommendation))
    print_list(console, "Warnings:", recommendation.warnings, style="yellow")
    return captured(console)


def fitting_columns(rows: Sequence[RankedQuote], *, width: int) -> tuple[Column, ...]:
    """The columns that fit `width`: those with the lowest drop order go first."""
    columns = list(COLUMNS)
    for column in sorted((c for c in COLUMNS if c.drop_order is not None), key=lambda c: c.drop_order or 0):
        if _table_width(rows, columns) <= width:
            break
        columns.remove(column)
    return tuple(columns)


def _table_width(rows: Sequence[RankedQuote], columns: Sequence[Column]) -> int:
    from rich.cells import cell_len

    widths = (max(cell_len(text) for text in (c.header, *(c.cell(row) for row in rows))) for c in columns)
    return sum(widths) + COLUMN_GAP * (len(columns) - 1)


def _quote_table(rows: Sequence[RankedQuote], columns: Sequence[Column]) -> Table:
    cells = [[column.cell(row) for column in columns] for row in rows]
    return plain_table([column.header for column in columns], cells, numbers=[column.is_number for column in columns])


def plain_table(headers: Sequence[str], cells: Sequence[Sequence[str]], *, numbers: Sequence[bool]) -> Table:
    """A table without lines; cells are literal text (no markup), numbers to the right, the first row stands out."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, COLUMN_GAP, 0, 0), header_style="bold", row_styles=())
    for header, is_number in zip(headers, numbers, strict=True):
        table.add_column(header, justify="right" if is_number else "left", overflow="fold")
    for index, row in enumerate(cells):
        table.add_row(*(Text(printable(cell)) for cell in row), style="green" if index == 0 else "")
    return table


def capturing_console(*, width: int, color: bool) -> Console:
    """A console that keeps what is printed until `captured`, so that the caller decides where the text goes."""
    from rich.console import Console

    console = Console(
        width=width,
        color_system="standard" if color else None,
        force_terminal=color,
        no_color=not color,
        highlight=False,
        legacy_windows=False,
    )
    console.begin_capture()
    return console


def print_line(console: Console, line: str, *, style: str = "", indent: int = 0) -> None:
    """One paragraph of literal text, wrapped between words."""
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(printable(line), style=style), (0, 0, 0, indent)))


def print_list(console: Console, title: str, lines: Iterable[str], *, style: str = "") -> None:
    """A titled list after an empty line, or nothing where there are no lines."""
    lines = tuple(lines)
    if lines:
        console.print()
        print_line(console, title, style=style or "bold")
        for line in lines:
            print_line(console, line, style=style, indent=2)


def captured(console: Console) -> str:
    """What was printed, without the blanks that pad lines to the full width."""
    return "".join(f"{line.rstrip()}\n" for line in console.end_capture().splitlines())
