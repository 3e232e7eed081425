"""Runs the user's file in the child process that `spawn.py` starts, and answers requests with JSON.

Requests arrive on one descriptor, and answers leave on another. The file's output goes to stderr, the process group
dies with the parent, and a watchdog reports where the file is on a timeout. A failure is reported as an answer; if the
file has broken the functions that make answers, the process exits without one.
"""

import fcntl
import gc
import json
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from advisor.errors import AdvisorError, LoadError, TraceError
from advisor.machine.limits import total_memory_bytes
from advisor.workload import sources
from advisor.workload.dependencies import recorded_dependencies
from advisor.workload.input_spec import parse_input_specs
from advisor.workload.no_network import network_refused
from advisor.workload.real_step import SMALLER_STEP_HINT, real_step_reason
from advisor.workload.spawn import ERRORS, LENGTH_BYTES, TOKEN_BYTES, ProfileRequest, packed
from advisor.workload.user_error import explain, is_of_user, raised_by_us, where_now

if TYPE_CHECKING:
    from advisor.workload.loaded import LoadedModel

_NAMED_COUNT = 3
"""Most replaced functions that a message names."""
_MESSAGE_CHARACTERS = 2**14
_PRIVATE_FD = 200
"""Descriptors are assigned from 0 up, so stray writes of the user's code do not reach one this high."""


_is_callable = callable  # saved because the file may replace it too


class StandardLibrary:
    """Remembers the functions and classes of the standard library, and restores them.

    The answer is written by the same interpreter, so a file that replaces `len` or `json.dumps` must not affect it.
    """

    def __init__(self) -> None:
        self._modules: list[tuple[str, dict[str, Any], Mapping[str, Any]]] = []
        self._recursion_limit = sys.getrecursionlimit()

    def remember(self) -> None:
        """Save the contents of all standard library modules imported so far."""
        self._modules = [
            (name, vars(module), dict(vars(module)))
            for name, module in tuple(sys.modules.items())
            if name.partition(".")[0] in sys.stdlib_module_names and name != "__main__"
        ]

    def restore(self) -> list[str]:
        """Restore replaced functions and classes; return their names."""
        replaced = []
        for module, now, before in self._modules:
            for name, value in before.items():
                if now.get(name) is not value and _is_callable(value):
                    now[name] = value
                    replaced.append(f"{module}.{name}")
        sys.settrace(None)
        sys.setprofile(None)
        sys.setrecursionlimit(self._recursion_limit)
        return replaced


class ResultChannel:
    """The pipe that carries answers to the parent."""

    def __init__(self, fd: int) -> None:
        self._fd = _private(fd)
        os.register_at_fork(after_in_child=self._disown)

    def _disown(self) -> None:
        """Close the pipe in a fork made by the user's code, which must not send an answer."""
        if self._fd >= 0:  # otherwise this is a fork of a fork
            os.close(self._fd)
            self._fd = -1

    def send(self, frame: bytes) -> None:
        """Send `frame`; end the process if nobody reads it."""
        if self._fd < 0:
            os._exit(0)
        for stream in (sys.stdout, sys.stderr):
            with suppress(BaseException):  # the user's code may have closed or replaced the stream
                stream.flush()
        try:
            with open(self._fd, "wb", closefd=False) as result:
                result.write(frame)
        except OSError:  # the parent is gone, or the user's code has closed the descriptor
            os._exit(0)


class Turn:
    """The answer to one request, sent by whichever finishes first, the trace or its watchdog."""

    def __init__(self, channel: ResultChannel, *, token: bytes) -> None:
        self._channel = channel
        self._token = token
        self._first_sender = threading.Lock()

    def answer(self, payload: bytes) -> None:
        """Send the answer, a message as JSON."""
        if not self._first_sender.acquire(blocking=False):
            threading.Event().wait()  # waits forever, because the other thread has answered
        self._channel.send(packed(payload, token=self._token))


def _payload(message: dict[str, Any], *, is_last: bool) -> bytes:
    """Return the message as JSON; `is_last` means that the process takes no further request."""
    return json.dumps({**message, "is_last": is_last}).encode()


def _failure(error: AdvisorError) -> dict[str, Any]:
    message = error.message[:_MESSAGE_CHARACTERS]  # messages may contain long names from the user's code
    kind = next(base.__name__ for base in type(error).__mro__ if base.__name__ in ERRORS)
    return {"error": {"kind": kind, "message": message, "hint": error.hint[:_MESSAGE_CHARACTERS]}}


