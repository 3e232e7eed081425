"""uvicorn in this process, with limits that a test can wait for."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import uvicorn

from advisor.serve.connection import bounded_by
from advisor.serve.settings import Settings

PATIENT = Settings(head_s=600, write_s=600, connection_count=100)
REQUEST = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
BIG = bytes(20_000_000)
"""More than the buffers of a connection hold."""


class Client:
    """A connection of which nothing is read unless a test says so."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def is_closed(self) -> bool:
        """Waits for the end of what the server sends; fails by never coming back."""
        with suppress(ConnectionError):
            while await self.reader.read(100_000):
                pass
        return True

    async def status(self) -> int:
        self.writer.write(REQUEST)
        return int((await self.reader.readuntil(b"\r\n\r\nok")).split()[1])


async def answer(scope: Any, receive: Any, send: Any) -> None:
    body = BIG if scope["path"] == "/big" else b"ok"
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def run(check: Callable[[Callable[[], Awaitable[Client]], uvicorn.Server], Awaitable[None]], limits: Settings) -> None:
    async def main() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            answer, http=bounded_by(limits), ws="none", lifespan="off", log_config=None, timeout_keep_alive=600
        )
        server = uvicorn.Server(config)
        clients: list[Client] = []

        async def connect() -> Client:
            clients.append(Client(*await asyncio.open_connection(*listener.getsockname())))
            return clients[-1]

        serving = asyncio.create_task(server._serve([listener]))  # without its handlers of signals
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            await check(connect, server)
        finally:
            for client in clients:
                client.writer.transport.abort()
            server.should_exit = True
            await serving

    asyncio.run(main())


def test_a_connection_on_which_no_request_begins_is_closed() -> None:
    async def check(connect: Any, _: uvicorn.Server) -> None:
        assert await (await connect()).is_closed()

    run(check, replace(PATIENT, head_s=0.05))


def test_a_head_that_comes_letter_by_letter_is_not_waited_for() -> None:
    async def check(connect: Any, _: uvicorn.Server) -> None:
        client = await connect()
        closed = asyncio.create_task(client.is_closed())
        client.writer.write(b"GET / HTTP/1.1\r\nhost: ")
        while not closed.done():
            client.writer.write(b"x")
            await asyncio.sleep(0.01)

    run(check, replace(PATIENT, head_s=0.1))


def test_after_an_answer_the_next_head_is_waited_for_as_long_and_no_longer() -> None:
    async def check(connect: Any, server: uvicorn.Server) -> None:
        client = await connect()
        assert await client.status() == 200
        server.config.http_protocol_class.limits = replace(PATIENT, head_s=0.05)  # from the second answer on
        assert await client.status() == 200
        client.writer.write(REQUEST[:9])
        assert await client.is_closed()

    run(check, PATIENT)


def test_silent_connections_make_room_for_those_that_ask() -> None:
    async def check(connect: Any, server: uvicorn.Server) -> None:
        silent = [await connect() for _ in range(20)]
        assert await (await connect()).status() == 200
        assert [await client.is_closed() for client in silent[:18]] == [True] * 18
        assert len(server.server_state.connections) <= 3

    run(check, replace(PATIENT, connection_count=3))


def test_an_answer_that_is_not_read_is_given_up() -> None:
    async def check(connect: Any, server: uvicorn.Server) -> None:
        client = await connect()
        client.writer.write(REQUEST.replace(b"/ ", b"/big ") * 3)
        while not server.server_state.total_requests:
            await asyncio.sleep(0.01)
        while server.server_state.connections:
            await asyncio.sleep(0.01)
        assert await (await connect()).status() == 200

    run(check, replace(PATIENT, write_s=0.05))


def test_an_answer_that_is_read_in_time_arrives_whole() -> None:
    async def check(connect: Any, _: uvicorn.Server) -> None:
        client = await connect()
        client.writer.write(REQUEST.replace(b"/ ", b"/big ") * 2)
        for _ in range(2):
            await client.reader.readuntil(b"\r\n\r\n")
            assert await client.reader.readexactly(len(BIG)) == BIG
        assert await client.status() == 200

    run(check, PATIENT)


def test_what_is_not_http_after_an_answer_closes_the_connection() -> None:
    async def check(connect: Any, _: uvicorn.Server) -> None:
        client = await connect()
        client.writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
        assert (await client.reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        client.writer.write(b"no chunk\r\n")
        assert await client.is_closed()

    run(check, PATIENT)
