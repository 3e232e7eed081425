"""What a report is made of, as data: the page draws it, and knows nothing of models or prices.

All words are made here; the page formats nothing but the ticks of its axes.
"""

from dataclasses import dataclass
from typing import Literal

Unit = Literal["s", "money", "bytes", "count", "per_s", "flops_per_s", "flops_per_byte"]
Symbol = Literal["circle", "triangle", "square", "diamond", "star", "cross", "wye"]
Color = Literal[1, 2, 3, 4, 5, 6, 7]
"""Of Okabe and Ito's palette, which colour-blind people can tell apart; 7 is grey. `report.css` has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """`keys` are the numbers that its cells stand for, to sort by; else their text is. `is_choice`: few values."""

    header: str
    is_number: bool = False
    keys: tuple[float | None, ...] = ()
    is_choice: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text. A long one can be searched."""

    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """`unit` says how its ticks read."""

    label: str
    unit: Unit
    is_log: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """`text` is what a reader sees who points at it, `name` what stands beside it; and the ends of its intervals."""

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
    """Points that belong together; colour and symbol both tell them from others. A line has a band of its intervals."""

    name: str
    color: Color
    symbol: Symbol | None
    points: tuple[Point, ...]
    has_line: bool = False
    is_faint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A place on the x axis with its name."""

    x: float
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Points and lines, and the same figures as a table. A series without a symbol is no entry of the legend."""

    title: str
    notes: tuple[str, ...] = ()
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    table: Table
    rules: tuple[Rule, ...] = ()
    kind: Literal["chart"] = "chart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A stretch of a bar."""

    name: str
    value: float
    color: Color
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Parts one after the other; `limit` is a mark that it may not pass."""

    name: str
    note: str
    parts: tuple[Part, ...]
    limit: float | None = None
    limit_text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Horizontal bars on one axis, and the same figures as a table."""

    title: str
    notes: tuple[str, ...] = ()
    x: Axis
    bars: tuple[Bar, ...]
    table: Table
    kind: Literal["bars"] = "bars"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Sentences under a title."""

    title: str
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One heading of the report; `id` is the anchor in its address."""

    id: str
    title: str
    lead: tuple[str, ...] = ()
    lists: tuple[Listing, ...] = ()
    plots: tuple[Chart | Bars, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number of the headline by itself."""

    name: str
    value: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The whole report. `money` is what stands before an amount."""

    title: str
    headline: str
    figures: tuple[Figure, ...]
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]
    money: str
    footer: str
