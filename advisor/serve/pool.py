"""Questions in, replies of worker processes out: one at a time each, and none for longer than the time limit."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from advisor.serve.frames import Frame, receive_frame

_LOG = logging.getLogger(__name__)
_ROOT = str(Path(__file__).resolve().parents[2])
# Not `-m`, which would put the working folder, with whatever `random.py` lies there, before the standard library.
_START = "import sys; sys.path.append(sys.argv.pop(1)); from advisor.serve.worker import main; main()"
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""There is a worker for every core already."""
_STREAM_BYTES = 1024**2


class WorkerDiedError(Exception):
    """The process ended without a reply."""


class Worker:
    """One process, started at once. It is asked between `connect` and `disconnect`, in one event loop."""

    def __init__(self) -> None:
        self.catalog_version = 0
        self._own_end, their_end = socket.socketpair()
        with their_end:
            self._process = subprocess.Popen(  # noqa: S603 - this very interpreter, and no shell in between
                [sys.executable, "-P", "-c", _START, _ROOT, str(their_end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(their_end.fileno(),),
                env=os.environ | _ONE_THREAD,
            )

    async def connect(self) -> None:
        """Wrap the socket for the loop that runs now."""
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._own_end, limit=_STREAM_BYTES)

    async def ask(self, *frames: Frame) -> Frame:
        """Send the frames and wait for the one reply that they have together."""
        try:
            for frame in frames:
                self._writer.write(frame.packed())
            await self._writer.drain()
            return await receive_frame(self._reader)
        except (ConnectionError, asyncio.IncompleteReadError):
            raise WorkerDiedError(f"worker {self._process.pid} died") from None

    async def disconnect(self) -> None:
        """Let go of the socket, whatever is still to be sent."""
        self._writer.transport.abort()
        await self._writer.wait_closed()

    def kill(self) -> None:
        """End the process, whatever it is at."""
        self._process.kill()
        self._process.wait()
        self._own_end.close()


class Pool:
    """Some workers, and the catalog that they answer from; `died_count` have been replaced."""

    def __init__(self, count: int) -> None:
        self.died_count = 0
        self._catalog = b""
        self._catalog_version = 0
        self._idle: asyncio.Queue[Worker] = asyncio.Queue()
        self._count = count
        self._workers = {Worker()}

    async def connect(self) -> None:
        """Make the first worker ready for questions."""
        for worker in self._workers:
            await worker.connect()
            self._idle.put_nowait(worker)

    async def grow(self) -> None:
        """Start the other workers, which until now would have taken time from what the first answer waits for."""
        while len(self._workers) < self._count:
            worker = Worker()
            self._workers.add(worker)
            await worker.connect()
            self._idle.put_nowait(worker)

    def set_catalog(self, catalog: bytes) -> None:
        """Answer from `catalog`, as `catalog_to_json` gives it, whatever is asked from now on."""
        self._catalog = catalog
        self._catalog_version += 1

    async def ask(self, question: Frame, *, time_limit_s: float) -> Frame:
        """The reply of the first worker that is free; raises TimeoutError and `WorkerDiedError`."""
        worker = await self._idle.get()
        try:
            async with asyncio.timeout(time_limit_s):
                return await worker.ask(*self._catalog_news(worker), question)
        except BaseException as error:  # a cancelled question too leaves a worker that is at something else
            _LOG.warning("worker ended at %s: %s", question.word, error or type(error).__name__)
            worker = await self._replaced(worker)
            raise
        finally:
            self._idle.put_nowait(worker)

    def _catalog_news(self, worker: Worker) -> tuple[Frame, ...]:
        if worker.catalog_version == self._catalog_version:
            return ()
        worker.catalog_version = self._catalog_version
        return (Frame("catalog", self._catalog),)

    async def _replaced(self, worker: Worker) -> Worker:
        self._workers.remove(worker)
        await worker.disconnect()
        worker.kill()
        self.died_count += 1
        fresh = Worker()
        self._workers.add(fresh)
        await fresh.connect()
        return fresh

    async def disconnect(self) -> None:
        """Ask no more."""
        for worker in self._workers:
            await worker.disconnect()

    def kill(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.kill()


@contextmanager
def pool_of(count: int) -> Iterator[Pool]:
    """Workers whose processes end with the block."""
    pool = Pool(count)
    try:
        yield pool
    finally:
        pool.kill()
