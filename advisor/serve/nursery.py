"""The process that every worker is forked from: orders of the service in, processes out that have imported everything.

Imports and validators take half a second; a fork of who has them takes milliseconds, and shares their memory.
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
# Not `-m`, which would put the working folder, with whatever `random.py` lies there, before the standard library.
_START = "import sys; sys.path.append(sys.argv.pop(1)); from advisor.serve.nursery import main; main()"
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""There is a worker for every core already, and only one thread survives a fork."""
_ORDER = struct.Struct(">cI")
_FORK, _KILL = b"f", b"k"
"""Fork a worker with that number, for the socket that comes along; end that worker, whatever it is at."""


class Nursery:
    """The service's side. The process starts at once, and is started anew if it should die."""

    def __init__(self) -> None:
        self._count = 0
        self._launch()

    def _launch(self) -> None:
        self._orders, their_end = socket.socketpair()
        with their_end:
            self._process = subprocess.Popen(  # noqa: S603 - this very interpreter, and no shell in between
                [sys.executable, "-P", "-c", _START, _ROOT, str(their_end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(their_end.fileno(),),
                env=os.environ | _ONE_THREAD,
            )

    @property
    def pid(self) -> int:
        """Of the process that forks."""
        return self._process.pid

    def fork(self) -> tuple[int, socket.socket]:
        """A new worker: its number, and the socket that it is asked on, once it is there.

        Raises OSError where the system lets no further process or file be.
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
        """End a worker; where the nursery is gone, it ends with its socket."""
        with contextlib.suppress(OSError):
            self._orders.sendall(_ORDER.pack(_KILL, number))

    def end(self) -> None:
        """End all workers."""
        self._orders.close()
        self._process.wait()


def main() -> None:
    """Import all that workers need, then do as the socket whose number is the argument says, until it closes."""
    # A service manager and Ctrl-C signal every process of the service; what is in flight is answered first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        from advisor.serve.log import configure_log, log_uncaught
        from advisor.serve.worker import warm_up

        configure_log()
        sys.excepthook = log_uncaught
        warm_up()
        gc.collect()
        gc.freeze()  # what is shared with all workers is never looked through, and so never copied
        follow(orders)


def follow(orders: socket.socket) -> None:
    """Fork and kill as told; at the end, kill those that are left."""
    from advisor.serve.worker import work

    pids: dict[int, int] = {}
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, _ORDER.size, 1)
        if not order:
            break
        kind, number = _ORDER.unpack(order)
        if kind == _KILL:
            if number in pids:  # not one of a nursery before this
                _end(pids.pop(number))
            continue
        try:
            pid = os.fork()
        except OSError as error:  # the service sees that the socket is closed, and orders another in time
            _LOG.error("no worker can be forked: %s", error)
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
    """The process is a child that nobody else waits for, so its number is still its own."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
