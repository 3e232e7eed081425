"""Explains errors of the user's code by their own lines, without frames of ours, torch or the standard library."""

import inspect
import linecache
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, TypeVar

from advisor.errors import AdvisorError, LoadError

_F = TypeVar("_F", bound=Callable[..., Any])
_OWN = str(Path(__file__).resolve().parents[1]) + os.sep
_LIBRARIES = tuple(
    {os.path.realpath(path) + os.sep for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))}
)
_MESSAGE_LINES = 12
_COMPLAINTS = (TypeError, ValueError, IndexError)
"""Errors that torch raises for wrong arguments, besides RuntimeError (torch/csrc/Exceptions.h)."""
_PASSES_ARGUMENTS_ON: set[tuple[str, str]] = set()
"""File and name of each function marked by `passes_arguments_on`."""
_LINE_CHARACTERS = 500
_FRAMES_AT_EACH_END = 8
_NO_CONNECTION = frozenset(("URLError", "ConnectionError", "ConnectError", "LocalEntryNotFoundError"))
"""Errors of urllib, of sockets and requests, of httpx, and of a cache of huggingface_hub; by name, because none of them
need be imported."""
NO_NETWORK_HINT = (
    "run the code by itself once, where there is a network: its data and tokenizers are then on this disk. Weights are "
    "never needed; a model of transformers needs its config only"
)
_PACKAGES = {
    "PIL": "pillow", "cv2": "opencv-python", "lightning_fabric": "lightning", "pytorch_lightning": "pytorch-lightning",
    "skimage": "scikit-image", "sklearn": "scikit-learn", "yaml": "pyyaml",
}  # fmt: skip
"""Packages that are not called as their modules."""
_PIP_INSTALL = re.compile(r"pip install [^`'\"\n]+")
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "cannot allocate memory")


def display_path(filename: str) -> str:
    """Return the path relative to the working directory if the file is below it, else unchanged."""
    relative = os.path.relpath(filename)
    return filename if relative.startswith(os.pardir) else relative


@cache
def owner_of(filename: str) -> Literal["user", "library", "program"]:
    """Return whose a file or folder is: the user's, an installed library's, or this program's and Python's own."""
    if filename.startswith("<"):
        return "program"
    path = os.path.realpath(filename)
    if path.startswith(_OWN):
        return "program"
    if any(f"{os.sep}{name}{os.sep}" in f"{path}{os.sep}" for name in ("site-packages", "dist-packages")):
        return "library"
    return "program" if path.startswith(_LIBRARIES) else "user"


def is_user_file(filename: str) -> bool:
    """Return True if the file belongs neither to a library nor to this program."""
    return owner_of(filename) == "user"


def passes_arguments_on(function: _F) -> _F:
    """Mark a function of ours that passes the user's arguments on to C code.

    Errors about these arguments are raised in our line, but they are the user's.
    """
    _PASSES_ARGUMENTS_ON.add((function.__code__.co_filename, function.__code__.co_name))
    return function


def is_of_user(error: Exception) -> bool:
    """Return True for an error that the user's code raised: neither one of ours that explains itself, nor our bug."""
    return not isinstance(error, AdvisorError) and not raised_by_us(error)


def raised_by_us(error: BaseException) -> bool:
    """Return True for our own bug: the last frame outside the standard library is ours, and torch did not raise it.

    torch's kernels raise RuntimeError in any line of ours that calls them for the user's code. In functions marked by
    `passes_arguments_on` they also raise other errors about arguments.
    """
    if not isinstance(error, Exception) or isinstance(error, (SyntaxError, MemoryError, Warning)):
        return False  # a SyntaxError is raised where our code compiles the user's file
    frames = [(filename, function) for filename, _, function in _frames(error)]

    def is_of_python(filename: str) -> bool:
        return filename.startswith(("<frozen ", *_LIBRARIES)) and "-packages" not in filename

    last = next((frame for frame in reversed(frames) if not is_of_python(frame[0])), None)
    if last is None or not os.path.realpath(last[0]).startswith(_OWN):
        return False
    if isinstance(error, RuntimeError):
        return last not in _PASSES_ARGUMENTS_ON and not any(is_user_file(filename) for filename, _ in frames)
    return last not in _PASSES_ARGUMENTS_ON or not isinstance(error, _COMPLAINTS)


def user_frames(frames: Iterable[tuple[str, int, str]]) -> list[str]:
    """Return `file:line in function: code` for each of the user's frames; of many, only the first and last ones."""
    lines = []
    for filename, line, function in filter(lambda frame: is_user_file(frame[0]), frames):
        place = "" if function == "<module>" else f" in {function}"
        lines.append(_cut(f"  {display_path(filename)}:{line}{place}: {linecache.getline(filename, line).strip()}"))
    if left_out := lines[_FRAMES_AT_EACH_END:-_FRAMES_AT_EACH_END]:
        lines[_FRAMES_AT_EACH_END:-_FRAMES_AT_EACH_END] = [f"  ... {len(left_out)} more calls"]
    return lines


def _cut(text: str) -> str:
    """Return the text cut to a length that a terminal can show."""
    return text if len(text) <= _LINE_CHARACTERS else f"{text[:_LINE_CHARACTERS]} ... ({len(text):,} characters)"


def where_now(thread_id: int) -> list[str]:
    """Return the user's frames of a running thread, outermost first."""
    frame = sys._current_frames().get(thread_id)
    return user_frames(reversed(_places(traceback.walk_stack(frame)))) if frame is not None else []


