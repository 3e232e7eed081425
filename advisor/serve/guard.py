"""Checks every request before it reaches a route: its host name, token, size and time."""

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, MutableMapping
from typing import Any

from advisor.serve.metrics import Metrics
from advisor.serve.page import page_files
from advisor.serve.problem import Problem
from advisor.serve.settings import Settings

_LOG = logging.getLogger(__name__)
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Message, _Receive, _Send], Coroutine[Any, Any, None]]

OPEN_PATHS = frozenset({"/healthz", *page_files()})
"""Paths that need no token; the page must load before its reader can enter one."""
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


class Guard:
    """ASGI middleware. A route may override any of the security headers."""

    def __init__(self, app: _App, *, settings: Settings, metrics: Metrics, paths: Collection[str]) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._paths = frozenset(paths)

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Refuse the request, or pass it on with its whole body; cancel it if the client disconnects."""
        if scope["type"] != "http":
            raise ValueError(f"unsupported connection type {scope['type']}")
        started_s = time.perf_counter()
        status = 500

        async def send_guarded(message: _Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _with_defaults(message.get("headers", ()))
            await send(message)

        try:
            body = self._stranger(scope) or await self._body(scope, receive)
            if isinstance(body, Problem):
                await _refuse(body, send_guarded)
            elif not await _until_disconnect(self._app(scope, _replay(body), send_guarded), receive):
                status = _CLIENT_GONE
        finally:
            self._metrics.answered(
                method=scope["method"] if scope["method"] in _METHODS else "other",
                path=scope["path"] if scope["path"] in self._paths else "other",
                status=status,
                seconds=time.perf_counter() - started_s,
            )

    def _stranger(self, scope: _Message) -> Problem | None:
        """Return why the request is refused because of its host name or token, or None."""
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if _without_port(host) not in self._settings.allowed_hosts:
            # A page of another site may point its own name at this address (DNS rebinding).
            hint = "start the service with --allow-host NAME"
            return Problem(status=421, code="unknown-host", message="unknown host name", hint=hint)
        token = self._settings.token
        if token is not None and scope["path"] not in OPEN_PATHS:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, f"Bearer {token}".encode()):
                hint = "send the header Authorization: Bearer TOKEN"
                return Problem(status=401, code="unauthorized", message="a token is required", hint=hint)
        return None

    async def _body(self, scope: _Message, receive: _Receive) -> bytes | Problem:
        """Return the whole body of a POST, or a problem if it is not JSON, too long or too slow to arrive."""
        if scope["method"] != "POST":
            return b""
        headers = dict(scope["headers"])
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if kind != b"application/json":
            hint = "send Content-Type: application/json"
            return Problem(status=415, code="not-json", message="the body must be JSON", hint=hint)
        limit = self._settings.body_bytes
        too_long = Problem(status=413, code="too-large", message=f"the body may have at most {limit:,} bytes")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 12 or int(length) > limit:
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


async def _until_disconnect(answer: Coroutine[Any, Any, None], receive: _Receive) -> bool:
    """Answer, and return True; return False if the client disconnects first."""
    answering, leaving = asyncio.create_task(answer), asyncio.create_task(_disconnected(receive))
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


async def _disconnected(receive: _Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _with_defaults(headers: Any) -> list[tuple[bytes, bytes]]:
    given = list(headers)
    names = {name.lower() for name, _ in given}
    defaults = ((name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items())
    return [*given, *((name, value) for name, value in defaults if name not in names)]


def _replay(body: bytes) -> _Receive:
    """Return a receive function that gives a route the whole body at once, then a disconnect."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> _Message:
        return next(messages, {"type": "http.disconnect"})

    return receive


async def _refuse(problem: Problem, send: _Send) -> None:
    body = problem.body()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if problem.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if problem.status in (408, 413):
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
