"""Loads the catalog that the service answers from, and reloads it when a file changes."""

import asyncio
import json
import logging
from datetime import UTC, datetime

from advisor.catalog.overlay import FileStates, file_states
from advisor.errors import AdvisorError, UsageError
from advisor.serve.frames import Frame
from advisor.serve.pool import Pool, Worker, WorkerDiedError
from advisor.serve.settings import Settings

_LOG = logging.getLogger(__name__)
_CHECK_EVERY_S = 1.0
_LOAD_LIMIT_S = 60.0
"""Parsing all shipped files takes 2 s."""


class PricesInForce:
    """The prices in force: when they were loaded, and the `problem` of a later edit that was not taken over."""

    def __init__(self, settings: Settings, pool: Pool) -> None:
        self.loaded_at = datetime.now(UTC)
        self.problem = ""
        self.failure_count = 0
        self._settings = settings
        self._pool = pool
        self._seen = self._files()
        self._loader: Worker | None = self._start_loader()  # it loads while the service itself starts

    async def load(self) -> None:
        """Wait for the first catalog; raise `AdvisorError` at the first mistake in the files."""
        self._put_in_force(await self._read())

    async def keep_fresh(self) -> None:
        """Check the files for changes every second, forever."""
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            await self.check()

    async def check(self) -> None:
        """Reload the catalog if a file was changed, added or removed; keep the old one if the files have a mistake."""
        seen, self._seen = self._seen, ()  # after an unexpected error, the next check reads the files again
        try:
            files = self._files()
            reply = None if files == seen else await self._read()
            self._seen = files
            if reply is not None:
                self._put_in_force(reply)
                _LOG.info("profiles and prices were reloaded")
        except (AdvisorError, OSError) as error:
            if str(error) != self.problem:
                self.failure_count += 1
                self.problem = str(error)
                _LOG.error("prices loaded at %s stay in force: %s", self.loaded_at.isoformat(" ", "seconds"), error)

    def _files(self) -> FileStates:
        return file_states(profiles=self._settings.profiles, prices=self._settings.prices)

    def _start_loader(self) -> Worker:
        """Start a separate process that loads the catalog, so that the memory for parsing is freed with it."""
        profiles, prices = self._settings.profiles, self._settings.prices
        named = {"profiles": str(profiles) if profiles else None, "prices": [*map(str, prices)]}
        loader = Worker(self._pool.fork_server)
        loader.send(Frame("load", json.dumps(named).encode()))
        return loader

    async def _read(self) -> Frame:
        loader, self._loader = self._loader or self._start_loader(), None
        try:
            async with asyncio.timeout(_LOAD_LIMIT_S):
                return await loader.ask()
        except (TimeoutError, WorkerDiedError):
            raise UsageError("profiles and prices could not be loaded", hint="see the log") from None
        finally:
            loader.end()

    def _put_in_force(self, reply: Frame) -> None:
        if reply.word == "refused":
            message, hint = json.loads(reply.body)
            raise UsageError(message, hint=hint)
        self._pool.set_catalog(reply.body)
        self.loaded_at, self.problem = datetime.now(UTC), ""
