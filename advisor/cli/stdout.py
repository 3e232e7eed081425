"""Text to stdout, and peace where nobody takes it."""

import os
import sys
from io import TextIOWrapper


def write_stdout(text: str) -> None:
    """Write and flush, escaping what the stream's encoding lacks; raise OSError after `discard_stdout`."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        discard_stdout()
        raise


def discard_stdout() -> None:
    """Send what is still buffered nowhere, or the interpreter's own flush at exit would fail a second time."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