def place_now() -> str:
    """Return `file:line` of the innermost line of the user's that runs in this thread; "" if only libraries run."""
    places = _places(traceback.walk_stack(inspect.currentframe()))
    return next((f"{display_path(filename)}:{line}" for filename, line, _ in places if is_user_file(filename)), "")


def line_of(error: BaseException) -> str:
    """Return `file:line in function: code` of the innermost line of the user's that led to the error, if any."""
    return next(reversed(user_frames(_frames(error))), "").strip()


def summary_line(error: BaseException) -> str:
    """Return the error's class and the first line of its message."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - `__str__` is the user's code
        text = ""
    return _summary(error, text.strip().partition("\n")[0])


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then those that it was raised from or while handling, each once; causes come before contexts."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            yield one
            seen.add(id(one))
            waiting += (one.__context__, one.__cause__)


def _lacks_network(error: BaseException) -> bool:
    """Return True if the error, or one that led to it, is of a connection; one with an `errno` was to this machine."""
    causes = (cause for cause in causes_of(error) if getattr(cause, "errno", None) is None)
    return not _NO_CONNECTION.isdisjoint(kind.__name__ for cause in causes for kind in type(cause).__mro__)


def explain(error: BaseException, *, what: str, hint: str = "", modules: Iterable[tuple[str, Any]] = ()) -> LoadError:
    """Return the user's exception as a `LoadError` with `what` failed, its message and the user's frames.

    `modules`, each with its name, are the model's: the message ends with the one in which the exception was raised.
    `hint` is used if the kind of exception itself suggests no remedy. Never fails, whatever the exception's class does.
    """
    try:
        return _explained(error, what=what, hint=hint, modules=modules)
    except BaseException:  # noqa: BLE001 - its class is the user's code
        return LoadError(f"{what}: {_cut(type(error).__name__)}, which cannot be shown", hint=hint)


def _explained(error: BaseException, *, what: str, hint: str, modules: Iterable[tuple[str, Any]]) -> LoadError:
    if isinstance(error, SyntaxError) and error.filename:
        return LoadError(_syntax_message(error), hint="fix the line; nothing was run")
    frames = user_frames(_frames(error))
    if isinstance(error, SystemExit):
        called = f"{what}: the file called sys.exit({_cut(repr(error.code))})"
        return LoadError("\n".join([called, *frames]), hint=hint or 'put it under `if __name__ == "__main__":`')
    try:
        text = str(error)
    except BaseException as failure:  # noqa: BLE001 - `__str__` is the user's code
        text = f"(its text cannot be read: {type(failure).__name__})"
    if _lacks_network(error):
        what = f"{what} downloads something, but no network is used for a trace"
    lines = [f"{what}: {_summary(error, text)}", *frames, *_innermost(error, modules)]
    return LoadError("\n".join(lines), hint=_hint(error, text, frames) or hint)


def _innermost(error: BaseException, modules: Iterable[tuple[str, Any]]) -> list[str]:
    """Return a line with the innermost of the named modules that ran, if any; the model itself has no name."""
    name_of = {id(module): name for name, module in modules}
    for frame, _ in reversed(list(traceback.walk_tb(_traceback_of(error)))):
        module: Any = frame.f_locals.get("self")
        if name := name_of.get(id(module), ""):
            return [_cut(f"  in {name}: {type(module).__name__}({module.extra_repr()})")]
    return []


def _frames(error: BaseException) -> list[tuple[str, int, str]]:
    """Return the file, line and function of each call, outermost first."""
    return _places(traceback.walk_tb(_traceback_of(error)))


def _traceback_of(error: BaseException) -> TracebackType | None:
    """Return the error's traceback, also if its class overrides the attribute."""
    passed: TracebackType | None = vars(BaseException)["__traceback__"].__get__(error)
    return passed


def _places(frames: Iterable[tuple[FrameType, int]]) -> list[tuple[str, int, str]]:
    return [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in frames]


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


def _install_command(error: ImportError, text: str) -> str:
    """Return pip's command for a missing package; "" if the error names none."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        upgrade = "--upgrade " if package != error.name else ""  # the package is there, and a part of it is not
        return f"pip install {upgrade}{_PACKAGES.get(package, package)}"
    advised = _PIP_INSTALL.search(text)  # as transformers writes it
    return advised[0].strip() if advised else ""


def _hint(error: BaseException, text: str, frames: Sequence[str]) -> str:
    if isinstance(error, MemoryError) or any(phrase in text.lower() for phrase in _OUT_OF_MEMORY):
        return "define a factory `get_model()` or a class: it is built without allocating its weights"
    if isinstance(error, ImportError) and "relative import" in text:
        return "name a file outside the package that imports the model from it"
    if _lacks_network(error):
        return NO_NETWORK_HINT
    if isinstance(error, ImportError) and (command := _install_command(error, text)):
        return f"`{command}` in {sys.prefix}, or run advise in the model's environment"
    if isinstance(error, EOFError):
        return "the file has no terminal here: its input is empty"
    # Code that requires a GPU: `assert torch.cuda.is_available()`, or a query of GPU properties.
    is_refusal = isinstance(error, AssertionError) or "NVIDIA" in text  # torch's messages, with or without CUDA
    if is_refusal and frames and "cuda" in frames[-1]:
        return "there is no GPU here: check torch.cuda.is_available() first; requests for cuda are sent to the CPU"
    return ""
