"""Replaces files atomically, so that no reader ever sees a half-written one, and checks that a folder is writable."""

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from advisor.errors import UsageError

_SUFFIX = ".advise-part"
"""Suffix of a file that is being written, or whose writer was killed. No other program uses it."""


def write_whole(text: str, path: Path) -> None:
    """Write `text` to `path` atomically; raise `OSError` if it cannot be written.

    A symbolic link stays a link, and a file keeps its permissions. A pipe or device is written to directly.
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


def require_folder(path: Path, *, flag: str = "") -> None:
    """Raise `UsageError` if the folder of a file to write, as the value of `flag`, does not exist."""
    if not path.parent.is_dir():
        raise UsageError(f"{flag} {path}: folder {path.parent} does not exist".strip(), hint="create the folder first")


def replace_whole(data: bytes, path: Path, *, mode: int | None) -> None:
    """Replace `path` by a file with the permissions `mode`; None means the default permissions of a new file."""
    _remove_left_behind(path.parent)
    part, descriptor = _locked_part(path)
    try:
        with open(descriptor, "wb") as out:
            if mode is not None:
                os.fchmod(descriptor, mode)
            out.write(data)
            out.flush()
            os.fsync(descriptor)
            part.replace(path)  # still locked, so no other writer removes it as abandoned
    finally:
        part.unlink(missing_ok=True)


def why_unwritable(folder: Path) -> str:
    """Return why no file can be written in the folder, or "" if one can. Creates the folder if needed."""
    import tempfile  # not needed to write a file

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror}"


def _locked_part(target: Path) -> tuple[Path, int]:
    """Create a file beside `target`, locked as long as its descriptor is open."""
    while True:
        part = target.with_name(f".{os.urandom(8).hex()}{_SUFFIX}")  # the target's name plus a suffix may be too long
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with suppress(OSError):  # without locks on this file system, no other writer removes it either
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # otherwise another writer removed it before it was locked
                return part, descriptor
        except BaseException:
            os.close(descriptor)
            part.unlink(missing_ok=True)
            raise
        os.close(descriptor)


def _remove_left_behind(folder: Path) -> None:
    """Remove unfinished files whose writers have died, which released their locks."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
                with (
                    suppress(OSError),
                    open(entry.path, "rb") as part,
                ):  # another process removed it, or it is being written
                    fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(entry.path)
