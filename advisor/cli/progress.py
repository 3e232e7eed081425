"""Shows progress on stderr, only on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from advisor.cli.terminal import visible

_ERASE_LINE = "\r\x1b[K"


@contextmanager
def progress(message: str) -> Iterator[None]:
    """Show `message` while the block runs, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    sys.stderr.write(f"{visible(message)} ...")
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write(_ERASE_LINE)
        sys.stderr.flush()


@contextmanager
def counted_progress(message: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows `done` of `total`, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return

    def show(done: int, total: int) -> None:
        sys.stderr.write(f"{_ERASE_LINE}{message}: {done:,} of {total:,}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write(_ERASE_LINE)
        sys.stderr.flush()
