"""The process that runs the user's file: requests on one descriptor in, each one's answer as JSON on another out.

Started by `spawn.py`. From its first line on, what the file prints goes to stderr, the process group dies with the
parent, and a watchdog says where the file is when time runs out.
"""

import fcntl
import gc
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from advisor.errors import AdvisorError, LoadError, TraceError
from advisor.workload.files_read import files_read
from advisor.workload.input_spec import parse_input_specs
from advisor.workload.spawn import LENGTH_BYTES, SCHEMES, ProfileRequest
from advisor.workload.user_error import explain, raised_by_us, where_now

if TYPE_CHECKING:
    from advisor.records.generation import Generation
    from advisor.records.workload import Workload
    from advisor.workload.loaded import LoadedModel

_PRIVATE_FD = 200
"""Descriptors are given out from 0 up: no stray write of the user's code lands on one up here."""


class ResultChannel:
    """The way to the parent."""

    def __init__(self, fd: int) -> None:
        self._fd = _private(fd)
        os.register_at_fork(after_in_child=self._disown)

    def _disown(self) -> None:
        """In a fork of the user's code: the result is not its to send."""
        if self._fd >= 0:  # else it is a fork of a fork
            os.close(self._fd)
            self._fd = -1

    def send(self, message: dict[str, Any]) -> None:
        """Send `message`; end the process where nobody takes it."""
        if self._fd < 0:
            os._exit(0)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # the user's code may have closed or replaced it
                stream.flush()
        payload = json.dumps(message).encode()
        try:
            with open(self._fd, "wb", closefd=False) as result:
                result.write(len(payload).to_bytes(LENGTH_BYTES, "big") + payload)
        except OSError:  # the parent is gone, or the user's code has closed the descriptor
            os._exit(0)


class Turn:
    """One request's answer, which the first to speak gives: the trace or its watchdog."""

    def __init__(self, channel: ResultChannel) -> None:
        self._channel = channel
        self._first_sender = threading.Lock()

    def answer(self, message: dict[str, Any]) -> None:
        """Send the answer; the process can be asked again."""
        self._take()
        self._channel.send({**message, "is_last": False})

    def end(self, error: AdvisorError) -> NoReturn:
        """Send the user's mistake and end the process, which cannot go on."""
        self._take()
        self._channel.send({**_failure(error), "is_last": True})
        os._exit(0)

    def _take(self) -> None:
        if not self._first_sender.acquire(blocking=False):
            threading.Event().wait()  # for ever: the other thread has answered


def _failure(error: AdvisorError) -> dict[str, Any]:
    return {"error": {"kind": type(error).__name__, "message": error.message, "hint": error.hint}}


def _private(fd: int) -> int:
    """The descriptor moved out of the way, and closed where the user's code starts another program."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _PRIVATE_FD)
    os.close(fd)
    return moved


Request = TypeVar("Request", bound=ProfileRequest)


def main() -> NoReturn:
    """Serve requests for a step's Workload."""
    serve(ProfileRequest, _profile)


def serve(kind: type[Request], answer: Callable[[Request], dict[str, Any]]) -> NoReturn:
    """Serve requests until the parent closes their pipe: `sys.argv` holds its descriptor and the results'."""
    channel = ResultChannel(int(sys.argv[2]))
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    requests = _receive_requests(int(sys.argv[1]))
    _limit_memory()
    while True:
        _serve(_request(requests.get(), kind), channel, answer)


def _serve(request: Request, channel: ResultChannel, answer: Callable[[Request], dict[str, Any]]) -> None:
    turn = Turn(channel)
    watchdog = _start_watchdog(request, turn)
    if not request.run:
        gc.disable()  # collecting would take a sixth of a trace
    message = _message(request, answer)
    watchdog.cancel()
    turn.answer(message)
    del message
    gc.collect()
    gc.freeze()  # what is left are modules and tables: the next collection need not go through them


def _message(request: Request, answer: Callable[[Request], dict[str, Any]]) -> dict[str, Any]:
    """The answer, or what went wrong with it."""
    try:
        _pose_as(request)
        return answer(request)
    except AdvisorError as error:
        return _failure(error)
    except BaseException as error:  # noqa: BLE001 - whatever the user's file raises, sys.exit included
        if raised_by_us(error):
            return {"error": {"kind": "internal", "message": traceback.format_exc(), "hint": ""}}
        hint = "pass the script's own arguments after `--`" if request.run else ""
        return _failure(explain(error, what=request.source, hint=hint))


