"""What the user's code raised, or where it is, in their own lines: never ours, torch's or the standard library's."""

import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from advisor.errors import LoadError

_F = TypeVar("_F", bound=Callable[..., Any])
_OWN = str(Path(__file__).resolve().parents[1]) + os.sep
_LIBRARIES = tuple(
    {os.path.realpath(path) + os.sep for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))}
)
_MESSAGE_LINES = 12
_COMPLAINTS = (TypeError, ValueError, IndexError)
"""Of torch about arguments, beside RuntimeError (torch/csrc/Exceptions.h)."""
_HANDING_ON: set[tuple[str, str]] = set()
"""File and name of each function that `hands_on` marks."""
_LINE_CHARACTERS = 500
_FRAMES_AT_EACH_END = 8
_NO_CONNECTION = frozenset(("URLError", "ConnectionError", "ConnectError"))
"""Of urllib, of Python's sockets and requests, of httpx: by name, as none of them need be imported."""
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "cannot allocate memory")


def display_path(filename: str) -> str:
    """The path as seen from the working folder, where the file lies below it."""
    relative = os.path.relpath(filename)
    return filename if relative.startswith(os.pardir) else relative


@cache
def is_user_file(filename: str) -> bool:
    """Whether `filename` is part of no library, and none of ours."""
    if filename.startswith("<"):
        return False
    path = os.path.realpath(filename)
    installed = f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path
    return not installed and not path.startswith((_OWN, *_LIBRARIES))


def hands_on(function: _F) -> _F:
    """Mark a function of ours that calls what the user's code or torch has given it, written in C: what is wrong with
    the arguments of that call is raised in our line."""
    _HANDING_ON.add((function.__code__.co_filename, function.__code__.co_name))
    return function


def raised_by_us(error: BaseException) -> bool:
    """Whether it is our mistake: the last line outside the standard library is ours, and it is no complaint of torch.

    Kernels of torch complain with a RuntimeError, in whatever line of ours they are called for the user's code; about
    arguments also with other errors, in the functions that hand calls on.
    """
    if not isinstance(error, Exception) or isinstance(error, (SyntaxError, MemoryError, Warning)):
        return False  # a SyntaxError is raised where we compile their file
    frames = [(filename, function) for filename, _, function in _frames(error)]
    last = next((frame for frame in reversed(frames) if not _is_of_python(frame[0])), None)
    if last is None or not os.path.realpath(last[0]).startswith(_OWN):
        return False
    if isinstance(error, RuntimeError):
        return last not in _HANDING_ON and not any(is_user_file(filename) for filename, _ in frames)
    return last not in _HANDING_ON or not isinstance(error, _COMPLAINTS)


def _is_of_python(filename: str) -> bool:
    return filename.startswith(("<frozen ", *_LIBRARIES)) and "-packages" not in filename


def user_frames(frames: Iterable[tuple[str, int, str]]) -> list[str]:
    """`file:line in function: code` for each (filename, line, function) that is the user's; of many, both ends."""
    theirs = [frame for frame in frames if is_user_file(frame[0])]
    left_out = theirs[_FRAMES_AT_EACH_END:-_FRAMES_AT_EACH_END]
    if not left_out:
        return [_frame_line(*frame) for frame in theirs]
    first, last = theirs[:_FRAMES_AT_EACH_END], theirs[-_FRAMES_AT_EACH_END:]
    between = f"  ... {len(left_out)} more calls"
    return [*(_frame_line(*frame) for frame in first), between, *(_frame_line(*frame) for frame in last)]


def _frame_line(filename: str, line: int, function: str) -> str:
    place = "" if function == "<module>" else f" in {function}"
    return _cut(f"  {display_path(filename)}:{line}{place}: {linecache.getline(filename, line).strip()}")


def _cut(text: str) -> str:
    """A line that a terminal can show."""
    return text if len(text) <= _LINE_CHARACTERS else f"{text[:_LINE_CHARACTERS]} ... ({len(text):,} characters)"


