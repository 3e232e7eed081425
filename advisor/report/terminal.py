"""Renders any content as text for a terminal."""

from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from shutil import get_terminal_size

from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from advisor.report.content import Block, Listing, Paragraph, Table, View, Warnings, printable, shown

_COLUMN_GAP = 2
_VENDORS = ("NVIDIA ", "GeForce ")
"""Starts of an instance's name that the model of its GPU makes redundant."""
_NAMED_COLUMNS = 3
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
    return to_text(content, View(width=get_terminal_size().columns, folded='answer.save("answer.md")'))


class _Page:
    def __init__(self, view: View) -> None:
        self._file, self._folded = StringIO(), view.folded
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
            case Listing() if block.more and self._folded:
                count = f"{len(block.more):,} more" if block.items else "all"
                title = f"{block.title.rstrip('.')} ({count}: {self._folded})"
                if block.items:
                    self._list(title, block.items)
                else:
                    self.line(title)
            case Listing():
                self._list(block.title, (*block.items, *block.more))
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
        cells = _shortened_cells(content, kept, width=self._console.width)
        table = rich_table.Table(box=None, pad_edge=False, padding=(0, _COLUMN_GAP, 0, 0), header_style="bold")
        for column in columns:
            table.add_column(
                Text(column.header),
                justify="right" if column.is_number else "left",
                no_wrap=column.is_number,
                overflow="fold",
            )
        for number, row in enumerate(zip(*cells, strict=True)):
            style = "green" if number == content.highlighted else ""
            table.add_row(*map(Text, row), style=style)
        self._console.print(table)
        for note in (*content.notes, *self._hidden(content, kept), *(() if self._folded else content.more)):
            self.line(note, style="dim")

    def _hidden(self, content: Table, kept: Sequence[int]) -> Iterator[str]:
        """Yield a line on the columns and notes that are not shown, with the setting that shows them."""
        parts = []
        if hidden := [column.header for place, column in enumerate(content.columns) if place not in kept]:
            places = range(len(content.columns))
            width = _table_width(_shortened_cells(content, places, width=0), content, places)
            named = ", ".join(hidden) if len(hidden) <= _NAMED_COLUMNS else f"{len(hidden)} columns"
            parts.append(f"{named} (set COLUMNS={width} to show {'it' if len(hidden) == 1 else 'them'})")
        if content.more and self._folded:
            parts.append(f"{len(content.more)} note{'' if len(content.more) == 1 else 's'} ({self._folded})")
        if parts:
            yield f"Hidden: {', '.join(parts)}."

    def text(self) -> str:
        """Return the text of the page without trailing blanks."""
        return "".join(f"{line.rstrip()}\n" for line in self._file.getvalue().splitlines())


def fitting_columns(table: Table, *, width: int) -> list[int]:
    """Return the places of the columns that fit `width`; the lowest drop order is dropped first."""
    kept = list(range(len(table.columns)))
    droppable = [(column.drop_order, index) for index, column in enumerate(table.columns) if column.drop_order]
    for _, index in sorted(droppable):
        if _table_width(_shortened_cells(table, kept, width=0), table, kept) <= width:
            break
        kept.remove(index)
    return kept


def _shortened_cells(table: Table, kept: Sequence[int], *, width: int) -> list[list[str]]:
    """Return the cells of each kept column, long names shortened if the table is wider than `width`.

    The first names, which say which row it is, are shortened last and no more than needed.
    """
    cells = [[printable(row[index]) for row in table.rows] for index in kept]
    for place, index in reversed(list(enumerate(kept))):
        column, over = table.columns[index], _table_width(cells, table, kept) - width
        if column.shortens_to is not None and over > 0:
            widest = max(map(cell_len, cells[place]))
            words = [texts for at, texts in enumerate(cells) if at != place and not table.columns[kept[at]].is_number]
            beside = list(zip(*words, strict=True)) or [()] * len(table.rows)
            cells[place] = shortened(cells[place], beside=beside, width=max(widest - over, column.shortens_to))
    return cells


def _table_width(cells: Sequence[Sequence[str]], table: Table, kept: Sequence[int]) -> int:
    headers = (table.columns[index].header for index in kept)
    widths = [max(map(cell_len, (header, *texts))) for header, texts in zip(headers, cells, strict=True)]
    return sum(widths) + _COLUMN_GAP * (len(widths) - 1)


def shortened(names: Sequence[str], *, beside: Sequence[tuple[str, ...]], width: int) -> list[str]:
    """Return the names, long ones without the vendor's, then without their middle, so that they fit `width`.

    A cut name keeps two thirds of the width for its start. All get more room if two names would read the same, with the
    same words `beside` them in their rows.
    """
    short = [_cut(name, width=width) for name in names]
    read, are = (set(zip(texts, beside, strict=True)) for texts in (short, names))
    return short if len(read) == len(are) else shortened(names, beside=beside, width=width + 1)


def _cut(name: str, *, width: int) -> str:
    if len(name) > width:
        for vendor in _VENDORS:
            name = name.removeprefix(vendor)
    tail = (width - 1) // 3
    start, end = name[: width - 1 - tail].rstrip(), name[len(name) - tail :].lstrip()
    return name if len(name) <= width else f"{start}\N{HORIZONTAL ELLIPSIS}{end}"


def _with_colon(title: str) -> str:
    return title if title.endswith((".", "?")) else f"{title}:"
