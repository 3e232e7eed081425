"""What the user's code raised, or where it is, in their own lines: never ours, torch's or the standard library's."""

import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from types import FrameType

from advisor.errors import LoadError

_OWN = str(Path(__file__).resolve().parents[1]) + os.sep
_LIBRARIES = tuple(
    {os.path.realpath(path) + os.sep for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))}
)
_MESSAGE_LINES = 12
_LINE_CHARACTERS = 500
_FRAMES_AT_EACH_END = 8
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


def raised_by_us(error: BaseException) -> bool:
    """Whether no line of the user's is involved and the last one is ours: then it is our mistake.

    The last line alone does not tell: whatever fails inside torch passes through our modes.
    """
    if isinstance(error, SyntaxError):
        return False  # raised where we compile their file
    filenames = [filename for filename, _, _ in _frames(error)]
    return os.path.realpath(filenames[-1]).startswith(_OWN) and not any(map(is_user_file, filenames))


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
    if isinstance(error, EOFError):
        return "the file has no terminal here: its input is empty"
    return ""


def _gpu_hint(error: BaseException, text: str, frames: Sequence[str]) -> str:
    """For code that insists on a GPU: `assert torch.cuda.is_available()`, or a question that only one can answer."""
    is_refusal = isinstance(error, AssertionError) or "NVIDIA" in text  # a torch with, one without CUDA
    if is_refusal and frames and "cuda" in frames[-1]:
        return "there is no GPU here: ask torch.cuda.is_available() first; what then asks for cuda gets the CPU"
    return ""
