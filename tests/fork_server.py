"""Starts the processes that trace and time models as forks of one that has imported torch and transformers.

Importing them takes several times as long as most traces. The forks run the supervisor and its code as they are: only
the start of the interpreter is left out.
"""

import atexit
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from advisor.workload.spawn import _NO_NETWORK, _THREADS
from advisor.workload.supervisor import _SET_CHILD_SUBREAPER, _prctl

_ROOT = str(Path(__file__).resolve().parents[1])
_PRELOADED = (
    "torch", "transformers.models.auto.modeling_auto", "transformers.modeling_utils", "advisor.workload.trace",
    "advisor.workload.script_trace", "advisor.workload.generation_trace", "advisor.workload.file",
    "advisor.workload.sources.huggingface",
)  # fmt: skip
_READ_AT_IMPORT = ("PYTHON", "LD_", "HF_", "TRANSFORMERS_")
"""Prefixes of variables that have an effect only when the interpreter starts or a library is imported."""
_SPARE_FD = 300
"""Above every descriptor of a request, whose numbers the fork keeps."""

_ONE_AT_A_TIME = threading.Lock()


class ForkedProcess(subprocess.Popen[bytes]):
    """Stands in for `Popen` in `supervisor.start`. This process adopts the fork, so that all methods work."""

    def _execute_child(self, args: Sequence[str], *more: Any) -> None:
        pass_fds, env, stdin, stdout, stderr = (more[place] for place in (3, 5, 9, 12, 14))
        if _of_import(env) != _of_import(_server_environment()):
            super()._execute_child(args, *more)  # type: ignore[misc]  # of the standard library
            return
        fds = {0: stdin, 1: 1 if stdout == -1 else stdout, 2: 2 if stderr == -1 else stderr}
        fds |= {fd: fd for fd in pass_fds}
        request = {"code": args[3], "argv": args[4:], "env": dict(env), "fds": list(fds), "starter_pid": os.getpid()}
        message = json.dumps({**request, "folder": os.getcwd()}).encode()
        with _ONE_AT_A_TIME:
            server = _server()
            _prctl(_SET_CHILD_SUBREAPER, 1)
            socket.send_fds(server, [message], list(fds.values()))
            self.pid = int(server.recv(32))
            _prctl(_SET_CHILD_SUBREAPER, 0)
        self._child_created = True
        for fd in {stdin, stdout, stderr} - {-1}:
            os.close(fd)


def _of_import(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_READ_AT_IMPORT)}


@cache
def _server_environment() -> dict[str, str]:
    return os.environ | _NO_NETWORK


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Under a name that is no file's, so that its frames are not taken for the user's.
    program = f"exec(compile(open({__file__!r}).read(), '<fork server>', 'exec')); serve()"
    code = f"import sys; sys.path.append({_ROOT!r}); __file__ = {__file__!r}; {program}"
    command = [sys.executable, "-P", "-c", code]
    server = subprocess.Popen(command, stdin=theirs, env=_server_environment(), start_new_session=True)
    theirs.close()

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


def serve() -> None:
    """Fork for each request on stdin until it closes."""
    from advisor.workload.sources.installed import declare_torchvision_operators

    declare_torchvision_operators()
    for name in _PRELOADED:
        import_module(name)
    with socket.socket(fileno=0) as requests:
        while True:
            message, fds, *_ = socket.recv_fds(requests, 2**20, 32)
            if not message:
                return
            if between := os.fork():
                os.waitpid(between, 0)
                for fd in fds:
                    os.close(fd)
            elif os.fork():
                os._exit(0)
            else:
                _become(json.loads(message), fds, requests)


def _become(request: dict[str, Any], fds: Sequence[int], requests: socket.socket) -> None:
    """Continue as the process that `Popen` would have started."""
    while os.getppid() != request["starter_pid"]:
        time.sleep(0.001)
    os.setsid()
    requests.send(str(os.getpid()).encode())
    spare = [fcntl.fcntl(fd, fcntl.F_DUPFD, _SPARE_FD) for fd in fds]
    requests.detach()
    os.closerange(3, _SPARE_FD)
    for fd, target in zip(spare, request["fds"], strict=True):
        os.dup2(fd, target)
        os.close(fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    sys.argv = ["-c", *request["argv"]]
    if _THREADS in request["env"]:
        import torch

        torch.set_num_threads(int(request["env"][_THREADS]))
    exec(request["code"], {"__name__": "__main__"})