def where_now(thread_id: int) -> list[str]:
    """The user's frames of a running thread, outermost first."""
    frame: FrameType | None = sys._current_frames().get(thread_id)
    frames = []
    while frame is not None:
        frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return user_frames(reversed(frames))


def explain(error: BaseException, *, what: str, hint: str = "") -> LoadError:
    """The user's exception as a `LoadError`: `what` failed, its message and their frames.

    `hint` is for where the kind of exception itself tells no remedy. It holds for any class of the user's own.
    """
    try:
        return _explained(error, what=what, hint=hint)
    except BaseException:  # noqa: BLE001 - its class is the user's code
        return LoadError(f"{what}: {_cut(type(error).__name__)}, which cannot be shown", hint=hint)


def _explained(error: BaseException, *, what: str, hint: str) -> LoadError:
    if isinstance(error, SyntaxError) and error.filename:
        return LoadError(_syntax_message(error), hint="mend the line; nothing was run")
    frames = user_frames(_frames(error))
    if isinstance(error, SystemExit):
        called = f"{what}: the file called sys.exit({_cut(repr(error.code))})"
        return LoadError("\n".join([called, *frames]), hint=hint or 'put it under `if __name__ == "__main__":`')
    text = _text(error)
    return LoadError(
        "\n".join([f"{what}: {_summary(error, text)}", *frames]),
        hint=_hint(error, text) or _gpu_hint(error, text, frames) or hint,
    )


def _frames(error: BaseException) -> list[tuple[str, int, str]]:
    """File, line and function of each call, the outermost first."""
    passed = vars(BaseException)["__traceback__"].__get__(error)  # the error's class may have another
    return [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in traceback.walk_tb(passed)]


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as failure:  # noqa: BLE001 - `__str__` is the user's code
        return f"(its text cannot be read: {type(failure).__name__})"


def _syntax_message(error: SyntaxError) -> str:
    lines = [f"{display_path(error.filename or '')}:{error.lineno}: {_cut(error.msg)}"]
    if error.text:
        text = error.text.rstrip("\n")
        code = text.lstrip()
        lines.append(f"    {_cut(code)}")
        column = (error.offset or 0) - 1 - (len(text) - len(code))
        if 0 <= column < _LINE_CHARACTERS:
            lines.append(f"    {' ' * column}^")
    return "\n".join(lines)


def _summary(error: BaseException, text: str) -> str:
    lines = text.strip().splitlines()
    if len(lines) > _MESSAGE_LINES:
        lines = [*lines[:_MESSAGE_LINES], f"... and {len(lines) - _MESSAGE_LINES} more lines"]
    name, message = _cut(type(error).__name__), "\n".join(map(_cut, lines))
    return f"{name}: {message}" if message else name


def _hint(error: BaseException, text: str) -> str:
    if isinstance(error, MemoryError) or any(phrase in text.lower() for phrase in _OUT_OF_MEMORY):
        return "give a factory `get_model()` or a class: it is built without allocating its weights"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"install {error.name} into {sys.prefix}, or run advise where the model runs"
    if isinstance(error, ImportError) and "relative import" in text:
        return "name a file outside the package that imports the model from it"
    if not _NO_CONNECTION.isdisjoint(kind.__name__ for kind in type(error).__mro__):
        return "the file downloads when it is loaded: leave the weights out (weights=None), as no prediction needs them"
    if isinstance(error, EOFError):
        return "the file has no terminal here: its input is empty"
    return ""


def _gpu_hint(error: BaseException, text: str, frames: Sequence[str]) -> str:
    """For code that insists on a GPU: `assert torch.cuda.is_available()`, or a question that only one can answer."""
    is_refusal = isinstance(error, AssertionError) or "NVIDIA" in text  # a torch with, one without CUDA
    if is_refusal and frames and "cuda" in frames[-1]:
        return "there is no GPU here: ask torch.cuda.is_available() first; what then asks for cuda gets the CPU"
    return ""