def _private(fd: int) -> int:
    """Return the descriptor moved to a high number, and closed when the user's code starts another program."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _PRIVATE_FD)
    os.close(fd)
    return moved


def main() -> NoReturn:
    """Serve requests to trace a step."""
    serve(_profile)


def serve(answer: Callable[[Any], dict[str, Any]]) -> NoReturn:
    """Serve requests until the parent closes the pipe; `sys.argv` has the descriptors for requests and answers."""
    channel = ResultChannel(int(sys.argv[2]))
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    requests = _receive_requests(int(sys.argv[1]))
    limit_memory(total_memory_bytes())
    leave = os._exit
    try:
        while True:
            token, request = requests.get()
            _serve(pickle.loads(request), Turn(channel, token=token), answer)  # noqa: S301 - of our own parent
    finally:  # not even an error can be answered; the parent then reports that
        leave(1)


def _serve(request: ProfileRequest, turn: Turn, answer: Callable[[Any], dict[str, Any]]) -> None:
    library = StandardLibrary()
    watchdog = _start_watchdog(request, turn, library)
    if not request.run:
        gc.disable()  # collection would take a sixth of the trace's time
    try:
        _set_argv_and_path(request)
        library.remember()
        message = answer(request)
        library.restore()
        payload = _payload(message, is_last=False)
        del message
    except BaseException as error:  # noqa: BLE001 - whatever the user's file raises, sys.exit included
        payload = _payload(_what_went_wrong(error, request, replaced=library.restore()), is_last=False)
    watchdog.cancel()
    turn.answer(payload)
    gc.collect()
    gc.freeze()  # only modules and tables are left, which the next collection can skip


def _what_went_wrong(error: BaseException, request: ProfileRequest, *, replaced: Sequence[str]) -> dict[str, Any]:
    if isinstance(error, AdvisorError):
        return _failure(error)
    if raised_by_us(error):
        if replaced:  # the user's file replaced functions that our code uses
            names = ", ".join(replaced[:_NAMED_COUNT])
            reason = explain(error, what=f"{request.source} replaces {names}, which the program needs").message
            hint = "do not replace Python's own functions, or restore them at the end of the file"
            return _failure(LoadError(reason, hint=hint))
        return {"error": {"kind": "internal", "message": traceback.format_exc(), "hint": ""}}
    hint = "pass the script's own arguments after `--`" if request.run else ""
    return _failure(explain(error, what=request.source, hint=hint))


def _profile(request: ProfileRequest) -> dict[str, Any]:
    named = () if sources.has_scheme(request.source) else (request.source.partition("::")[0],)
    with recorded_dependencies(*named) as dependencies, network_refused():
        return {**_traced(request), "dependencies": dependencies}


def _traced(request: ProfileRequest) -> dict[str, Any]:
    # torch is imported here, so that the channel and the watchdog exist before it.
    from advisor.workload.cuda_redirect import cuda_redirected
    from advisor.workload.file import workload_to_json
    from advisor.workload.no_weights import weights_left_out
    from advisor.workload.one_process import one_process
    from advisor.workload.quick_fake_mode import stand_in_for_dynamo

    stand_in_for_dynamo()
    count: dict[str, Any] = {}
    with cuda_redirected(), weights_left_out() as notes, nullcontext() if request.run else one_process():
        if request.run:
            from advisor.workload.script_trace import trace_script

            script = Path(request.source)
            mode = None if request.finds_mode else request.mode
            workload = trace_script(script, request.script_args, mode=mode, attention=request.attention)
        elif request.generation is not None:
            model = sources.load_language_model(request.source, request.generation)
            from advisor.workload.generation_trace import trace_generation  # needs transformers

            workload = trace_generation(model, isolated=True)
        else:
            from advisor.workload.trace import trace

            specs = parse_input_specs(request.inputs)
            tuning = request.fine_tuning
            loaded = sources.load(
                request.source,
                mode=request.mode,
                specs=specs,
                attention=request.attention,
                tokens=request.sequence if tuning is None else tuning.tokens,
            )
            if tuning is not None:
                from advisor.workload.fine_tuning import fine_tuned

                loaded = fine_tuned(loaded, tuning)
            with user_errors_in_step(loaded, request):
                workload = trace(
                    loaded,
                    mode=request.mode,
                    batch=request.batch,
                    isolated=True,
                    attention=request.attention,
                    half_attention=request.half_attention,
                )
            if tuning is not None:
                trained = sum(one.numel() for one in loaded.model.parameters() if one.requires_grad)
                workload = replace(workload, fine_tuning=replace(tuning, trained_count=trained))
            if request.second_count:
                from advisor.workload.second_count import count_with_fvcore

                count = {"second_count": asdict(count_with_fvcore(loaded, batch=workload.batch))}
    workload = replace(workload, assumptions=(*workload.assumptions, *notes), is_pretrained=bool(notes))
    return {"workload": workload_to_json(workload), **count}


@contextmanager
def user_errors_in_step(loaded: "LoadedModel", request: ProfileRequest) -> Iterator[None]:
    """Turn errors of the user's code into a `TraceError` that says what inputs the model was given."""
    from advisor.workload.inputs import describe_inputs, tensors_not_given
    from advisor.workload.lightning_module import is_lightning_class

    try:
        yield
    except Exception as error:
        if not is_of_user(error):
            raise
        inputs = loaded.make_inputs(request.batch or loaded.batch)
        _, named = inputs
        hint = f"the model was given {describe_inputs(inputs)}"
        if named:
            hint += tensors_not_given(loaded.model, named)
        if request.mode == "training" and is_lightning_class(type(loaded.model)):
            hint += "; training_step takes a batch of the data loader: let example_inputs(batch) return one"
        modules = loaded.model.named_modules()
        failure = explain(error, what=f"{request.source}: a step failed", hint=hint, modules=modules)
        raise TraceError(failure.message, hint=failure.hint) from error


