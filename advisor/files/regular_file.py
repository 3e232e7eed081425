"""Reads a file that the user named, up to a size limit, and refuses pipes and devices."""

import errno
import os
import stat
from pathlib import Path

MOST_BYTES = 16 * 2**20
"""Size limit. The largest models' traces take 5 MB, all shipped profiles 1 MB; parsed JSON takes 20 times its size."""


def read_regular_file(path: Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the whole content; raise `OSError` with a `strerror` for users if it is too large or not a regular file.

    Reading a pipe would wait for its writer, and reading a device such as /dev/zero would never end.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(path))
            content = file.read(most_bytes + 1)
    except FileNotFoundError:
        if path.is_symlink():
            raise OSError(errno.ENOENT, f"a link to {os.readlink(path)}, which does not exist", str(path)) from None
        raise
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than the limit of {most_bytes / 2**20:g} MiB", str(path))
    return content


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting for the other end of a pipe; the flag has no effect on regular files."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
