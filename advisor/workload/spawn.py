"""A source in, its Workload as JSON out, by way of a child process: the parent never imports torch.

The user's file may print, abort, fork or loop for ever. So it runs in a process group of its own, without a terminal,
and its result comes back on a descriptor of its own: eight bytes of length, then JSON. The group is killed as a whole
when the result is there, when time runs out, on any error, and (by the child, see `child.py`) when the parent dies.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from advisor.errors import AdvisorError, CoverageError, LoadError, TraceError, UsageError
from advisor.records.workload import Mode
from advisor.workload.input_spec import parse_input_specs

RESULT_LIMIT_BYTES = 64 * 2**20
LENGTH_BYTES = 8
SCHEMES = ("torchvision", "timm", "hf")
_SOURCES = "FILE.py, FILE.py::NAME, FILE.pt2, torchvision:NAME, timm:NAME or hf:CONFIG"
_WEIGHTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")
_GRACE_S = 2.0
"""The child itself says where the file was when time ran out; this long the parent waits for that."""
_POLL_S = 0.1
_ROOT = str(Path(__file__).resolve().parents[2])
# Not `-m`, which would put the working folder, with whatever `random.py` lies there, before the standard library.
_START = "import sys; sys.path.append(sys.argv.pop(1)); from advisor.workload.child import main; main()"
_ERRORS: dict[str, type[AdvisorError]] = {
    error.__name__: error for error in (UsageError, LoadError, TraceError, CoverageError)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """What the child is to trace. `run`: the source is a script, run as `__main__` with `script_args`."""

    source: str
    mode: Mode = "inference"
    batch: int | None = None
    inputs: tuple[str, ...] = ()
    run: bool = False
    script_args: tuple[str, ...] = ()
    timeout_s: float = 120.0
    second_count: bool = False


@dataclass(slots=True, kw_only=True)
class PendingProfile:
    """A child at work. Close it, or use it in a `with`: nothing of the user's code stays behind."""

    request: ProfileRequest
    second_count: dict[str, Any] | None = field(default=None, init=False)
    """fvcore's count, after `result()`, where the request asks for it."""
    _process: subprocess.Popen[bytes]
    _result_fd: int
    _lifeline_fd: int
    _deadline_s: float

    def result(self) -> dict[str, Any]:
        """Wait for the Workload's JSON. Raise what went wrong in the child as `LoadError`, `TraceError`, ..."""
        try:
            payload = self._receive()
            if payload is None:
                self._raise_death()
        finally:
            self.close()
        message: dict[str, Any] = json.loads(payload)
        if "error" in message:
            _raise_error(message["error"])
        self.second_count = message.get("second_count")
        workload: dict[str, Any] = message["workload"]
        return workload

    def close(self) -> None:
        """Kill what is left of the process group; do nothing the second time."""
        if self._result_fd < 0:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._result_fd)
        os.close(self._lifeline_fd)
        self._result_fd = self._lifeline_fd = -1

    def __enter__(self) -> Self:
        """Give the pending profile itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _receive(self) -> bytes | None:
        """The child's message; None if it ended without one."""
        buffer = bytearray()
        ended = False
        with selectors.DefaultSelector() as selector:
            selector.register(self._result_fd, selectors.EVENT_READ)
            while True:
                left_s = self._deadline_s - time.monotonic()
                if left_s <= 0:
                    raise LoadError(
                        f"{self.request.source} was still running after {self.request.timeout_s:g} s",
                        hint="give it more time with --timeout",
                    )
                if selector.select(0 if ended else min(left_s, _POLL_S)):
                    chunk = os.read(self._result_fd, 2**20)
                    if not chunk:
                        return None
                    buffer += chunk
                    length = int.from_bytes(buffer[:LENGTH_BYTES], "big") if len(buffer) >= LENGTH_BYTES else None
                    if length is not None and length > RESULT_LIMIT_BYTES:
                        raise LoadError(
                            f"the workload of {self.request.source} is {length / 2**20:.0f} MiB of JSON, "
                            f"over the limit of {RESULT_LIMIT_BYTES // 2**20} MiB",
                            hint="trace one layer, or fewer steps of the loop, and multiply",
                        )
                    if length is not None and len(buffer) >= LENGTH_BYTES + length:
                        return bytes(buffer[LENGTH_BYTES : LENGTH_BYTES + length])
                elif ended:
                    return None
                else:
                    # A fork of the user's code may hold the pipe open after the child's death.
                    ended = self._process.poll() is not None

    def _raise_death(self) -> NoReturn:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        code = self._process.poll()
        source = self.request.source
        if code is None:
            raise LoadError(f"{source} closed every descriptor of its process", hint="do not detach in the file")
        if code == -signal.SIGKILL:
            raise LoadError(
                f"{source} was killed (SIGKILL), most likely for want of memory",
                hint="give a factory `get_model()` instead of a model made on import: "
                "it is built without allocating its weights",
            )
        if code < 0:
            raise LoadError(
                f"{source} ended the interpreter: {signal.Signals(-code).name}",
                hint=f"run `python {source.partition('::')[0]}` to see why",
            )
        raise LoadError(
            f"{source} ended the interpreter with exit code {code}", hint="remove os._exit() from what runs on import"
        )


def start_profile(request: ProfileRequest) -> PendingProfile:
    """Start the child at once, so that torch's import overlaps the parent's work.

    Raise `UsageError` for an `--input` that cannot be read and `LoadError` for a file that is not there.
    """
    parse_input_specs(request.inputs)
    _check_source(request)
    result_fd, child_result_fd = os.pipe()
    child_lifeline_fd, lifeline_fd = os.pipe()
    try:
        process = subprocess.Popen(  # noqa: S603 - this very interpreter, and no shell in between
            [
                sys.executable, "-P", "-c", _START, _ROOT,
                json.dumps(asdict(request)), str(child_result_fd), str(child_lifeline_fd),
            ],
            stdin=subprocess.DEVNULL,
            pass_fds=(child_result_fd, child_lifeline_fd),
            start_new_session=True,
            # One program for everyone, with or without a GPU: what asks for CUDA is redirected in the child.
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""},
        )  # fmt: skip
    except BaseException:
        os.close(result_fd)
        os.close(lifeline_fd)
        raise
    finally:
        os.close(child_result_fd)
        os.close(child_lifeline_fd)
    return PendingProfile(
        request=request,
        _process=process,
        _result_fd=result_fd,
        _lifeline_fd=lifeline_fd,
        _deadline_s=time.monotonic() + request.timeout_s + _GRACE_S,
    )


def _check_source(request: ProfileRequest) -> None:
    scheme, colon, _ = request.source.partition(":")
    if colon and scheme in SCHEMES and not request.run:
        return
    path = Path(request.source.partition("::")[0])
    if path.is_dir():
        raise LoadError(
            f"{path} is a folder", hint=f"for a Hugging Face config write hf:{path}, else name the file inside"
        )
    if not path.is_file():
        raise LoadError(
            f"there is no file {path}",
            hint=f"a model is {_SOURCES}",
        )
    if not request.run and path.suffix not in (".py", ".pt2"):
        raise LoadError(
            f"{path} is no Python file" + (": weights are not a model" if path.suffix in _WEIGHTS else ""),
            hint=f"a model is {_SOURCES}",
        )


def _raise_error(error: dict[str, str]) -> NoReturn:
    if error["kind"] in _ERRORS:
        raise _ERRORS[error["kind"]](error["message"], hint=error["hint"])
    raise RuntimeError(f"the tracing process failed:\n{error['message']}")
