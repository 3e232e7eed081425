"""Columns of values in, records out, and back: for the places where there are a hundred thousand of them."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

RecordT = TypeVar("RecordT")


def to_columns(record: type[Any], rows: Sequence[Any]) -> dict[str, list[Any]]:
    """The values of every field, in the order of the rows."""
    return {field.name: [getattr(row, field.name) for row in rows] for field in fields(record)}


def from_columns(record: type[RecordT], columns: Mapping[str, Iterable[Any]], *, count: int) -> list[RecordT]:
    """`count` records, filled field by field through their slots: a quarter of the time that `__init__` takes for each.

    Nothing is checked, and no default is filled in. Raises KeyError when a field has no column.
    """
    rows = [record.__new__(record) for _ in range(count)]
    for field in fields(record):  # type: ignore[arg-type]
        fill = getattr(record, field.name).__set__
        deque(map(fill, rows, columns[field.name]), maxlen=0)
    return rows
