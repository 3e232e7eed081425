"""Records which of the user's files and folders a trace reads, so that a later change to any of them is noticed.

Python's audit events report every file that it opens, also through libraries (PEP 578). They miss files read by other
programs, or opened by C++ and Rust code; these are mostly weights, whose values do not affect a trace.
"""

import hashlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any

from advisor.workload.user_error import is_user_file

_BY_CONTENT_BYTES = 64 * 2**20
"""Larger files are identified by size and modification time: reading them would take longer than the trace."""
_NO_FILES = ("/proc/", "/sys/", "/dev/")
_recording: list[dict[str, str]] = []
"""The active records. An audit hook cannot be removed, so one stays for the life of the process."""
_is_hooked = False


@contextmanager
def files_read(*named: str) -> Iterator[dict[str, str]]:
    """Record the files read inside, and the files `named`: path -> fingerprint, taken before the file is read."""
    global _is_hooked
    if not _is_hooked:
        sys.addaudithook(_on_event)
        _is_hooked = True
    found: dict[str, str] = {}
    _recording.append(found)
    try:
        for path in named:
            _note(path, kind="file")
        yield found
    finally:
        _recording.pop()


def are_unchanged(files: Mapping[str, str]) -> bool:
    """Return True if every file and folder is unchanged."""
    return all(_fingerprint(path, kind=known.partition(" ")[0]) == known for path, known in files.items())


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if not _recording or event not in ("open", "os.listdir", "os.scandir"):
        return
    with suppress(Exception):  # the user's code may pass anything; the call itself then raises the error
        if event == "open":
            path, _, flags = arguments
            if flags & (os.O_WRONLY | os.O_RDWR) == 0:
                _note(path, kind="file")
        else:
            is_import = sys._getframe(1).f_code.co_filename.startswith("<frozen importlib")
            _note(arguments[0] or ".", kind="modules" if is_import else "names")


def _note(path: Any, *, kind: str) -> None:
    if isinstance(path, int):
        return  # a descriptor: its file was recorded when it was opened
    path = os.path.abspath(os.fsdecode(path))
    if path.endswith(".pyc"):
        path = source_from_cache(path)
    if path.startswith(_NO_FILES) or not is_user_file(path) or path in _recording[-1]:
        return
    _recording[-1][path] = ""  # set first, because taking the fingerprint opens the file again
    _recording[-1][path] = _fingerprint(path, kind=kind)


def _fingerprint(path: str, *, kind: str) -> str:
    """Return `kind` and a fingerprint of a file, of a folder's names, or of the names that an import could find."""
    try:
        if kind == "names":
            return f"{kind} {_digest(os.listdir(path))}"
        if kind == "modules":
            return f"{kind} {_digest(name for name in os.listdir(path) if _is_importable(path, name))}"
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return f"{kind} of mode {found.st_mode}"
        if found.st_size > _BY_CONTENT_BYTES:
            return f"{kind} of {found.st_size} bytes at {found.st_mtime_ns}"
        return f"{kind} {hashlib.sha256(Path(path).read_bytes()).hexdigest()}"
    except OSError as error:
        return f"{kind} {type(error).__name__}"


def _digest(names: Iterator[str] | list[str]) -> str:
    return hashlib.sha256("\0".join(sorted(names)).encode("utf-8", "surrogateescape")).hexdigest()


def _is_importable(folder: str, name: str) -> bool:
    if name == "__pycache__":
        return False
    return name.endswith((".py", ".so")) or os.path.isdir(os.path.join(folder, name))