def _set_argv_and_path(request: ProfileRequest) -> None:
    """Set `sys.argv` and the first `sys.path` entry as `python FILE` does.

    This happens after torch's import, which a `random.py` in the file's folder would break.
    """
    import_module("torch")
    path = Path(request.source.partition("::")[0])
    sys.argv = [str(path), *request.script_args]
    if path.is_file():
        sys.path.insert(0, str(path.resolve().parent))


def _receive_requests(fd: int) -> "queue.SimpleQueue[tuple[bytes, bytes]]":
    """Return a queue of incoming requests, each as (token, request).

    When the pipe closes, whose other end only the parent holds, the whole process group is killed.
    """
    pipe = _private(fd)
    received: queue.SimpleQueue[tuple[bytes, bytes]] = queue.SimpleQueue()

    def receive() -> None:
        with suppress(BaseException), open(pipe, "rb", closefd=False) as requests:  # user code may close it
            while token := requests.read(TOKEN_BYTES):
                length = int.from_bytes(requests.read(LENGTH_BYTES), "big")
                received.put((token, requests.read(length + TOKEN_BYTES)[:length]))
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=receive, daemon=True).start()
    return received


def _start_watchdog(request: ProfileRequest, turn: Turn, library: StandardLibrary) -> threading.Timer:
    main_thread_id = threading.get_ident()

    def end() -> None:
        with suppress(BaseException):  # the parent then reports the timeout
            library.restore()
            report()

    def report() -> None:
        frames = where_now(main_thread_id)
        still = f"was still running after {request.timeout_s:g} s"
        hint = "give it more time with --timeout"
        place = frames[0].strip().partition(": ")[0] if frames else request.source
        if frames and not request.run and " in " not in place:  # at module level, while the file is imported
            hint = f'put it under `if __name__ == "__main__":`, run the file as a script with --run, or {hint}'
        if reason := real_step_reason():
            hint = f"{hint}, {SMALLER_STEP_HINT}"
            frames = [*frames, reason]
        error = LoadError("\n".join([f"{place} {still}", *frames]), hint=hint)
        turn.answer(_payload(_failure(error), is_last=True))
        os._exit(0)

    timer = threading.Timer(request.timeout_s, end)
    timer.daemon = True
    timer.start()
    return timer


def limit_memory(limit_bytes: float | None) -> None:
    """Make allocations beyond the limit fail, so that they do not bring the machine down; None: no limit.

    RLIMIT_DATA counts private writable memory. RLIMIT_AS would also count reserved addresses, of which torch has many.
    """
    import resource

    if limit_bytes is not None:
        with suppress(ValueError, OSError):  # a lower limit is already set
            resource.setrlimit(resource.RLIMIT_DATA, (int(limit_bytes), int(limit_bytes)))
