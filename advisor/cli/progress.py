"""What is being done, on stderr and only while a person watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from advisor.cli.terminal import visible

_ERASE_LINE = "\r\x1b[K"


@contextmanager
def progress(message: str) -> Iterator[None]:
    """Show `message` on a terminal for as long as the block runs; say nothing elsewhere."""
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
    """Give a function that shows, on a terminal, how many of how many are done; say nothing elsewhere."""
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
