"""Runs the fork server: the process that all workers are forked from.

Imports and validators take half a second. A fork of a process that has them takes milliseconds and shares their memory.
"""

import contextlib
import gc
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

_LOG = logging.getLogger(__name__)
_ROOT = str(Path(__file__).resolve().parents[2])
# Not `-m`: it would put the working folder, which may contain a `random.py`, before the standard library.
_START = "import sys; sys.path.append(sys.argv.pop(1)); from advisor.serve.fork_server import main; main()"
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""There is already a worker for every core, and only one thread survives a fork."""
_ORDER = struct.Struct(">cI")
_FORK, _KILL = b"f", b"k"
"""Orders: fork a worker with this number on the socket sent along; kill the worker with this number."""


class ForkServer:
    """The service's handle of the fork server, which starts at once and is restarted if it dies."""

    def __init__(self) -> None:
        self._count = 0
        self._launch()

    def _launch(self) -> None:
        self._orders, their_end = socket.socketpair()
        with their_end:
            self._process = subprocess.Popen(  # noqa: S603 - the same interpreter, without a shell
                [sys.executable, "-P", "-c", _START, _ROOT, str(their_end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(their_end.fileno(),),
                env=os.environ | _ONE_THREAD,
            )

    @property
    def pid(self) -> int:
        """The process id of the fork server."""
        return self._process.pid

    def fork(self) -> tuple[int, socket.socket]:
        """Order a new worker; return its number and the socket to ask it on.

        Raise OSError if the system allows no further process or file.
        """
        self._count += 1
        own_end, their_end = socket.socketpair()
        with their_end:
            order, descriptors = _ORDER.pack(_FORK, self._count), [their_end.fileno()]
            try:
                try:
                    socket.send_fds(self._orders, [order], descriptors)
                except OSError:
                    self.end()
                    self._launch()
                    socket.send_fds(self._orders, [order], descriptors)
            except OSError:
                own_end.close()
                raise
        return self._count, own_end

    def kill(self, number: int) -> None:
        """Kill a worker; if the fork server has died, the worker ends when its socket closes."""
        with contextlib.suppress(OSError):
            self._orders.sendall(_ORDER.pack(_KILL, number))

    def end(self) -> None:
        """Stop the fork server and all workers."""
        self._orders.close()
        self._process.wait()


def main() -> None:
    """Run the fork server: import all that workers need, then follow the orders on the socket given by number."""
    # A service manager and Ctrl-C signal every process of the service, but requests in flight are answered first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        from advisor.serve.log import configure_log, log_uncaught
        from advisor.serve.worker import warm_up

        configure_log()
        sys.excepthook = log_uncaught
        warm_up()
        gc.collect()
        gc.freeze()  # keeps the garbage collector from touching, and so copying, memory shared with the workers
        follow(orders)


def follow(orders: socket.socket) -> None:
    """Fork and kill workers as ordered until the socket closes; then kill the remaining ones."""
    from advisor.serve.worker import work

    pids: dict[int, int] = {}
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, _ORDER.size, 1)
        if not order:
            break
        kind, number = _ORDER.unpack(order)
        if kind == _KILL:
            if number in pids:  # not a worker of a previous fork server
                _end(pids.pop(number))
            continue
        try:
            pid = os.fork()
        except OSError as error:  # the service notices the closed socket and orders another worker
            _LOG.error("cannot fork a worker: %s", error)
            os.close(descriptors[0])
            continue
        if pid == 0:
            orders.close()
            with socket.socket(fileno=descriptors[0]) as connection:
                work(connection)
            os._exit(0)
        os.close(descriptors[0])
        pids[number] = pid
    for pid in pids.values():
        _end(pid)


def _end(pid: int) -> None:
    """Kill and reap a worker; its pid is valid, because no one else waits for this child."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
