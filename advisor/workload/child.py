"""The process that runs the user's file: a request on the command line in, the Workload's JSON on a descriptor out.

Started by `spawn.py`. From its first line on, what the file prints goes to stderr, the process group dies with the
parent, and a watchdog says where the file is when time runs out.
"""

import fcntl
import gc
import json
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from advisor.errors import AdvisorError, LoadError, TraceError
from advisor.workload.input_spec import parse_input_specs
from advisor.workload.spawn import LENGTH_BYTES, ProfileRequest
from advisor.workload.user_error import explain, raised_by_us, where_now

if TYPE_CHECKING:
    from advisor.records.workload import Workload
    from advisor.workload.loaded import LoadedModel

_PRIVATE_FD = 200
"""Descriptors are given out from 0 up: no stray write of the user's code lands on one up here."""


class ResultChannel:
    """Sends one message to the parent, and ends the process."""

    def __init__(self, fd: int) -> None:
        self._fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _PRIVATE_FD)
        os.close(fd)
        self._first_sender = threading.Lock()
        os.register_at_fork(after_in_child=self._disown)

    def _disown(self) -> None:
        """In a fork of the user's code: the result is not its to send."""
        if self._fd >= 0:  # else it is a fork of a fork
            os.close(self._fd)
            self._fd = -1

    def finish(self, message: dict[str, Any]) -> NoReturn:
        """Send `message` and end at once, without the interpreter's and torch's own slow ending."""
        if self._fd < 0:
            os._exit(0)
        if not self._first_sender.acquire(blocking=False):
            threading.Event().wait()  # the other thread is about to end the process
        payload = json.dumps(message).encode()
        # The parent may be gone, or the user's code may have closed the descriptor.
        with suppress(OSError), open(self._fd, "wb", closefd=False) as result:
            result.write(len(payload).to_bytes(LENGTH_BYTES, "big") + payload)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # the user's code may have closed or replaced it
                stream.flush()
        os._exit(0)

    def fail(self, error: AdvisorError) -> NoReturn:
        """Send the user's mistake."""
        self.finish({"error": {"kind": type(error).__name__, "message": error.message, "hint": error.hint}})


def main() -> NoReturn:
    """Serve the one request in `sys.argv`: its JSON, the result's descriptor, the lifeline's descriptor."""
    request = _request(sys.argv[1])
    channel = ResultChannel(int(sys.argv[2]))
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    _die_with_parent(int(sys.argv[3]))
    _start_watchdog(request, channel)
    _limit_memory()
    if not request.run:
        gc.disable()  # one trace, then the end: collecting would take a sixth of it
    try:
        message = _profile(request)
    except AdvisorError as error:
        channel.fail(error)
    except BaseException as error:  # noqa: BLE001 - whatever the user's file raises, sys.exit included
        if raised_by_us(error):
            channel.finish({"error": {"kind": "internal", "message": traceback.format_exc(), "hint": ""}})
        hint = "pass the script's own arguments after `--`" if request.run else ""
        channel.fail(explain(error, what=request.source, hint=hint))
    channel.finish(message)


def _profile(request: ProfileRequest) -> dict[str, Any]:
    # torch is imported here, not above: the channel and the watchdog are there before it.
    from advisor.workload.cuda_redirect import cuda_redirected
    from advisor.workload.file import workload_to_json
    from advisor.workload.torch_log import fake_tensor_log_silenced

    _pose_as(request)  # after torch's import, which a `random.py` in the file's folder would break
    with cuda_redirected(), fake_tensor_log_silenced():
        if request.run:
            from advisor.workload.script_trace import trace_script

            workload = trace_script(Path(request.source), request.script_args, mode=request.mode)
            return {"workload": workload_to_json(workload)}
        from advisor.workload.load import load

        loaded = load(request.source, mode=request.mode, specs=parse_input_specs(request.inputs))
        workload = _trace(loaded, request)
        message: dict[str, Any] = {"workload": workload_to_json(workload)}
        if request.second_count:
            from advisor.workload.second_count import count_with_fvcore

            message["second_count"] = asdict(count_with_fvcore(loaded, batch=workload.batch))
        return message


def _trace(loaded: "LoadedModel", request: ProfileRequest) -> "Workload":
    """Trace; what the user's code raises on the way becomes a `TraceError` that says what the model was given."""
    from advisor.workload.inputs import describe_inputs
    from advisor.workload.trace import trace

    try:
        return trace(loaded, mode=request.mode, batch=request.batch, isolated=True)
    except Exception as error:
        if isinstance(error, AdvisorError) or raised_by_us(error):
            raise
        given = describe_inputs(loaded.make_inputs(request.batch or loaded.batch))
        failure = explain(error, what=f"{request.source}: a step failed", hint=f"the model was given {given}")
        raise TraceError(failure.message, hint=failure.hint) from error


def _request(text: str) -> ProfileRequest:
    fields = json.loads(text)
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return ProfileRequest(**(fields | lists))


def _pose_as(request: ProfileRequest) -> None:
    """Give the user's file the `sys.argv` and the first `sys.path` entry that `python FILE` gives it."""
    path = Path(request.source.partition("::")[0])
    sys.argv = [str(path), *request.script_args]
    if path.is_file():
        sys.path.insert(0, str(path.resolve().parent))


def _die_with_parent(lifeline_fd: int) -> None:
    """Kill the whole process group when the other end of the pipe, held by the parent alone, closes."""
    os.set_inheritable(lifeline_fd, False)

    def watch() -> None:
        os.read(lifeline_fd, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _start_watchdog(request: ProfileRequest, channel: ResultChannel) -> None:
    main_thread_id = threading.get_ident()

    def report() -> None:
        frames = where_now(main_thread_id)
        still = f"was still running after {request.timeout_s:g} s"
        if not frames:
            channel.fail(LoadError(f"{request.source} {still}", hint="give it more time with --timeout"))
        hint = "give it more time with --timeout"
        place = frames[0].strip().partition(": ")[0]
        if not request.run and " in " not in place:  # at the top level, while the file is imported
            hint = f'put it under `if __name__ == "__main__":`, run the file as a script with --run, or {hint}'
        channel.fail(LoadError("\n".join([f"{place} {still}", *frames]), hint=hint))

    timer = threading.Timer(request.timeout_s, report)
    timer.daemon = True
    timer.start()


def _limit_memory() -> None:
    """Make an allocation that this machine cannot hold fail, instead of bringing the machine down.

    RLIMIT_DATA counts private writable memory. RLIMIT_AS would count reserved addresses too, of which torch has plenty.
    """
    import resource

    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(ValueError, OSError):  # a lower limit is in force already
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
