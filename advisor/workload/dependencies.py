"""Records which files, folders and environment variables a trace reads, to notice a later change.

Python's audit events report every file that it opens, also through libraries (PEP 578). They miss files read by other
programs, or opened by C++ and Rust code; these are mostly weights, whose values do not affect a trace. Variables, and
files that are only looked for or measured (`Path.exists`, `os.path.getsize`), count if the user's own code asks: torch
alone reads hundreds of variables, and a library reads its own only on import. Code that opens a connection or starts a
program depends on something that no fingerprint covers.

A trace imports 1,600 to 3,400 files of libraries. They are identified by size and modification time, as Python itself
identifies the source of a `.pyc` file, which takes 10 ms.
"""

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import source_from_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from advisor.records.script import ScriptReads
from advisor.workload.patching import Patch, patched
from advisor.workload.spawn import SET_IN_CHILD
from advisor.workload.user_error import is_user_file, owner_of, passes_arguments_on

_BY_CONTENT_BYTES = 64 * 2**20
"""Larger files are identified by size and modification time: reading them would take longer than the trace."""
_NO_FILES = ("/proc/", "/sys/", "/dev/")
_OF_SYSTEM = ("/etc/", "/usr/", "/lib", "/bin/", "/sbin/", "/run/")
_USUAL_VARIABLES = frozenset(("HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "USER"))
_USUAL_PREFIXES = ("LC_", "XDG_", "PYTHON")
"""Variables that the machine's own shell sets, or that concern this machine's folders."""
_OUTSIDE = "outside"
"""The name under which a connection or a program is recorded; it has no fingerprint."""
_PATH_MODULES = frozenset({"os", "_collections_abc", "collections.abc", "genericpath", "posixpath", "pathlib"})
"""Modules of Python between the user's code and `os.environ` or `os.stat`."""
_SEEN = "seen"
"""The kind of a path that the user's code looked for or measured, but did not open."""
_OUTSIDE_EVENTS = frozenset({"socket.connect", "subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork"})
_ALL_NAMES = "*"
_recording: list[dict[str, str]] = []
"""The active records."""
_hook_once = cache(sys.addaudithook)
"""An audit hook cannot be removed, so one stays for the life of the process."""


@contextmanager
def recorded_dependencies(*named: str) -> Iterator[dict[str, str]]:
    """Record what is read inside, and the files `named`: path or variable -> fingerprint.

    A file's fingerprint is taken before it is read, and a variable's is of its value when the recording began, because
    the code may set a variable before it reads it. Modules that are imported already count as read.
    """
    _hook_once(_on_event)
    found: dict[str, str] = {}
    environ = dict(os.environ)
    watched: list[Patch] = [
        (variables, name, _watched(getattr(variables, name), found, environ))
        for variables in (os.environ, os.environb)
        for name in ("encodekey", "decodekey")
    ]
    watched += [(os, name, _noting_paths(getattr(os, name))) for name in ("stat", "lstat")]
    _recording.append(found)
    try:
        with patched(watched, in_all_threads=True):
            for path in named:
                _note(path, kind="file")
            _note_imported()
            yield found
    finally:
        _recording.pop()


@contextmanager
def unrecorded() -> Iterator[None]:
    """Record nothing inside: our own fork reads nothing that this process does not read."""
    records = _recording.copy()
    _recording.clear()
    try:
        yield
    finally:
        _recording[:] = records


def are_all_known(dependencies: Mapping[str, str]) -> bool:
    """Return False if the code opened a connection or started a program, so that its result may change unseen."""
    return _OUTSIDE not in dependencies


def are_unchanged(dependencies: Mapping[str, str]) -> bool:
    """Return True if every file, folder and variable is unchanged."""
    return are_all_known(dependencies) and all(
        known == (_of_variable(name, os.environ) if kind == "variable" else _fingerprint(name, kind=kind))
        for name, known in dependencies.items()
        for kind in [known.partition(" ")[0]]
    )


def script_reads(dependencies: Mapping[str, str]) -> ScriptReads:
    """Return what a script read that another machine may lack, without what belongs to every system."""
    here = os.getcwd() + os.sep
    folders, variables = set(), []
    for name, known in dependencies.items():
        kind = known.partition(" ")[0]
        if kind == "variable":
            is_own = name not in _USUAL_VARIABLES and not name.startswith(_USUAL_PREFIXES)
            variables += [name] if is_own and name in os.environ else []
        elif kind in ("file", "names") and not name.startswith((here, *_OF_SYSTEM)) and os.path.exists(name):
            folders.add(name if kind == "names" else os.path.dirname(name))
    outside = tuple(sorted(folder for folder in folders if f"{folder}{os.sep}" != here))
    return ScriptReads(outside=outside, variables=tuple(sorted(variables)))


def _watched(convert: Callable[[Any], Any], found: dict[str, str], environ: Mapping[str, str]) -> Callable[[Any], Any]:
    """Return a function that converts a variable's name for `os.environ`, and adds reads by the user's code to `found`.

    All reads, such as `get` and `in`, convert names in `__getitem__` or `__iter__`. The conversion returns before a
    KeyError is raised, which is therefore the user's.
    """

    @passes_arguments_on
    def watched(key: Any) -> Any:
        with suppress(Exception):  # the user's code may pass anything; the call itself then raises the error
            read = sys._getframe(1).f_code.co_name
            name = _ALL_NAMES if read == "__iter__" else os.fsdecode(key)
            is_read = read in ("__getitem__", "__iter__") and name not in SET_IN_CHILD
            if is_read and name not in found and _is_called_by_user():
                found[name] = _of_variable(name, environ)
        return convert(key)

    return watched


def _noting_paths(look: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
    """Return `os.stat` or `os.lstat` with a record of the paths that the user's code asks for."""

    def noting(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        with suppress(Exception):  # the user's code may pass anything; the call itself then raises the error
            if _recording and not kwargs.get("dir_fd") and _is_called_by_user():
                _note(path, kind=_SEEN)
        return look(path, *args, **kwargs)

    return noting


def _is_called_by_user() -> bool:
    """Return True if the code that reads `os.environ` or asks for a path is the user's, below Python's own methods."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _PATH_MODULES:
        frame = frame.f_back
    return is_user_file(frame.f_code.co_filename)


def _of_variable(name: str, environ: Mapping[str, str]) -> str:
    value = sorted(environ.keys() - SET_IN_CHILD) if name == _ALL_NAMES else [repr(environ.get(name))]
    return f"variable {_digest(value)}"


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if _recording and event in _OUTSIDE_EVENTS:
        _recording[-1][_OUTSIDE] = event
    if not _recording or event not in ("open", "import", "os.listdir", "os.scandir"):
        return
    with suppress(Exception):  # the user's code may pass anything; the call itself then raises the error
        if event == "open":
            path, _, flags = arguments
            if flags & (os.O_WRONLY | os.O_RDWR) == 0:
                _note(path, kind="file")
        elif event == "import":
            if arguments[1] is not None:  # the file of an extension module, which is opened by C code
                _note(arguments[1], kind="file")
        else:
            is_import = sys._getframe(1).f_code.co_filename.startswith("<frozen importlib")
            _note(arguments[0] or ".", kind="modules" if is_import else "names")


def _note(path: Any, *, kind: str) -> None:
    if isinstance(path, int):
        return  # a descriptor: its file was recorded when it was opened
    path = os.path.abspath(os.fsdecode(path))
    if path.endswith(".pyc"):
        with suppress(ValueError):  # a module without its source
            path = source_from_cache(path)
    is_known = path in _recording[-1] and not (kind == "file" and _recording[-1][path].startswith(_SEEN))
    if is_known or path.startswith(_NO_FILES) or (owner := owner_of(path)) == "program":
        return
    if owner == "library":
        is_folder = kind in ("names", "modules")
        if is_folder and path not in sys.path:
            return  # of a package, which the version of its distribution and its opened files identify
        kind = "modules" if is_folder else "library"
    _recording[-1][path] = ""  # set first, because taking the fingerprint opens the file again
    _recording[-1][path] = _fingerprint(path, kind=kind)


def _note_imported() -> None:
    """Note the modules that are imported already, and the folders in which imports have looked for them.

    A library, or one that was not there, may be installed into such a folder: names include versions (`*.dist-info`).
    """
    for module in tuple(sys.modules.values()):
        if isinstance(module, ModuleType) and isinstance(path := vars(module).get("__file__"), str):
            _note(path, kind="library")
    for path in sys.path:
        if path in sys.path_importer_cache:
            _note(path, kind="modules")


def _fingerprint(path: str, *, kind: str) -> str:
    """Return `kind` and a fingerprint of a file, of a folder's names, or of the names that an import could find.

    A file of a library, or one that was not opened, is identified by size and modification time, any other by its
    content.
    """
    try:
        if kind == "names":
            return f"{kind} {_digest(os.listdir(path))}"
        if kind == "modules":
            names = (name for name in os.listdir(path) if name != "__pycache__")
            suffixes = (".py", ".so")
            importable = (name for name in names if name.endswith(suffixes) or os.path.isdir(os.path.join(path, name)))
            return f"{kind} {_digest(importable)}"
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return f"{kind} of mode {found.st_mode}"
        if kind in ("library", _SEEN) or found.st_size > _BY_CONTENT_BYTES:
            return f"{kind} of {found.st_size} bytes at {found.st_mtime_ns}"
        return f"{kind} {hashlib.sha256(Path(path).read_bytes()).hexdigest()}"
    except OSError as error:
        return f"{kind} {type(error).__name__}"


def _digest(names: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(sorted(names)).encode("utf-8", "surrogateescape")).hexdigest()
