"""Turns errors in a workload's row into `DocumentError`: only a workload file edited by the user can cause them."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from advisor.errors import ROW_ERRORS, DocumentError, row_problem
from advisor.records.workload import Row

_P = ParamSpec("_P")
_T = TypeVar("_T")


def refusing_rows(function: Callable[Concatenate[Row, _P], _T]) -> Callable[Concatenate[Row, _P], _T]:
    """Decorate `function` to raise `DocumentError` if it cannot handle the row."""

    @wraps(function)
    def refusing(row: Row, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(row, *args, **kwargs)
        except ROW_ERRORS as error:
            where = f" in {row.module}" if row.module else ""
            raise DocumentError(f"{row.op}{where}: {row_problem(error)}", where="workload", key="rows") from error

    return refusing
