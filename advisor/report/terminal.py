"""Renders any content as text for a terminal."""

from collections.abc import Iterable, Sequence
from io import StringIO
from shutil import get_terminal_size

from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from advisor.report.content import Block, Column, Listing, Paragraph, Table, Warnings, shown
from advisor.report.printable import printable
from advisor.report.view import View

_COLUMN_GAP = 2
_STYLES = {"": "", "faint": "dim", "alarm": "bold red"}


def to_text(content: Iterable[Block], view: View) -> str:
    """Return the content at most `view.width` wide. All text is literal; markup in names is not interpreted."""
    page = _Page(view)
    for index, block in enumerate(shown(content)):
        if index:
            page.line("")
        page.add(block)
    return page.text()


def displayed(content: Iterable[Block]) -> str:
    """Return the content as a Python prompt shows it: in the width of the terminal, without colours."""
    return to_text(content, View(width=get_terminal_size().columns))


class _Page:
    def __init__(self, view: View) -> None:
        self._file = StringIO()
        self._console = Console(
            file=self._file,
            width=view.width,
            color_system="standard" if view.color else None,
            force_terminal=view.color,
            no_color=not view.color,
            highlight=False,
            legacy_windows=False,
        )

    def line(self, text: str, *, style: str = "", indent: int = 0) -> None:
        """Add a paragraph, wrapped between words."""
        self._console.print(Padding(Text(printable(text), style=style), (0, 0, 0, indent)))

    def add(self, block: Block) -> None:
        """Add a paragraph, list or table."""
        match block:
            case Paragraph():
                if block.title:
                    self.line(block.title, style=_STYLES[block.style] or "bold")
                for sentence in block.sentences:
                    self.line(sentence, style=_STYLES[block.style])
            case Listing():
                self._list(block.title, block.items)
            case Warnings():
                self._list("Warnings", block.items, title_style="yellow", style="yellow")
            case Table():
                self._table(block)

    def _list(self, title: str, items: Sequence[str], *, title_style: str = "bold", style: str = "") -> None:
        self.line(_with_colon(title), style=title_style)
        for item in items:
            self.line(item, style=style, indent=2)

    def _table(self, content: Table) -> None:
        """Add a table without rules. Words wrap, the widest column first; numbers never do."""
        if content.title:
            self.line(_with_colon(content.title), style="bold")
        kept = fitting_columns(content, width=self._console.width)
        columns = [content.columns[index] for index in kept]
        table = rich_table.Table(box=None, pad_edge=False, padding=(0, _COLUMN_GAP, 0, 0), header_style="bold")
        for column in columns:
            table.add_column(
                Text(column.header),
                justify="right" if column.is_number else "left",
                no_wrap=column.is_number,
                overflow="fold",
            )
        for number, row in enumerate(content.rows):
            style = "green" if number == 0 and content.is_first_highlighted else ""
            table.add_row(*(Text(printable(row[index])) for index in kept), style=style)
        self._console.print(table)
        hidden = [column.header for column in content.columns if column not in columns]
        for note in (*content.notes, *([f"Columns hidden at this width: {', '.join(hidden)}."] if hidden else [])):
            self.line(note, style="dim")

    def text(self) -> str:
        """Return the text of the page without trailing blanks."""
        return "".join(f"{line.rstrip()}\n" for line in self._file.getvalue().splitlines())


def fitting_columns(table: Table, *, width: int) -> list[int]:
    """Return the places of the columns that fit `width`; the lowest drop order is dropped first."""
    kept = list(range(len(table.columns)))
    widths = [_column_width(column, [row[index] for row in table.rows]) for index, column in enumerate(table.columns)]
    droppable = [(column.drop_order, index) for index, column in enumerate(table.columns) if column.drop_order]
    for _, index in sorted(droppable):
        if sum(widths[place] for place in kept) + _COLUMN_GAP * (len(kept) - 1) <= width:
            break
        kept.remove(index)
    return kept


def _column_width(column: Column, cells: Iterable[str]) -> int:
    widest = max(cell_len(text) for text in (column.header, *cells))
    return widest if column.wraps_at is None else min(widest, column.wraps_at)


def _with_colon(title: str) -> str:
    return title if title.endswith(".") else f"{title}:"
