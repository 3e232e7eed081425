"""A text and a path in, the file there out, of which nobody ever reads a part."""

import os
from pathlib import Path


def write_whole(text: str, path: Path) -> None:
    """A reader of `path` sees the old file or the whole new one; raise `OSError` where it cannot be written."""
    target = path.resolve()
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
