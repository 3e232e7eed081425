"""Paragraphs, lists and tables in, text for a terminal out."""

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
    """The head of a column. Numbers stand to the right and never wrap; of the rest, the widest wraps first."""

    text: str
    is_number: bool = False


class Page:
    """Text of a given width, with ANSI colours or without. Everything put on it is literal: no markup is read."""

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
        """One paragraph, wrapped between words."""
        self._console.print(Padding(Text(printable(text), style=style), (0, 0, 0, indent)))

    def blank(self) -> None:
        """An empty line."""
        self._console.print()

    def titled_list(self, title: str, lines: Iterable[str], *, style: str = "") -> None:
        """A title over indented lines after an empty line, or nothing where there are no lines."""
        lines = tuple(lines)
        if lines:
            self.blank()
            self.line(title, style=style or "bold")
            for line in lines:
                self.line(line, style=style, indent=2)

    def table(
        self, headings: Sequence[Heading], rows: Sequence[Sequence[str]], *, first_row_style: str = "green"
    ) -> None:
        """A table without rules; its first row stands out."""
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
        """What is on the page, without the blanks that pad lines to the full width."""
        return "".join(f"{line.rstrip()}\n" for line in self._file.getvalue().splitlines())
