"""Reads CSV files of measured step times, with errors that name the line, and finds the model of a row."""

import csv
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from io import StringIO
from pathlib import Path
from typing import TypeVar

from advisor.errors import LoadError, UsageError, did_you_mean
from advisor.files.json_text import adapter_of
from advisor.files.regular_file import read_regular_file
from advisor.records.measurement import Measurement, TimedStep
from advisor.workload.model_config import find_config
from advisor.workload.sources import kind_of

RowT = TypeVar("RowT")

_RELEASE = re.compile(r"(\d+\.\d+)?")
_MOST_COUNT = 10**9


def read_measurements(path: Path) -> tuple[Measurement, ...]:
    """Read a file of measured steps; raise `UsageError` as `read_rows`."""
    steps = read_rows(path, TimedStep)
    for step, line in steps:
        if not _RELEASE.fullmatch(step.torch):
            raise cell_error(path, line, "torch", found=step.torch, expected="it is a release of PyTorch, as 2.9")
    return tuple(Measurement(**asdict(step), file=str(path), line=line) for step, line in steps)


def read_rows(path: Path, kind: type[RowT]) -> list[tuple[RowT, int]]:
    """Return the rows of a table with their lines; its columns are the fields of `kind`, in any order.

    A cell of a column that has a default may be empty, or the whole column missing. Raises `UsageError`, also for a
    count or a number that is not above 0.
    """
    columns = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    optional = {field.name for field in fields(kind) if field.default is not MISSING}  # type: ignore[arg-type]
    table = _read_table(path, columns=columns, optional=optional)
    return [(_row(kind, cells, path=path, line=line), line) for cells, line in table]


def has_column(path: Path, name: str) -> bool:
    """Return whether a table has the column; raise `UsageError` for a file that cannot be read."""
    try:
        return name in (_cells(path).fieldnames or ())
    except csv.Error:  # reading the rows says what is wrong
        return False


def _cells(path: Path) -> "csv.DictReader[str]":
    """Return the reader of a table's cells, by their columns' names; raise `UsageError` as `_table_text`."""
    return csv.DictReader(StringIO(_table_text(path), newline=""), strict=True)


def _table_text(path: Path) -> str:
    """Return the text of a table; raise `UsageError` for a file that cannot be read."""
    try:
        return read_regular_file(path).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="check the path and its permissions") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text", hint="save the table as CSV in UTF-8") from None


def _read_table(
    path: Path, *, columns: Sequence[str], optional: Collection[str]
) -> Iterator[tuple[Mapping[str, str], int]]:
    """Yield the given cells of each row with its line; raise `UsageError` for unknown columns, and for no rows.

    An empty cell of an optional column is left out.
    """
    rows = _cells(path)
    try:
        _check_columns(rows.fieldnames or (), path, columns=columns, optional=optional)
        for cells in rows:
            if None in cells or None in cells.values():
                problem = "has not as many cells as there are columns"
                raise UsageError(f"{path}:{rows.line_num}: {problem}", hint="quote a cell that holds a comma")
            yield (
                {name: cell.strip() for name, cell in cells.items() if cell.strip() or name not in optional},
                rows.line_num,
            )
    except csv.Error as error:
        raise UsageError(f"{path}:{rows.line_num}: {error}", hint="save the table as comma-separated values") from None
    if rows.line_num < 2:
        raise UsageError(f"{path}: holds no measurement", hint="add a row below the columns' names")


def source_of(measurement: Measurement) -> str:
    """Return the measurement's model as a source; a path is relative to the file's folder, else to the current one."""
    kind, file = kind_of(measurement.model), Path(measurement.file)
    if kind is not None and kind.scheme:
        reference = measurement.model.removeprefix(f"{kind.scheme}:")
        return f"{kind.scheme}:{_found(reference, file)}" if kind.is_path else measurement.model
    path, separator, name = measurement.model.partition("::")
    return f"{_found(path, file)}{separator}{name}"


def source_beside(model: str, file: Path) -> str:
    """Return `hf:CONFIG.json` with the path relative to the file's folder, else to the current one."""
    return f"hf:{_found(model.removeprefix('hf:'), file)}"


def _found(path: str, file: Path) -> str:
    beside = file.parent / path
    return str(beside) if beside.exists() else path


def _check_columns(found: Sequence[str], path: Path, *, columns: Sequence[str], optional: Collection[str]) -> None:
    all_columns = f"the columns are {', '.join(columns)}"
    for name in found:
        if name not in columns:
            hint = did_you_mean(name, columns, otherwise=f"remove it; {all_columns}")
            raise UsageError(f"{path}:1: {name}: no such column", hint=hint)
        if found.count(name) > 1:
            raise UsageError(f"{path}:1: {name}: the column comes twice", hint="remove one of them")
    for name in columns:
        if name not in found and name not in optional:
            raise UsageError(f"{path}:1: {name}: the column is missing", hint=all_columns)


def _row(kind: type[RowT], cells: Mapping[str, str], *, path: Path, line: int) -> RowT:
    from pydantic import ValidationError

    def error(column: str, expected: str) -> UsageError:
        return cell_error(path, line, column, found=cells.get(column, ""), expected=expected)

    try:
        row: RowT = adapter_of(kind).validate_python(cells)  # type: ignore[arg-type] # a class
    except ValidationError as invalid:
        first = invalid.errors(include_url=False, include_context=False)[0]
        raise error(str(first["loc"][0]), first["msg"].lower()) from None
    for column in cells:
        value = getattr(row, column)
        if value == "":
            raise error(column, "it may not be empty")
        if type(value) is int and not 1 <= value < _MOST_COUNT:
            raise error(column, "it is a count from 1, below 1e9")
        if isinstance(value, float) and not 0 < value < math.inf:
            raise error(column, "it is a number above 0")
    return row


def cell_error(path: Path, line: int, column: str, *, found: str, expected: str) -> UsageError:
    """Return the error of a cell."""
    return UsageError(f"{path}:{line}: {column}: found {found!r}: {expected}", hint="mend the cell, or remove the row")


_NAME = re.compile(r"(?:tf_)?([a-z]+?)(?=v?\d|_|\W|$)", re.IGNORECASE)
"""A name up to its first underscore, digit or version: `vit_base`, `resnet50`, `efficientnetv2_s`; timm marks weights
ported from TensorFlow with `tf_`."""
_SIZED = re.compile(r"([a-z_]+?)(?:_\d+)+")
"""An operator and its sizes, in a file of operators: `linear_512_2048`."""


def family_of(source: str) -> str:
    """Return the kind of source, and the architecture that the model's name, config or file name gives."""
    kind = kind_of(source)
    if kind is not None and kind.scheme:
        reference = source.removeprefix(f"{kind.scheme}:")
        if kind.is_path:
            return f"{kind.scheme}:{_model_type(reference)}"
        match = _NAME.match(reference)
        return f"{kind.scheme}:{match[1].lower() if match else reference}"
    path, sizes, name = source.partition("::")
    if sizes and (operator := _SIZED.fullmatch(name)):
        return f"file:{operator[1]}"
    return f"file:{Path(path).stem}"


def _model_type(reference: str) -> str:
    """Return the config's `model_type`, or the file's name if it cannot be read; the row then fails with the reason."""
    try:
        return str(json.loads(read_regular_file(find_config(reference)))["model_type"])
    except (LoadError, OSError, ValueError, LookupError, TypeError):
        return Path(reference).stem
