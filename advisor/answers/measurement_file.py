"""Reads CSV files of measured step times, with errors that name the line, and finds the model of a row."""

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from difflib import get_close_matches
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.errors import UsageError
from advisor.files.regular_file import read_regular_file
from advisor.records.measurement import Measurement, TimedStep
from advisor.workload.sources import kind_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_COLUMNS = tuple(field.name for field in fields(TimedStep))
_OPTIONAL = frozenset(field.name for field in fields(TimedStep) if field.default is not MISSING)
_RELEASE = re.compile(r"(\d+\.\d+)?")
_MOST_BATCH = 10**9
_HINT = f"the columns are {', '.join(_COLUMNS)}"


def read_measurements(path: Path) -> tuple[Measurement, ...]:
    """Read a file of measurements; its columns may come in any order.

    A cell of a column that has a default may be empty, or the whole column missing. Raises `UsageError`.
    """
    try:
        text = read_regular_file(path).decode("utf-8-sig")
        rows = csv.DictReader(StringIO(text, newline=""), strict=True)
        _check_columns(rows.fieldnames or (), path)
        measurements = tuple(_measurement(cells, path=path, line=rows.line_num) for cells in rows)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="check the path and its permissions") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text", hint="save the table as CSV in UTF-8") from None
    except csv.Error as error:
        raise UsageError(f"{path}:{rows.line_num}: {error}", hint="save the table as comma-separated values") from None
    if not measurements:
        raise UsageError(f"{path}: holds no measurement", hint="add a row below the columns' names")
    return measurements


def source_of(measurement: Measurement) -> str:
    """Return the measurement's model as a source; a path is relative to the file's folder, else to the current one."""
    kind = kind_of(measurement.model)
    if kind is not None and kind.scheme:
        reference = measurement.model.removeprefix(f"{kind.scheme}:")
        return f"{kind.scheme}:{_found(reference, measurement)}" if kind.is_path else measurement.model
    path, separator, name = measurement.model.partition("::")
    return f"{_found(path, measurement)}{separator}{name}"


def _found(path: str, measurement: Measurement) -> str:
    beside = Path(measurement.file).parent / path
    return str(beside) if beside.exists() else path


def _check_columns(found: Sequence[str], path: Path) -> None:
    for name in found:
        if name not in _COLUMNS:
            close = get_close_matches(name, _COLUMNS, n=1)
            raise UsageError(
                f"{path}:1: {name}: no such column",
                hint=f"did you mean {close[0]}?" if close else f"remove it; {_HINT}",
            )
        if found.count(name) > 1:
            raise UsageError(f"{path}:1: {name}: the column comes twice", hint="remove one of them")
    for name in _COLUMNS:
        if name not in found and name not in _OPTIONAL:
            raise UsageError(f"{path}:1: {name}: the column is missing", hint=_HINT)


def _measurement(cells: Mapping[Any, Any], *, path: Path, line: int) -> Measurement:
    from pydantic import ValidationError

    if None in cells or None in cells.values():
        problem = "has not as many cells as there are columns"
        raise UsageError(f"{path}:{line}: {problem}", hint="quote a cell that holds a comma")
    given = {name: cell.strip() for name, cell in cells.items() if cell.strip() or name not in _OPTIONAL}
    try:
        measurement = _adapter().validate_python({**given, "file": str(path), "line": line})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        column = str(first["loc"][0])
        raise _cell_error(path, line, column, found=cells[column], expected=first["msg"].lower()) from None
    for column in ("model", "device", "source"):
        if not given[column]:
            raise _cell_error(path, line, column, found="", expected="it may not be empty")
    if not _RELEASE.fullmatch(measurement.torch):
        raise _cell_error(path, line, "torch", found=cells["torch"], expected="it is a release of PyTorch, as 2.9")
    if not 1 <= measurement.batch < _MOST_BATCH:
        raise _cell_error(path, line, "batch", found=cells["batch"], expected="it is a count from 1, below 1e9")
    if not 0 < measurement.step_s < math.inf:
        raise _cell_error(path, line, "step_s", found=cells["step_s"], expected="it is a time in seconds above 0")
    return measurement


def _cell_error(path: Path, line: int, column: str, *, found: str, expected: str) -> UsageError:
    return UsageError(f"{path}:{line}: {column}: found {found!r}: {expected}", hint="mend the cell, or remove the row")


@cache
def _adapter() -> "TypeAdapter[Measurement]":
    from pydantic import TypeAdapter

    return TypeAdapter(Measurement)


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
            return f"{kind.scheme}:{_model_type(Path(reference))}"
        match = _NAME.match(reference)
        return f"{kind.scheme}:{match[1].lower() if match else reference}"
    path, sizes, name = source.partition("::")
    if sizes and (operator := _SIZED.fullmatch(name)):
        return f"file:{operator[1]}"
    return f"file:{Path(path).stem}"


def _model_type(path: Path) -> str:
    """Return the config's `model_type`, or the file's name if it cannot be read; the row then fails with the reason."""
    config = path / "config.json" if path.is_dir() else path
    try:
        return str(json.loads(read_regular_file(config))["model_type"])
    except (OSError, ValueError, LookupError, TypeError):
        return path.stem