def _profile(request: ProfileRequest) -> dict[str, Any]:
    scheme, _, _ = request.source.partition(":")
    named = () if scheme in SCHEMES else (request.source.partition("::")[0],)
    with files_read(*named) as files:
        message = _traced(request)
    return {**message, "files": files}


def _traced(request: ProfileRequest) -> dict[str, Any]:
    # torch is imported here, not above: the channel and the watchdog are there before it.
    from advisor.workload.cuda_redirect import cuda_redirected
    from advisor.workload.file import workload_to_json
    from advisor.workload.torch_log import fake_tensor_log_silenced

    with cuda_redirected(), fake_tensor_log_silenced():
        if request.run:
            from advisor.workload.script_trace import trace_script

            workload = trace_script(
                Path(request.source), request.script_args, mode=request.mode, attention=request.attention
            )
            return {"workload": workload_to_json(workload)}
        if request.generation is not None:
            return {"workload": workload_to_json(_generation(request, request.generation))}
        from advisor.workload.load import load

        specs = parse_input_specs(request.inputs)
        loaded = load(request.source, mode=request.mode, specs=specs, attention=request.attention)
        workload = _trace(loaded, request)
        message: dict[str, Any] = {"workload": workload_to_json(workload)}
        if request.second_count:
            from advisor.workload.second_count import count_with_fvcore

            message["second_count"] = asdict(count_with_fvcore(loaded, batch=workload.batch))
        return message


def _generation(request: ProfileRequest, generation: "Generation") -> "Workload":
    from advisor.workload.load import load_language_model

    model = load_language_model(request.source, generation)
    from advisor.workload.generation import trace_generation  # which needs transformers

    return trace_generation(model, generation, isolated=True)


def _trace(loaded: "LoadedModel", request: ProfileRequest) -> "Workload":
    from advisor.workload.trace import trace

    with user_errors_in_step(loaded, request):
        return trace(loaded, mode=request.mode, batch=request.batch, isolated=True, attention=request.attention)


@contextmanager
def user_errors_in_step(loaded: "LoadedModel", request: ProfileRequest) -> Iterator[None]:
    """What the user's code raises inside becomes a `TraceError` that says what the model was given."""
    from advisor.workload.inputs import describe_inputs

    try:
        yield
    except Exception as error:
        if isinstance(error, AdvisorError) or raised_by_us(error):
            raise
        given = describe_inputs(loaded.make_inputs(request.batch or loaded.batch))
        failure = explain(error, what=f"{request.source}: a step failed", hint=f"the model was given {given}")
        raise TraceError(failure.message, hint=failure.hint) from error


def _request(text: bytes, kind: type[Request]) -> Request:
    fields = json.loads(text)
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return kind(**(fields | lists))


def _pose_as(request: ProfileRequest) -> None:
    """Give the user's file the `sys.argv` and the first `sys.path` entry that `python FILE` gives it.

    After torch's import, which a `random.py` in the file's folder would break.
    """
    import_module("torch")
    path = Path(request.source.partition("::")[0])
    sys.argv = [str(path), *request.script_args]
    if path.is_file():
        sys.path.insert(0, str(path.resolve().parent))


def _receive_requests(fd: int) -> "queue.SimpleQueue[bytes]":
    """The requests as they come. Where the other end of the pipe, held by the parent alone, closes, the whole process
    group is killed."""
    pipe = _private(fd)
    received: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def receive() -> None:
        with open(pipe, "rb", closefd=False) as requests:
            while length := requests.read(LENGTH_BYTES):
                received.put(requests.read(int.from_bytes(length, "big")))
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=receive, daemon=True).start()
    return received


def _start_watchdog(request: ProfileRequest, turn: Turn) -> threading.Timer:
    main_thread_id = threading.get_ident()

    def report() -> None:
        frames = where_now(main_thread_id)
        still = f"was still running after {request.timeout_s:g} s"
        hint = "give it more time with --timeout"
        place = frames[0].strip().partition(": ")[0] if frames else request.source
        if frames and not request.run and " in " not in place:  # at the top level, while the file is imported
            hint = f'put it under `if __name__ == "__main__":`, run the file as a script with --run, or {hint}'
        turn.end(LoadError("\n".join([f"{place} {still}", *frames]), hint=hint))

    timer = threading.Timer(request.timeout_s, report)
    timer.daemon = True
    timer.start()
    return timer


def _limit_memory() -> None:
    """Make an allocation that this machine cannot hold fail, instead of bringing the machine down.

    RLIMIT_DATA counts private writable memory. RLIMIT_AS would count reserved addresses too, of which torch has plenty.
    """
    import resource

    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(ValueError, OSError):  # a lower limit is in force already
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
