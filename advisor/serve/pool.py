"""Questions in, replies of worker processes out: one at a time each, and none for longer than the time limit."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from advisor.serve.frames import HEAD, Frame
from advisor.serve.nursery import Nursery

_LOG = logging.getLogger(__name__)
_STREAM_BYTES = 1024**2


class WorkerDiedError(Exception):
    """The process ended without a reply."""


async def receive_frame(stream: asyncio.StreamReader) -> Frame:
    """The next frame; raises `asyncio.IncompleteReadError` where the other side is gone."""
    word_length, body_length = HEAD.unpack(await stream.readexactly(HEAD.size))
    word = (await stream.readexactly(word_length)).decode("ascii")
    return Frame(word, await stream.readexactly(body_length))


class Worker:
    """One process, forked as soon as the nursery can. It is asked between `connect` and `disconnect`, in one loop."""

    def __init__(self, nursery: Nursery) -> None:
        self.catalog_version = 0
        self._nursery = nursery
        self._number, self._own_end = nursery.fork()

    def tell(self, frame: Frame) -> None:
        """Send what it is to be at before the loop runs; `ask` without a frame waits for the reply."""
        self._own_end.sendall(frame.packed())

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
            raise WorkerDiedError(f"worker {self._number} died") from None

    async def disconnect(self) -> None:
        """Let go of the socket, whatever is still to be sent."""
        self._writer.transport.abort()
        await self._writer.wait_closed()

    def kill(self) -> None:
        """End the process, whatever it is at."""
        self._nursery.kill(self._number)
        self._own_end.close()


class Pool:
    """Some workers, and the catalog that they answer from; `died_count` have been replaced."""

    def __init__(self, count: int, *, nursery: Nursery) -> None:
        self.died_count = 0
        self.nursery = nursery
        self._catalog = b""
        self._catalog_version = 0
        self._idle: asyncio.Queue[Worker] = asyncio.Queue()
        self._count = count
        self._workers = {Worker(nursery)}

    async def connect(self) -> None:
        """Make the first worker ready for questions."""
        for worker in self._workers:
            await worker.connect()
            self._idle.put_nowait(worker)

    async def grow(self) -> None:
        """Start the other workers, which until now would have taken time from what the first answer waits for."""
        while len(self._workers) < self._count:
            worker = Worker(self.nursery)
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
        fresh = Worker(self.nursery)
        self._workers.add(fresh)
        await fresh.connect()
        return fresh

    async def disconnect(self) -> None:
        """Ask no more."""
        for worker in self._workers:
            await worker.disconnect()


@contextmanager
def pool_of(count: int) -> Iterator[Pool]:
    """Workers whose processes end with the block."""
    nursery = Nursery()
    try:
        yield Pool(count, nursery=nursery)
    finally:
        nursery.end()
