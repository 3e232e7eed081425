"""A file of /proc or /sys in, its text out."""

from pathlib import Path


def read_kernel_file(file: Path) -> str:
    """The text without the blanks around it; "" for a file that is not there or may not be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
