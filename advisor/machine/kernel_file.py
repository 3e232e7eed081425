"""Reads a file of /proc or /sys."""

from pathlib import Path


def read_kernel_file(file: Path) -> str:
    """Return the text without surrounding whitespace, or "" if the file is missing or unreadable."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
