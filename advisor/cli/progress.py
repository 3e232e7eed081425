"""What is being done, on stderr and only while a person watches."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_ERASE_LINE = "\r\x1b[K"


@contextmanager
def progress(message: str) -> Iterator[None]:
    """Show `message` on a terminal for as long as the block runs; say nothing elsewhere."""
    if not sys.stderr.isatty():
        yield
        return
    sys.stderr.write(f"{message} ...")
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write(_ERASE_LINE)
        sys.stderr.flush()
