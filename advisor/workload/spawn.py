"""Traces sources in a child process, so that the parent never imports torch.

The user's file may print, abort, fork or loop forever. It therefore runs in its own session, without a terminal, under
a supervisor (`supervisor.py`) that kills everything it started when it is no longer needed, on a timeout, on any error,
or when the parent dies. Requests go through one pipe and answers through another, in frames (see `packed`) that the
file's own output cannot imitate.
"""

import json
import os
import pickle
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from advisor.errors import AdvisorError, CoverageError, LoadError, TraceError, UsageError
from advisor.records.fine_tuning import FineTuning
from advisor.records.generation import Generation
from advisor.records.machine import BUS_ORDER
from advisor.records.workload import Attention, Mode
from advisor.workload import supervisor
from advisor.workload.input_spec import parse_input_specs
from advisor.workload.model_config import is_known_id
from advisor.workload.sources import has_scheme, kind_of, usages

RESULT_LIMIT_BYTES = 64 * 2**20
TOKEN_BYTES = 16
LENGTH_BYTES = 8
_WEIGHTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")
_INSTALL = (
    "pip install torch fvcore, or use a workload.json that `advise profile MODEL -o workload.json` wrote elsewhere"
)
_GRACE_S = 2.0
"""How long the parent waits after a timeout for the child to report where the file was."""
_POLL_S = 0.1
_NO_GPUS = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_NO_NETWORK = {
    **dict.fromkeys((*_PROXIES, *map(str.upper, _PROXIES)), ""),
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "WANDB_MODE": "disabled",
}
"""Variables that make libraries answer from their caches at once, use no proxy, and log no run of the user's job."""
_THREADS = "OMP_NUM_THREADS"
SET_IN_CHILD = frozenset({*_NO_GPUS, *_NO_NETWORK, _THREADS})
"""Variables that the child's code does not see as this process does."""
ERRORS: dict[str, type[AdvisorError]] = {
    error.__name__: error for error in (UsageError, LoadError, TraceError, CoverageError)
}


class SourceDiedError(LoadError):
    """The process that read the source ended without an answer."""


class ChildFailure(RuntimeError):  # noqa: N818 - our own bug, not the user's error; carries the child's traceback
    """The process that reads sources failed because of a bug of our own."""


def packed(payload: bytes, *, token: bytes) -> bytes:
    """Return a frame: the token, eight bytes of length, the payload, the token again.

    Every request has its own random token, which its answer repeats. So bytes that the user's code writes into the pipe
    are never mistaken for an answer, and bytes written into an answer displace its second token.
    """
    return token + len(payload).to_bytes(LENGTH_BYTES, "big") + payload + token


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """A request to trace a source; with `run` the source is a script, run as `__main__` with `script_args`.

    With `finds_mode` a script's mode is what it does, whatever `mode` says. `half_attention` is as `trace` takes it.
    """

    source: str
    mode: Mode = "inference"
    batch: int | None = None
    inputs: tuple[str, ...] = ()
    attention: Attention = "auto"
    half_attention: bool = False
    run: bool = False
    finds_mode: bool = False
    script_args: tuple[str, ...] = ()
    timeout_s: float = 120.0
    second_count: bool = False
    sequence: int | None = None
    generation: Generation | None = None
    """The tokens of a request to a language model; None: the source is traced as it is."""
    fine_tuning: FineTuning | None = None
    """How the model is fine-tuned; None: it is traced as it is."""

    def check(self) -> None:
        """Raise `UsageError` for an invalid `--input`, and `LoadError` for a missing file."""
        parse_input_specs(self.inputs)
        if has_scheme(self.source) and not self.run:
            return
        path = Path(self.source.partition("::")[0])
        if path.is_dir():
            hint = f"for a Hugging Face config write hf:{path}; otherwise name a file"
            raise LoadError(f"{path} is a folder", hint=hint)
        if not path.is_file():
            raise LoadError(f"there is no file {path}", hint=self._meant(path))
        if not self.run and kind_of(self.source) is None:
            what = ": weights are not a model" if path.suffix in _WEIGHTS else ""
            raise LoadError(f"{path} is not a Python file{what}", hint=f"a model is {usages()}")

    def _meant(self, path: Path) -> str:
        """Return what a source that names no file may mean."""
        if is_known_id(self.source):
            return f"write hf:{self.source}"
        if kind_of(self.source) is None and len(path.parts) == 1 and path.suffix not in _WEIGHTS:
            return f"did you mean torchvision:{path}, timm:{path} or hf:ORG/{path}?"
        return f"a model is {usages()}"


