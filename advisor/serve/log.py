"""The log of the service: a record is one line whoever's words are in it, and no mistake fills the disk."""

import logging
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TextIO

from advisor.report.printable import printable

_LOG = logging.getLogger(__name__)
_MOST_PER_MINUTE = 20
_MOST_CHARACTERS = 2_000
"""In a line."""
_MOST_LINES = 100
"""In a traceback."""


def configure_log() -> None:
    """Log to stderr."""
    logging.basicConfig(level=logging.INFO, handlers=[log_handler(sys.stderr)])


def log_handler(stream: TextIO) -> logging.Handler:
    """What writes records to `stream`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(RateLimit())
    return handler


def log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Log what ends the process; for `sys.excepthook`."""
    _LOG.critical("a process of the service ends", exc_info=(kind, error, trace))


class RateLimit(logging.Filter):
    """Lets each place in the code log 20 times a minute; the next minute begins with how much was left out."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._minutes: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
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
    """Blanks for control characters; lines of a traceback are indented, so that none looks like a record."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as the standard library names it
        return printable(super().formatMessage(record)[:_MOST_CHARACTERS])

    def formatException(self, ei: Any) -> str:  # noqa: N802
        lines = super().formatException(ei).splitlines()[-_MOST_LINES:]
        return "\n".join(f"    {printable(line[:_MOST_CHARACTERS])}" for line in lines)
