"""Runs foreign code in a process under a supervisor, which kills everything that the code has started.

The supervisor is a separate process between this one and the code, so that this process needs no changes. It is a
subreaper: every process that the code starts, even a daemon in its own session, becomes the supervisor's child when its
parent ends. When the code ends, or its starter requests it or dies, the supervisor kills all remaining processes and
exits with the code's exit code or signal. On systems other than Linux it kills the code's process group.
"""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

_ROOT = str(Path(__file__).resolve().parents[2])
# Not `-m`, which would put the working directory, with its `random.py` if any, before the standard library.
_START = (
    "import sys; sys.path.append(sys.argv.pop(1)); from advisor.workload.supervisor import supervise; supervise(); "
    "from {module} import main; main()"
)
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
"""Options of prctl(2)."""
_SWEEP_S = 5.0
"""How long to try to kill the remaining processes."""
_SWEEP_POLL_S = 0.002


def start(
    module: str, arguments: Sequence[str], *, env: Mapping[str, str], pass_fds: Sequence[int]
) -> "subprocess.Popen[bytes]":
    """Start `main` of `module` with these arguments under a supervisor, in its own session; `end` ends both."""
    return subprocess.Popen(  # noqa: S603 - this same interpreter, started without a shell
        [sys.executable, "-P", "-c", _START.format(module=module), _ROOT, str(os.getpid()), *arguments],
        stdin=subprocess.PIPE,  # closes when this process ends, which ends the supervisor too
        pass_fds=pass_fds,
        start_new_session=True,
        env=env,
    )


def interrupt(process: "subprocess.Popen[bytes]") -> None:
    """Tell the supervisor to kill its processes, without waiting for it."""
    process.terminate()
    process.send_signal(signal.SIGCONT)  # the code may have stopped it


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill the supervisor's processes, and wait until it has ended."""
    interrupt(process)
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(2 * _SWEEP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def supervise() -> None:
    """Fork; return only in the child, which continues with the code. The parent becomes the supervisor."""
    starter_pid, supervisor_pid = int(sys.argv.pop(1)), os.getpid()
    _prctl(_SET_CHILD_SUBREAPER, 1)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*_ENDING, signal.SIGCHLD})
    child_pid = os.fork()
    if child_pid:
        _stand_over(child_pid, starter_pid=starter_pid)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != supervisor_pid:  # the supervisor died before the death signal was set
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _prctl(option: int, value: int) -> None:
    """Set a process option on Linux; do nothing on other systems."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _stand_over(child_pid: int, *, starter_pid: int) -> NoReturn:
    """Wait until the code ends or must be ended; then kill all remaining processes and exit."""
    _close_all_but_stdin_and_stderr()
    wake_fd = _signal_pipe()
    watched = [0, wake_fd, *_watch(starter_pid)]
    status = None
    with selectors.DefaultSelector() as selector:
        for descriptor in watched:
            selector.register(descriptor, selectors.EVENT_READ)
        while status is None:
            ready = [key.fd for key, _ in selector.select()]
            caught = os.read(wake_fd, 2**10) if wake_fd in ready else b""
            status = next((status for pid, status in _ended() if pid == child_pid), None)
            if status is None and (ready != [wake_fd] or any(number in caught for number in _ENDING)):
                status = signal.SIGTERM
    _sweep(child_pid)
    _leave(status)


def _close_all_but_stdin_and_stderr() -> None:
    """Close inherited descriptors, so that the code's pipes close when the code ends."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    for name in os.listdir("/dev/fd"):
        if int(name) > 2:
            with suppress(OSError):  # the descriptor of the listing itself
                os.close(int(name))


def _signal_pipe() -> int:
    """Return a descriptor from which the number of each signal received can be read."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    for number in (*_ENDING, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_ENDING, signal.SIGCHLD})
    return read_fd


def _watch(starter_pid: int) -> tuple[int, ...]:
    """Return a descriptor that becomes ready when the starter dies, if the system supports it.

    The pipe alone is not enough, because a fork of the starter may hold it open.
    """
    if not hasattr(os, "pidfd_open"):
        return ()
    with suppress(OSError):
        starter = os.pidfd_open(starter_pid)
        return (starter,) if os.getppid() == starter_pid else (0,)
    return ()


def _ended() -> Iterator[tuple[int, int]]:
    """Yield (pid, status) of the children that have ended; raise `ChildProcessError` if no child is left."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        yield pid, status


def _sweep(child_pid: int) -> None:
    """Kill descendants until none are left; those whose parent is killed become children of this process."""
    deadline_s = time.monotonic() + _SWEEP_S
    with suppress(ChildProcessError):
        while time.monotonic() < deadline_s:
            for _ in _ended():
                pass
            for pid in _descendants(os.getpid()) or [-child_pid]:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_SWEEP_POLL_S)


def _descendants(ancestor_pid: int) -> list[int]:
    """Return all descendants that /proc currently lists; empty without /proc."""
    children: dict[int, list[int]] = {}
    with suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            if name.isdecimal():
                with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:  # it may be gone
                    parent_pid = int(stat.read().rpartition(b")")[2].split()[1])
                    children.setdefault(parent_pid, []).append(int(name))
    found = list(children.get(ancestor_pid, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def _leave(status: int) -> NoReturn:
    """Exit with the code's exit code or signal."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