@dataclass(slots=True, kw_only=True)
class SourceProcess:
    """A child process that answers requests in turn; leaving its `with` kills all of the user's processes."""

    is_ready: bool = field(default=True, init=False)
    """The child can take a request: it has answered all others and still runs."""
    _process: subprocess.Popen[bytes]
    _request_fd: int
    _result_fd: int
    _request: ProfileRequest | None = field(default=None, init=False)
    _token: bytes = field(default=b"", init=False)
    _deadline_s: float = field(default=0.0, init=False)

    @classmethod
    def start(
        cls, *, thread_count: int | None = None, module: str = "advisor.workload.trace_child", sees_gpus: bool = False
    ) -> Self:
        """Start the child, which imports torch at its first request; `thread_count` applies to torch's operators.

        `module` contains the `main` that serves requests. Without `sees_gpus` the child sees no GPU, so that a trace
        is the same on every machine; requests for CUDA are redirected in the child. Raises `UsageError` without torch.
        """
        if find_spec("torch") is None:
            raise UsageError("torch is not installed, so no model can be traced or timed here", hint=_INSTALL)
        threads = {} if thread_count is None else {_THREADS: str(thread_count)}
        child_request_fd, request_fd = os.pipe()
        result_fd, child_result_fd = os.pipe()
        try:
            process = supervisor.start(
                module,
                [str(child_request_fd), str(child_result_fd)],
                pass_fds=(child_request_fd, child_result_fd),
                env=os.environ | _NO_NETWORK | (BUS_ORDER if sees_gpus else _NO_GPUS) | threads,
            )
        except BaseException:
            os.close(request_fd)
            os.close(result_fd)
            raise
        finally:
            os.close(child_request_fd)
            os.close(child_result_fd)
        return cls(_process=process, _request_fd=request_fd, _result_fd=result_fd)

    @property
    def pid(self) -> int:
        """Process id of the child's supervisor."""
        return self._process.pid

    def ask(self, request: ProfileRequest) -> None:
        """Send the child its next request; `answer` waits for the result."""
        self.is_ready = False
        self._request = request
        self._deadline_s = time.monotonic() + request.timeout_s + _GRACE_S
        self._token = os.urandom(TOKEN_BYTES)
        frame = packed(pickle.dumps(request), token=self._token)
        with suppress(BrokenPipeError), open(self._request_fd, "wb", closefd=False) as requests:
            requests.write(frame)

    def answer(self) -> dict[str, Any]:
        """Wait for the answer to the last request; raise errors of the child as `LoadError`, `TraceError`, ..."""
        if self._request is None:
            raise ValueError("nothing has been asked")
        payload = self._receive(self._request)
        try:
            message = json.loads(payload)
        except (ValueError, RecursionError):
            raise _garbled(self._request.source) from None
        if not isinstance(message, dict) or not isinstance(message.get("is_last"), bool):
            raise _garbled(self._request.source)
        self.is_ready = not message["is_last"]
        if (error := message.get("error")) is None:
            return message
        if error["kind"] in ERRORS:
            raise ERRORS[error["kind"]](error["message"], hint=error["hint"])
        raise ChildFailure(
            f"the process that reads sources failed. This is a bug in the program: report it with the lines below.\n"
            f"{error['message']}"
        )

    def kill(self) -> None:
        """Kill the child and everything it started; an `answer` that waits in another thread then raises."""
        supervisor.interrupt(self._process)

    def close(self) -> None:
        """Kill the child and everything it started; do nothing if already closed."""
        if self._result_fd < 0:
            return
        supervisor.end(self._process)
        os.close(self._request_fd)
        os.close(self._result_fd)
        self._request_fd = self._result_fd = -1
        self.is_ready = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self, request: ProfileRequest) -> bytes:
        """Return the child's message; raise `SourceDiedError` if it ended without one."""
        buffer = bytearray()
        ended = False
        with selectors.DefaultSelector() as selector:
            selector.register(self._result_fd, selectors.EVENT_READ)
            while True:
                left_s = self._deadline_s - time.monotonic()
                if left_s <= 0:
                    raise LoadError(
                        f"{request.source} was still running after {request.timeout_s:g} s",
                        hint="give it more time with --timeout",
                    )
                if selector.select(0 if ended else min(left_s, _POLL_S)):
                    chunk = os.read(self._result_fd, 2**20)
                    if not chunk:
                        raise self._death(request.source)
                    buffer += chunk
                    frame = self._frame(buffer, source=request.source)
                    if frame is not None:
                        return frame
                elif ended:
                    raise self._death(request.source)
                else:
                    # A process that the supervisor could not end may hold the pipe open after the child's death.
                    ended = self._process.poll() is not None

    def _frame(self, buffer: bytearray, *, source: str) -> bytes | None:
        """Return the payload if the frame is complete, else None; bytes before the frame are removed."""
        start = buffer.find(self._token)
        del buffer[: start if start >= 0 else max(0, len(buffer) - TOKEN_BYTES)]
        head_bytes = TOKEN_BYTES + LENGTH_BYTES
        if start < 0 or len(buffer) < head_bytes:
            return None
        length = int.from_bytes(buffer[TOKEN_BYTES:head_bytes], "big")
        if length > RESULT_LIMIT_BYTES:
            raise LoadError(
                f"the workload of {source} is {length / 2**20:.0f} MiB of JSON, "
                f"over the limit of {RESULT_LIMIT_BYTES // 2**20} MiB",
                hint="trace one layer or fewer loop iterations, and multiply the result",
            )
        if len(buffer) < head_bytes + length + TOKEN_BYTES:
            return None
        if buffer[head_bytes + length : head_bytes + length + TOKEN_BYTES] != self._token:
            raise _garbled(source)
        return bytes(buffer[head_bytes : head_bytes + length])

    def _death(self, source: str) -> LoadError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        code = self._process.poll()
        if code is None:
            problem, hint = "closed every file descriptor of its process", "do not daemonize in the file"
        elif code == -signal.SIGKILL:
            problem = "was killed (SIGKILL), most likely because memory ran out"
            hint = (
                "define a factory `get_model()` instead of building the model on import: "
                "it is then built without allocating its weights"
            )
        elif code < 0:
            problem = f"ended the interpreter: {signal.Signals(-code).name}"
            hint = f"run `python {source.partition('::')[0]}` to see why"
        else:
            problem = f"ended the interpreter with exit code {code}"
            hint = "remove os._exit() from code that runs on import"
        return SourceDiedError(f"{source} {problem}", hint=hint)


def start_profile(request: ProfileRequest) -> SourceProcess:
    """Start a child for a single request, so that torch's import overlaps the parent's work; raise as `check`."""
    request.check()
    process = SourceProcess.start()
    process.ask(request)
    return process


def _garbled(source: str) -> LoadError:
    return SourceDiedError(
        f"{source} wrote into the pipe that carries the answer, or replaced functions that create it",
        hint="do not write to file descriptors that the file did not open, or replace Python's own functions",
    )
