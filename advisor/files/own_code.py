"""Identifies the program's own code, so that a cached result is not taken for that of another version."""

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


@cache
def code_digest(*parts: str) -> str:
    """Return a SHA-256 of the program's code in `parts`, as hexadecimal digits.

    A part is a room, such as "ops", with all modules in it, or a single module, such as "records/device.py". Raises
    `FileNotFoundError` if there is no such part.
    """
    digest = hashlib.sha256()
    for file in code_files(*parts):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(PACKAGE).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def code_files(*parts: str) -> Iterator[Path]:
    """Yield the Python files of `parts`, as `code_digest` takes them."""
    for part in parts:
        path = PACKAGE / part
        if not path.exists():
            raise FileNotFoundError(path)
        yield from sorted(path.rglob("*.py")) if path.is_dir() else (path,)
