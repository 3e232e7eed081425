"""Checks every request before it reaches a route, by host name, token, size and time, and counts it for Prometheus."""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Collection, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from advisor.serve.catalog_in_force import PricesInForce
from advisor.serve.page import page_files
from advisor.serve.pool import Pool
from advisor.serve.problem import Problem
from advisor.serve.settings import Settings

OPEN_PATHS = frozenset({"/healthz", *page_files()})
"""Paths that need no token; the page must load before its reader can enter one."""
_HEADERS_BY_STATUS = {
    401: {"www-authenticate": "Bearer"},
    408: {"connection": "close"},  # the rest of the body is not read
    413: {"connection": "close"},
}
_CLIENT_GONE = 499
"""Counted when the client closes the connection early; this status is never sent."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}


class Metrics:
    """The metrics of one service."""

    def __init__(self, *, prices: PricesInForce, pool: Pool) -> None:
        self._registry = CollectorRegistry()
        labels = ("method", "path", "status")
        self._requests = Counter("advise_requests", "Requests answered.", labels, registry=self._registry)
        self._seconds = Histogram(
            "advise_request_seconds",
            "Time from request to answer.",
            ("path",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        loaded_help = "Time at which the prices were loaded."
        stale_help = "1 if a later edit has a mistake and older prices are in force."
        replaced_help = "Workers replaced because they were killed, timed out or lost their client."
        for name, help_text, read in (
            ("prices_loaded_timestamp_seconds", loaded_help, lambda: prices.loaded_at.timestamp()),
            ("prices_stale", stale_help, lambda: float(bool(prices.problem))),
            ("prices_failed_loads", "Edits of price files that had a mistake.", lambda: float(prices.failure_count)),
            ("in_flight", "Requests waiting or in progress.", lambda: float(pool.pending_count)),
            ("workers_alive", "Workers alive.", lambda: float(pool.living_count)),
            ("workers_replaced", replaced_help, lambda: float(pool.died_count)),
        ):
            Gauge(f"advise_{name}", help_text, registry=self._registry).set_function(read)

    def answered(self, *, method: str, path: str, status: int, seconds: float) -> None:
        """Count one answer; `path` must be from a small set, such as the routes and "other"."""
        self._requests.labels(method, path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        return generate_latest(self._registry)


class Guard:
    """ASGI middleware. A route may override any of the security headers."""

    def __init__(self, app: ASGIApp, *, settings: Settings, metrics: Metrics, paths: Collection[str]) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on with its whole body; cancel it if the client disconnects."""
        if scope["type"] != "http":
            raise ValueError(f"unsupported connection type {scope['type']}")
        started_s = time.perf_counter()
        status = 500

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            body = self._access_problem(scope) or await self._body(scope, receive)
            if isinstance(body, Problem):
                await refusal(body, headers=_HEADERS_BY_STATUS.get(body.status))(scope, receive, send_guarded)
            elif not await _until_disconnect(self._app(_as_get(scope), _replay(body), send_guarded), receive):
                status = _CLIENT_GONE
        finally:
            self._metrics.answered(
                method=scope["method"] if scope["method"] in _METHODS else "other",
                path=scope["path"] if scope["path"] in self._paths else "other",
                status=status,
                seconds=time.perf_counter() - started_s,
            )

    def _access_problem(self, scope: Scope) -> Problem | None:
        """Return why the request is refused because of its host name or token, or None."""
        headers = Headers(scope=scope)
        if _without_port(headers.get("host", "").lower()) not in self._settings.allowed_hosts:
            # A page of another site may point its own name at this address (DNS rebinding).
            hint = "start the service with --allow-host NAME"
            return Problem(status=421, code="unknown-host", message="unknown host name", hint=hint)
        token = self._settings.token
        if token is not None and scope["path"] not in OPEN_PATHS:
            given = headers.get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(given, f"Bearer {token}".encode()):
                hint = "send the header Authorization: Bearer TOKEN"
                return Problem(status=401, code="unauthorized", message="a token is required", hint=hint)
        return None

    async def _body(self, scope: Scope, receive: Receive) -> bytes | Problem:
        """Return the whole body of a POST, or a problem if it is not JSON, too long or too slow to arrive."""
        if scope["method"] != "POST":
            return b""
        headers = Headers(scope=scope)
        if headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            hint = "send Content-Type: application/json"
            return Problem(status=415, code="not-json", message="the body must be JSON", hint=hint)
        limit = self._settings.body_bytes
        too_long = Problem(status=413, code="too-large", message=f"the body may have at most {limit:,} bytes")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or len(length) > 12 or int(length) > limit:
            return too_long
        too_slow = Problem(status=408, code="too-slow", message="the body did not arrive in time")
        parts = bytearray()
        try:
            async with asyncio.timeout(self._settings.body_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return too_slow
                    parts += message.get("body", b"")
                    if len(parts) > limit:
                        return too_long
                    if not message.get("more_body", False):
                        return bytes(parts)
        except TimeoutError:
            return too_slow


def _as_get(scope: Scope) -> Scope:
    """Turn HEAD into GET, which has the same answer (RFC 9110, 9.3.2); the server sends it without its body."""
    return {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope


def refusal(problem: Problem, *, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response that tells a client what is wrong."""
    return Response(problem.body(), problem.status, headers, media_type="application/json")


async def _until_disconnect(answer: Awaitable[None], receive: Receive) -> bool:
    """Answer, and return True; return False if the client disconnects first."""
    answering, leaving = asyncio.ensure_future(answer), asyncio.create_task(_disconnected(receive))
    leaving.add_done_callback(lambda _: answering.cancel())
    try:
        await answering
    except asyncio.CancelledError:
        if not leaving.done():
            raise  # the service is stopping
        return False
    finally:
        leaving.cancel()
    return True


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _replay(body: bytes) -> Receive:
    """Return a receive function that gives a route the whole body at once, then a disconnect."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Message:
        return next(messages, {"type": "http.disconnect"})

    return receive


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
