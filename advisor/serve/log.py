"""Sets up the log of the service: one line per record, limited in length and rate."""

import logging
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TextIO

from advisor.report.content import printable

_LOG = logging.getLogger(__name__)
_MOST_PER_MINUTE = 20
_MOST_CHARACTERS = 2_000
"""Characters per line."""
_MOST_LINES = 100
"""Lines per traceback."""


def configure_log() -> None:
    """Log to stderr."""
    logging.basicConfig(level=logging.INFO, handlers=[log_handler(sys.stderr)])


def log_handler(stream: TextIO) -> logging.Handler:
    """Return a handler that writes records to `stream`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(RateLimit())
    return handler


def log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Log an uncaught exception; for `sys.excepthook`."""
    _LOG.critical("uncaught exception, the process ends", exc_info=(kind, error, trace))


class RateLimit(logging.Filter):
    """Limits each line of code to 20 records per minute; the next minute starts with the number left out."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._minutes: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record is to be written."""
        place, now = (record.pathname, record.lineno), self._clock()
        begun, count = self._minutes.get(place, (now, 0))
        if now >= begun + 60:
            if count > _MOST_PER_MINUTE:
                left_out = count - _MOST_PER_MINUTE
                record.msg, record.args = f"{record.getMessage()} ({left_out} more were left out)", None
            begun, count = now, 0
        self._minutes[place] = begun, count + 1
        return count < _MOST_PER_MINUTE


class _Formatter(logging.Formatter):
    """Replaces control characters by blanks and indents tracebacks, so that no line can pass for a record."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        return printable(super().formatMessage(record)[:_MOST_CHARACTERS])

    def formatException(self, ei: Any) -> str:  # noqa: N802
        lines = super().formatException(ei).splitlines()[-_MOST_LINES:]
        return "\n".join(f"    {printable(line[:_MOST_CHARACTERS])}" for line in lines)
