"""Defines the content of an answer for every renderer: paragraphs, listings, tables, charts and bars.

Python makes all text; the page formats only the ticks of its axes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from advisor.records.answer import Interval

Unit = Literal["s", "money", "bytes", "count", "kg", "per_s", "flops_per_s", "flops_per_byte"]
Symbol = Literal["circle", "triangle", "square", "diamond", "star", "cross", "wye"]
Color = Literal[1, 2, 3, 4, 5, 6, 7]
"""An index into the palette of Okabe and Ito, safe for colour-blind readers; 7 is grey. Defined in `report.css`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """A title and sentences, one per line; the first paragraph of an answer is its headline."""

    title: str = ""
    sentences: tuple[str, ...] = ()
    style: Literal["", "faint", "alarm"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A title and a list of sentences. Renderers skip a listing without any.

    `more` are sentences that a terminal shows only on demand (`View.folded`).
    """

    title: str
    items: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Warnings:
    """Reasons why the answer may be wrong. Renderers skip the block if it has no items."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table.

    - `is_number`: aligned to the right and never wrapped
    - `keys`: numbers to sort by instead of the text
    - `is_choice`: few distinct values
    - `drop_order`: a narrow terminal drops the column with the lowest one first; None is never dropped
    - `shortens_to`: a narrow terminal shortens longer text to this width before it drops a column
    """

    header: str
    is_number: bool = False
    keys: tuple[float | None, ...] = ()
    is_choice: bool = False
    drop_order: int | None = None
    shortens_to: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text. The page adds a search field to a long table. Renderers skip a table without rows.

    `more` are notes that a terminal shows only on demand (`View.folded`).
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    highlighted: int | None = None


Block: TypeAlias = Paragraph | Listing | Warnings | Table
"""A block of an answer, which every renderer can show; the page also draws the plots of a `Section`."""


def shown(content: Iterable[Block]) -> Iterator[Block]:
    """Yield the blocks that have something to show."""
    for block in content:
        match block:
            case Listing(items=(), more=()) | Warnings(items=()) | Table(rows=()):
                continue
            case _:
                yield block


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis of a chart; `unit` decides the format of its ticks."""

    label: str
    unit: Unit
    is_log: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point with its intervals. `text` is shown when the pointer is over it; `name` is printed beside it."""

    x: float
    y: float
    text: str
    name: str = ""
    x_low: float | None = None
    x_high: float | None = None
    y_low: float | None = None
    y_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points with one colour and symbol. A line has a band for its intervals."""

    name: str
    color: Color
    symbol: Symbol | None
    points: tuple[Point, ...]
    has_line: bool = False
    is_faint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A vertical line at `x`, with a name."""

    x: float
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Points and lines, with the same numbers as a table. The legend skips a series without a symbol."""

    title: str
    notes: tuple[str, ...] = ()
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    table: Table
    rules: tuple[Rule, ...] = ()
    kind: Literal["chart"] = "chart"


def interval_points(points: Iterable[tuple[float, Interval, str]]) -> tuple[Point, ...]:
    """Return the points of a line with a band, each from its place, its height and its text."""
    return tuple(Point(x=x, y=y.mid, y_low=y.low, y_high=y.high, text=text) for x, y, text in points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a bar."""

    name: str
    value: float
    color: Color
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar made of parts; `limit` is drawn as a mark."""

    name: str
    note: str
    parts: tuple[Part, ...]
    limit: float | None = None
    limit_text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Horizontal bars on one axis, with the same numbers as a table."""

    title: str
    notes: tuple[str, ...] = ()
    x: Axis
    bars: tuple[Bar, ...]
    table: Table
    kind: Literal["bars"] = "bars"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the report, without its empty lists, plots and tables; `id` is its anchor in the URL.

    The last sentence of its lead unfolds a folded one.
    """

    id: str
    title: str
    lead: tuple[str, ...] = ()
    lists: tuple[Listing, ...] = ()
    plots: tuple[Chart | Bars, ...] = ()
    tables: tuple[Table, ...] = ()
    is_folded: bool = False

    def __post_init__(self) -> None:
        plots = (one for one in self.plots if one.notes or (one.series if isinstance(one, Chart) else one.bars))
        object.__setattr__(self, "lists", tuple(one for one in self.lists if one.items))
        object.__setattr__(self, "plots", tuple(plots))
        object.__setattr__(self, "tables", tuple(one for one in self.tables if one.rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A key number, shown below the headline."""

    name: str
    value: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The whole report: the headline is one line, `answer` the full sentence. `money` is the prefix of an amount."""

    title: str
    headline: str
    answer: str
    figures: tuple[Figure, ...]
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]
    money: str
    footer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How to show an answer.

    - `top`: rows of a text table (data formats have all)
    - `width`: characters per line
    - `folded`: how to see `more` of listings and tables, such as "--details"; "" shows them
    """

    top: int = 10
    width: int = 80
    color: bool = False
    folded: str = ""


def printable(text: str) -> str:
    """Return `text` with blanks for unprintable characters, so that no name can control a terminal or split a line."""
    return "".join(character if character.isprintable() else " " for character in text)
