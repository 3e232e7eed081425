"""A file that a user named in, its bytes out: never from a pipe or a device, and no more than such a file can hold."""

import errno
import os
import stat
from pathlib import Path

MOST_BYTES = 16 * 2**20
"""Traces of the largest models are of 5 MB, all shipped profiles together of 1 MB; parsed, JSON takes 20 times that."""


def read_regular_file(path: Path) -> bytes:
    """The whole content; raise OSError, whose `strerror` says what is wrong, where it is no regular file or too large.

    A pipe would be waited for until somebody writes into it, and a device such as /dev/zero read without end.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(path))
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        if path.is_symlink():
            raise OSError(errno.ENOENT, f"a link to {os.readlink(path)}, which is not there", str(path)) from None
        raise
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"larger than the {MOST_BYTES / 2**20:g} MiB that are read at most", str(path))
    return content


def _open_at_once(path: str, flags: int) -> int:
    """Opening a pipe waits for its other end, unless it is told not to; regular files do not care."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
