"""Builds tables from records: a typed column says how a record becomes a cell and the number to sort by."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from advisor.records.answer import Interval
from advisor.report.content import Column, Table

RowT = TypeVar("RowT")
ValueT = TypeVar("ValueT", int, float, Interval)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOf(Generic[RowT]):
    """One column of a table of `RowT`: the text of a cell, and the number behind it, None in a column of words."""

    layout: Column
    cell: Callable[[RowT], str]
    number: Callable[[RowT], float | None] | None

    @property
    def header(self) -> str:
        """Return the heading."""
        return self.layout.header


def column(
    header: str,
    cell: Callable[[RowT], str],
    number: Callable[[RowT], float | None] | None = None,
    *,
    is_choice: bool = False,
    drop_order: int | None = None,
    shortens_to: int | None = None,
) -> ColumnOf[RowT]:
    """Return a column of words, or of numbers if `number` is given."""
    layout = Column(
        header=header,
        is_number=number is not None,
        is_choice=is_choice,
        drop_order=drop_order,
        shortens_to=shortens_to,
    )
    return ColumnOf(layout=layout, cell=cell, number=number)


def numbers(
    header: str,
    value: Callable[[RowT], ValueT | None],
    text: Callable[[ValueT], str],
    *,
    missing: str = "-",
    drop_order: int | None = None,
) -> ColumnOf[RowT]:
    """Return a column of numbers or intervals, each formatted by `text`; an interval sorts by its middle."""

    def cell(row: RowT) -> str:
        found = value(row)
        return missing if found is None else text(found)

    def number(row: RowT) -> float | None:
        found = value(row)
        return found.mid if isinstance(found, Interval) else found

    return column(header, cell, number, drop_order=drop_order)


def starred(one: ColumnOf[RowT], is_starred: Callable[[RowT], bool]) -> ColumnOf[RowT]:
    """Return the column with a * before the cells of some rows."""
    return replace(one, cell=lambda row: f"{'*' if is_starred(row) else ''}{one.cell(row)}")


def table_of(
    rows: Iterable[RowT],
    columns: Sequence[ColumnOf[RowT]],
    *,
    title: str = "",
    notes: Iterable[str] = (),
    more: Iterable[str] = (),
    highlighted: int | None = None,
) -> Table:
    """Return a table with one row per record."""
    rows = tuple(rows)
    return Table(
        title=title,
        columns=tuple(
            replace(one.layout, keys=() if one.number is None else tuple(map(one.number, rows))) for one in columns
        ),
        rows=tuple(tuple(one.cell(row) for one in columns) for row in rows),
        notes=tuple(notes),
        more=tuple(more),
        highlighted=highlighted,
    )


def more_note(count: int, *, top: int, what: str = "") -> tuple[str, ...]:
    """Return the note on the rows that `--top` hides, if any: "3 more rows (--top 13 shows all)."."""
    return (f"{count - top:,} more{what} (--top {count} shows all).",) if count > top else ()
