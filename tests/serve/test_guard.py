"""The guard before a route that repeats what it gets."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from advisor.serve.guard import SECURITY_HEADERS, Guard, Metrics
from advisor.serve.settings import Settings

SETTINGS = Settings(body_bytes=100, body_s=0.05)
JSON = {"content-type": "application/json"}


class Prices:
    """Stands in for `PricesInForce` and `Pool`."""

    loaded_at = datetime(2026, 11, 1, tzinfo=UTC)
    problem = ""
    failure_count = died_count = pending_count = 0
    living_count = count = 1


async def echo(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    headers = [(b"content-type", b"application/json"), (b"x-frame-options", b"SAMEORIGIN")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": message.get("body", b"")})


def guarded(settings: Settings = SETTINGS, app: Any = echo) -> Guard:
    metrics = Metrics(prices=Prices(), pool=Prices())  # type: ignore[arg-type]
    return Guard(app, settings=settings, metrics=metrics, paths=["/v1/recommend", "/healthz"])


def scope_of(method: str) -> Any:
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    return {"type": "http", "method": method, "path": "/v1/recommend", "headers": headers}


def messages(*given: Any) -> Callable[[], Awaitable[Any]]:
    """Return a receive function that gives these messages, then waits."""
    left = iter(given)

    async def receive() -> Any:
        for message in left:
            return message
        return await asyncio.Event().wait()

    return receive


async def discard(_: Any) -> None:
    pass


def run(ask: Callable[[httpx.AsyncClient], Awaitable[Any]], guard: Guard | None = None) -> Any:
    async def main() -> Any:
        transport = httpx.ASGITransport(app=guard or guarded())
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as client:
            return await ask(client)

    return asyncio.run(main())


def error_of(response: httpx.Response) -> dict[str, str]:
    error: dict[str, str] = json.loads(response.content)["error"]
    assert error["message"]
    return error


def test_a_body_within_the_limit_passes_with_security_headers() -> None:
    response = run(lambda client: client.post("/v1/recommend", content=b"x" * 100, headers=JSON))
    assert response.status_code == 200
    assert response.content == b"x" * 100
    for name, value in SECURITY_HEADERS.items():
        assert response.headers[name] == ("SAMEORIGIN" if name == "x-frame-options" else value), "a route's own wins"


def test_a_body_that_says_it_is_too_long_is_refused_unread() -> None:
    response = run(lambda client: client.post("/v1/recommend", content=b"x" * 101, headers=JSON))
    assert response.status_code == 413
    assert response.headers["connection"] == "close"
    assert "100 bytes" in error_of(response)["message"]


def test_a_body_in_parts_is_refused_once_it_is_too_long() -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b"x" * 10

    response = run(lambda client: client.post("/v1/recommend", content=parts(), headers=JSON))
    assert response.status_code == 413


def test_a_length_that_is_none_is_refused() -> None:
    headers = {**JSON, "content-length": "1e9"}
    assert run(lambda client: client.post("/v1/recommend", content=b"{}", headers=headers)).status_code == 413


def test_a_body_that_does_not_arrive_is_not_waited_for() -> None:
    statuses = []

    async def keep(message: Any) -> None:
        statuses.append(message.get("status"))

    asyncio.run(guarded()(scope_of("POST"), messages(), keep))
    assert statuses[0] == 408


def test_a_body_that_is_not_json_is_refused() -> None:
    # A form of another site's page cannot send this type without asking first.
    for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}):
        response = run(lambda client, headers=headers: client.post("/v1/recommend", content=b"{}", headers=headers))
        assert response.status_code == 415


def test_a_host_that_is_not_ours_is_refused() -> None:
    for host in ("evil.example", "evil.example:8000", "localhost.evil.example", "", "127.0.0.1.evil.example:8000"):
        response = run(lambda client, host=host: client.get("/healthz", headers={"host": host}))
        assert response.status_code == 421, host
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:99", "[::1]:8000", "[::1]"):
        assert run(lambda client, host=host: client.get("/healthz", headers={"host": host})).status_code == 200, host


def test_with_a_token_only_health_is_answered_without() -> None:
    guard = guarded(replace(SETTINGS, token="0123456789abcdef"))
    wrong = ("", "Bearer", "Bearer wrong", "Basic 0123456789abcdef", "Bearer 0123456789abcdeF", "bearer é")
    for given in wrong:
        headers = {"authorization": given.encode()}
        response = run(lambda client, headers=headers: client.get("/v1/devices", headers=headers), guard)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
    right = {"authorization": "Bearer 0123456789abcdef"}
    assert run(lambda client: client.get("/v1/devices", headers=right), guard).status_code == 200
    assert run(lambda client: client.get("/healthz"), guard).status_code == 200


def test_an_answer_is_given_up_once_its_client_has_gone() -> None:
    ended = []

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(scope["path"])

    guard = guarded(app=endless)
    asyncio.run(guard(scope_of("GET"), messages({"type": "http.request"}, {"type": "http.disconnect"}), discard))
    assert ended == ["/v1/recommend"]
    assert 'method="GET",path="/v1/recommend",status="499"} 1.0' in guard._metrics.text().decode()


def test_half_a_body_of_a_client_that_has_gone_is_not_worked_on() -> None:
    asked = []

    async def note(scope: Any, receive: Any, send: Any) -> None:
        asked.append(await receive())

    parts = ({"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"})
    asyncio.run(guarded(app=note)(scope_of("POST"), messages(*parts), discard))
    assert asked == []


def test_a_service_that_ends_ends_its_answers() -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def endless(scope: Any, receive: Any, send: Any) -> None:
            begun.set()
            await asyncio.Event().wait()

        answering = asyncio.create_task(guarded(app=endless)(scope_of("GET"), messages(), discard))
        await begun.wait()
        answering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answering

    asyncio.run(main())


def test_answers_are_counted_by_few_paths_and_methods() -> None:
    guard = guarded()
    run(lambda client: client.get("/v1/recommend"), guard)
    run(lambda client: client.request("BREW", "/any/thing"), guard)
    text = guard._metrics.text().decode()
    assert 'advise_requests_total{method="GET",path="/v1/recommend",status="200"} 1.0' in text
    assert 'advise_requests_total{method="other",path="other",status="200"} 1.0' in text
