"""What the user's code raised, or where it is, in their own lines: never ours, torch's or the standard library's."""

import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Sequence
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
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "cannot allocate memory")


def display_path(filename: str) -> str:
    """The path as seen from the working folder, where the file lies below it."""
    relative = os.path.relpath(filename)
    return filename if relative.startswith(os.pardir) else relative


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
    frames = [(frame.filename, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
    last = next((frame for frame in reversed(frames) if not _is_of_python(frame[0])), None)
    if last is None or not os.path.realpath(last[0]).startswith(_OWN):
        return False
    if isinstance(error, RuntimeError):
        return last not in _HANDING_ON and not any(is_user_file(filename) for filename, _ in frames)
    return last not in _HANDING_ON or not isinstance(error, _COMPLAINTS)


def _is_of_python(filename: str) -> bool:
    return filename.startswith(("<frozen ", *_LIBRARIES)) and "-packages" not in filename


def user_frames(frames: Iterable[tuple[str, int, str]]) -> list[str]:
    """`file:line in function: code` for each (filename, line, function) that is the user's."""
    lines = []
    for filename, line, function in frames:
        if is_user_file(filename):
            place = "" if function == "<module>" else f" in {function}"
            lines.append(f"  {display_path(filename)}:{line}{place}: {linecache.getline(filename, line).strip()}")
    return lines


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

    `hint` is for where the kind of exception itself tells no remedy.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return LoadError(_syntax_message(error), hint="mend the line; nothing was run")
    frames = user_frames(
        (frame.filename, frame.lineno or 0, frame.name) for frame in traceback.extract_tb(error.__traceback__)
    )
    if isinstance(error, SystemExit):
        called = f"{what}: the file called sys.exit({error.code!r})"
        return LoadError("\n".join([called, *frames]), hint=hint or 'put it under `if __name__ == "__main__":`')
    return LoadError(
        "\n".join([f"{what}: {_summary(error)}", *frames]), hint=_hint(error) or _gpu_hint(error, frames) or hint
    )


def _syntax_message(error: SyntaxError) -> str:
    lines = [f"{display_path(error.filename or '')}:{error.lineno}: {error.msg}"]
    if error.text:
        text = error.text.rstrip("\n")
        code = text.lstrip()
        lines.append(f"    {code}")
        column = (error.offset or 0) - 1 - (len(text) - len(code))
        if column >= 0:
            lines.append(f"    {' ' * column}^")
    return "\n".join(lines)


def _summary(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    if len(lines) > _MESSAGE_LINES:
        lines = [*lines[:_MESSAGE_LINES], f"... and {len(lines) - _MESSAGE_LINES} more lines"]
    message = "\n".join(lines)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _hint(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, MemoryError) or any(phrase in text.lower() for phrase in _OUT_OF_MEMORY):
        return "give a factory `get_model()` or a class: it is built without allocating its weights"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"install {error.name} into {sys.prefix}, or run advise where the model runs"
    if isinstance(error, ImportError) and "relative import" in text:
        return "name a file outside the package that imports the model from it"
    if isinstance(error, EOFError):
        return "the file has no terminal here: its input is empty"
    return ""


def _gpu_hint(error: BaseException, frames: Sequence[str]) -> str:
    """For code that insists on a GPU: `assert torch.cuda.is_available()`, or a question that only one can answer."""
    is_refusal = isinstance(error, AssertionError) or "NVIDIA" in str(error)  # a torch with, one without CUDA
    if is_refusal and frames and "cuda" in frames[-1]:
        return "there is no GPU here: ask torch.cuda.is_available() first; what then asks for cuda gets the CPU"
    return ""
