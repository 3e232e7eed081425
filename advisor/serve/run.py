"""Runs the service until it is stopped."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

from advisor.errors import UsageError
from advisor.serve.catalog_in_force import PricesInForce
from advisor.serve.pool import Pool, pool_of
from advisor.serve.settings import Settings, answering_to, in_url

if TYPE_CHECKING:
    from advisor.serve.guard import Guard

_LOG = logging.getLogger(__name__)
_BACKLOG = 64
"""Connections in the kernel's queue; few enough that accepting all of them at once closes none unread."""
_IDLE_CONNECTION_S = 5
_LAST_ANSWERS_S = 5
"""Extra time for the answers in flight at shutdown, beyond the time limit of one answer."""


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is in flight; raise `AdvisorError` if it cannot start."""
    with (
        _listening(settings) as listener,
        _ending_on_sigterm(),
        pool_of(settings.worker_count, queue_count=settings.queue_count) as pool,
    ):
        settings = answering_to(settings, listener.getsockname()[0])
        # While this process imports FastAPI, the fork server starts, forks the first worker and reads the prices.
        prices = PricesInForce(settings, pool)
        asyncio.run(_serve(settings, listener=listener, pool=pool, prices=prices))


async def _serve(settings: Settings, *, listener: socket.socket, pool: Pool, prices: PricesInForce) -> None:
    from advisor.serve.app import make_app

    app = make_app(settings, pool=pool, prices=prices)
    try:
        await prices.load()
        pool.fill()  # only now, because starting the other workers earlier would delay the first answer
        await _answer(app, settings, listener=listener, prices=prices)
    finally:
        pool.close()


async def _answer(app: "Guard", settings: Settings, *, listener: socket.socket, prices: PricesInForce) -> None:
    import uvicorn

    from advisor.serve.connection import bounded_by

    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=bounded_by(settings),
            ws="none",
            lifespan="off",
            backlog=_BACKLOG,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=_IDLE_CONNECTION_S,
            timeout_graceful_shutdown=int(settings.time_limit_s) + _LAST_ANSWERS_S,
        )
    )
    host, port = listener.getsockname()[:2]
    _LOG.info("serving on http://%s:%d, %d workers", in_url(host), port, settings.worker_count)
    fresh = asyncio.create_task(prices.keep_fresh())
    try:
        await server.serve(sockets=[listener])
    finally:
        fresh.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await fresh


def _listening(settings: Settings) -> socket.socket:
    try:
        return socket.create_server(
            (settings.host, settings.port),
            family=socket.AF_INET6 if ":" in settings.host else socket.AF_INET,
            backlog=_BACKLOG,
        )
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise UsageError(f"{where}: cannot listen ({error.strerror})", hint="choose another --port or --host") from None


@contextlib.contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """Exit with code 0 on SIGTERM; uvicorn finishes the requests in flight, then raises the signal again."""

    def leave(_: int, __: FrameType | None) -> None:
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
