"""Lays out paragraphs, lists and tables as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from advisor.report.printable import printable

COLUMN_GAP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The heading of a column. Numbers are aligned right and never wrap; other columns wrap, the widest first."""

    text: str
    is_number: bool = False


class Page:
    """Text of a given width, with or without ANSI colours. All text is literal; markup is not interpreted."""

    def __init__(self, *, width: int, color: bool) -> None:
        self._file = StringIO()
        self._console = Console(
            file=self._file,
            width=width,
            color_system="standard" if color else None,
            force_terminal=color,
            no_color=not color,
            highlight=False,
            legacy_windows=False,
        )

    def line(self, text: str, *, style: str = "", indent: int = 0) -> None:
        """Add a paragraph, wrapped between words."""
        self._console.print(Padding(Text(printable(text), style=style), (0, 0, 0, indent)))

    def blank(self) -> None:
        """Add an empty line."""
        self._console.print()

    def titled_list(self, title: str, lines: Iterable[str], *, style: str = "") -> None:
        """Add an empty line, a title and indented lines; add nothing if there are no lines."""
        lines = tuple(lines)
        if lines:
            self.blank()
            self.line(title, style=style or "bold")
            for line in lines:
                self.line(line, style=style, indent=2)

    def table(
        self, headings: Sequence[Heading], rows: Sequence[Sequence[str]], *, first_row_style: str = "green"
    ) -> None:
        """Add a table without rules; its first row is highlighted."""
        table = Table(box=None, pad_edge=False, padding=(0, COLUMN_GAP, 0, 0), header_style="bold")
        for heading in headings:
            table.add_column(
                Text(heading.text),
                justify="right" if heading.is_number else "left",
                no_wrap=heading.is_number,
                overflow="fold",
            )
        for index, row in enumerate(rows):
            table.add_row(*(Text(printable(cell)) for cell in row), style=first_row_style if index == 0 else "")
        self._console.print(table)

    def text(self) -> str:
        """Return the text of the page without trailing blanks."""
        return "".join(f"{line.rstrip()}\n" for line in self._file.getvalue().splitlines())
