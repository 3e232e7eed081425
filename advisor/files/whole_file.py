"""A text and a path in, the file there out, of which nobody ever reads a part."""

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

_SUFFIX = ".advise-part"
"""Of a file that is being written, or was when its writer was killed: nobody else's ends so."""


def write_whole(text: str, path: Path) -> None:
    """A reader of `path` sees the old file or the whole new one; raise `OSError` where it cannot be written.

    A link stays one, and a file keeps its permissions. What is no regular file, a pipe or a device, is written into.
    """
    data = text.encode()
    try:
        found = path.stat().st_mode
    except FileNotFoundError:
        replace_whole(data, path.resolve(), mode=None)
        return
    if stat.S_ISREG(found):
        replace_whole(data, path.resolve(), mode=stat.S_IMODE(found))
    else:
        with path.open("wb") as out:
            out.write(data)


def replace_whole(data: bytes, path: Path, *, mode: int | None) -> None:
    """Put a file with these permissions in the place of whatever `path` is; None: those of any new file."""
    _remove_left_behind(path.parent)
    part, descriptor = _locked_part(path)
    try:
        with open(descriptor, "wb") as out:
            if mode is not None:
                os.fchmod(descriptor, mode)
            out.write(data)
            out.flush()
            os.fsync(descriptor)
            part.replace(path)  # still locked: nobody takes it for one left behind
    finally:
        part.unlink(missing_ok=True)


def _locked_part(target: Path) -> tuple[Path, int]:
    """A new file beside `target`, locked for as long as its descriptor is open."""
    while True:
        part = target.with_name(f".{os.urandom(8).hex()}{_SUFFIX}")  # a long name of the target's own may not fit
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with suppress(OSError):  # a file system without locks; nobody else can take it for left behind then
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # else it was swept before it was locked
                return part, descriptor
        except BaseException:
            os.close(descriptor)
            part.unlink(missing_ok=True)
            raise
        os.close(descriptor)


def _remove_left_behind(folder: Path) -> None:
    """Remove the parts whose writers are gone: their locks went with them."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
                with (
                    suppress(OSError),
                    open(entry.path, "rb") as part,
                ):  # another removes it too, or it is being written
                    fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(entry.path)
