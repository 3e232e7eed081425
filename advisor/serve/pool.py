"""Sends questions to worker processes, one at a time each, with a timeout."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from advisor.serve.fork_server import ForkServer
from advisor.serve.frames import Frame, receive_frame

_LOG = logging.getLogger(__name__)
_STREAM_BYTES = 1024**2


class WorkerDiedError(Exception):
    """The worker process ended without a reply, or none could be started."""


class QueueFullError(Exception):
    """The queue of waiting questions is full."""


class Worker:
    """One worker process, ordered from the fork server. Use it in one event loop only."""

    def __init__(self, fork_server: ForkServer) -> None:
        self.catalog_version = 0
        self._fork_server = fork_server
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._number, self._own_end = fork_server.fork()

    @property
    def is_alive(self) -> bool:
        """False once the process has closed its end of the socket, however it ended."""
        try:
            return bool(self._own_end.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def send(self, frame: Frame) -> None:
        """Send a frame before the event loop runs; `ask()` without a frame then waits for the reply."""
        self._own_end.sendall(frame.packed())

    async def ask(self, *frames: Frame) -> Frame:
        """Send the frames and wait for their single reply."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_unix_connection(sock=self._own_end, limit=_STREAM_BYTES)
            reader, writer = self._streams
            for frame in frames:
                writer.write(frame.packed())
            await writer.drain()
            return await receive_frame(reader)
        except (ConnectionError, asyncio.IncompleteReadError):
            raise WorkerDiedError(f"worker {self._number} died") from None

    def end(self) -> None:
        """Kill the process at once, even if it is busy."""
        if self._streams is not None:
            self._streams[1].transport.abort()
        self._fork_server.kill(self._number)
        self._own_end.close()


class Pool:
    """A pool of `count` workers and their catalog; `died_count` workers have died and been replaced.

    `pending_count` questions are waiting or in progress, at most `queue_count`. A worker that fails is not used again.
    """

    def __init__(self, count: int, *, queue_count: int, fork_server: ForkServer) -> None:
        self.count = count
        self.died_count = 0
        self.pending_count = 0
        self.fork_server = fork_server
        self._queue_count = queue_count
        self._catalog = b""
        self._catalog_version = 0
        self._slots = asyncio.Semaphore(count)
        self._idle = [Worker(fork_server)]
        self._workers = set(self._idle)

    @property
    def living_count(self) -> int:
        """The number of workers whose processes are alive, idle or not."""
        return sum(worker.is_alive for worker in self._workers)

    def fill(self) -> None:
        """Replace idle workers that died and start missing ones, as far as the system allows."""
        for worker in [one for one in self._idle if not one.is_alive]:
            self._idle.remove(worker)
            self._drop(worker)
        try:
            while len(self._workers) < self.count:
                worker = Worker(self.fork_server)
                self._workers.add(worker)
                self._idle.append(worker)
        except OSError as error:
            _LOG.error("cannot start a worker: %s", error)

    def set_catalog(self, catalog: bytes) -> None:
        """Answer all further questions from `catalog`, which is in the format of `catalog_to_json`."""
        self._catalog = catalog
        self._catalog_version += 1

    async def ask(self, question: Frame, *, time_limit_s: float) -> Frame:
        """Return the reply of the first free worker; ask once more if the worker dies.

        The time limit includes the wait for a free worker. Raise `QueueFullError`, TimeoutError or `WorkerDiedError`.
        """
        if self.pending_count >= self._queue_count:
            raise QueueFullError(f"{self.pending_count} questions are waiting")
        self.pending_count += 1
        try:
            async with asyncio.timeout(time_limit_s), self._slots:
                try:
                    return await self._ask_once(question)
                except WorkerDiedError:  # probably killed from outside
                    return await self._ask_once(question)
        finally:
            self.pending_count -= 1

    async def _ask_once(self, question: Frame) -> Frame:
        self.fill()
        if not self._idle:
            raise WorkerDiedError("cannot start a worker")
        worker = self._idle.pop()
        try:
            newer = () if worker.catalog_version == self._catalog_version else (Frame("catalog", self._catalog),)
            worker.catalog_version = self._catalog_version
            reply = await worker.ask(*newer, question)
        except BaseException as error:  # also after a cancelled question, because the worker is still busy with it
            _LOG.warning("worker ended during %s: %s", question.word, str(error) or type(error).__name__)
            self._drop(worker)
            self.fill()
            raise
        self._idle.append(worker)
        return reply

    def _drop(self, worker: Worker) -> None:
        self._workers.remove(worker)
        self.died_count += 1
        worker.end()

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.end()


@contextmanager
def pool_of(count: int, *, queue_count: int) -> Iterator[Pool]:
    """Provide a pool of workers, which end with the block."""
    fork_server = ForkServer()
    try:
        yield Pool(count, queue_count=queue_count, fork_server=fork_server)
    finally:
        fork_server.end()
