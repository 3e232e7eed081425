"""Clients that speak no HTTP, speak it badly or do not listen, and workers that are killed, against one real server."""

import json
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

import httpx
import pytest

from tests.reliability.attack import Attack
from tests.serve.conftest import WORKLOAD, Server, serving
from tests.serve.mutations import broken_requests
from tests.serve.test_service import until

pytestmark = pytest.mark.slow

REQUEST = {"workload": WORKLOAD, "options": {"provider": ["lambda"]}}
BODY = json.dumps(REQUEST).encode()
MOST_LOG_BYTES = 100_000
"""Each place logs 20 times a minute; an attack may last some minutes."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path, "--workers", "2", "--time-limit", "10m") as started:
        yield started


def head(chance: Random, *more: str, path: str | None = None, method: str = "POST") -> bytes:
    path = path or chance.choice(["/v1/recommend", "/v1/explain", "/page/report"])
    lines = (f"{method} {path} HTTP/1.1", "host: localhost", "content-type: application/json", *more)
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def posted(chance: Random, body: bytes = BODY) -> bytes:
    return head(chance, f"content-length: {len(body)}") + body


def garbage(chance: Random) -> bytes:
    return chance.randbytes(chance.randrange(1, 5_000))


def silence(_: Random) -> bytes:
    return b""


def half_a_head(chance: Random) -> bytes:
    whole = head(chance, "content-length: 9")
    return whole[: chance.randrange(1, len(whole) - 1)]


def a_huge_head(chance: Random) -> bytes:
    return head(chance, *(f"x-{i}: {'y' * chance.randrange(2_000)}" for i in range(chance.randrange(10, 200))))


def a_wrong_length(chance: Random) -> bytes:
    lengths = ["-1", "1e9", "9" * 40, "0x10", "5, 6", "", "\xb2", "+3", "4194305", "1\x00", str(len(BODY) + 10)]
    return head(chance, f"content-length: {chance.choice(lengths)}") + BODY


def torn_chunks(chance: Random) -> bytes:
    whole = head(chance, "transfer-encoding: chunked") + b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"
    cut = chance.randrange(len(whole))
    return chance.choice([whole[:cut], whole[:cut] + chance.randbytes(50), whole[:cut] + b"\r\nffffffffff\r\n"])


def a_pipeline(chance: Random) -> bytes:
    asked = chance.choice([posted(chance), head(chance, path="/v1/devices", method="GET")])
    return asked * chance.randrange(2, 30)


def a_question(chance: Random) -> bytes:
    return posted(chance)


def a_slow_body(chance: Random) -> bytes:
    whole = posted(chance)
    return whole[: -chance.randrange(1, len(BODY))]


def a_wrong_host(chance: Random) -> bytes:
    host = chance.choice(
        ["evil.example", "localhost.evil.example", "", "[", "127.0.0.1:1:1", "\xe9", "::1", "a" * 9_000]
    )
    return posted(chance).replace(b"host: localhost", b"host: " + host.encode("latin-1"))


def control_characters(chance: Random) -> bytes:
    bad = "".join(chance.choice("\x00\x01\n\r\x1b\x7f\x85\u2028") for _ in range(chance.randrange(1, 20)))
    forged = f"{bad}2031-01-01 00:00:00,000 ERROR forged"
    place = chance.choice(["key", "name", "option", "path", "header"])
    if place == "path":
        return head(chance, path=f"/v1/{forged}".encode().decode("latin-1"), method="GET")
    if place == "header":
        return head(chance, f"x: {forged}".encode().decode("latin-1"), method="GET")
    document = {
        "key": REQUEST | {forged: 1},
        "name": {"workload": WORKLOAD | {"name": forged}},
        "option": REQUEST | {"options": {"device": forged}},
    }[place]
    return posted(chance, json.dumps(document).encode())


def a_broken_body(chance: Random) -> bytes:
    (body,) = broken_requests({"workload": WORKLOAD}, count=1, seed=chance.randrange(2**32))
    return posted(chance, body)


ATTACKERS: tuple[Callable[[Random], bytes], ...] = (
    garbage, silence, half_a_head, a_huge_head, a_wrong_length, torn_chunks, a_pipeline, a_question, a_slow_body,
    a_wrong_host, control_characters, a_broken_body,
)  # fmt: skip
ANSWERED = (a_wrong_host, control_characters, a_broken_body, a_question)
"""Requests that are whole, so that an answer can be waited for."""


def is_well(server: Server, expected: bytes) -> None:
    answer = server.post("/v1/recommend", REQUEST)
    assert (answer.status_code, answer.content) == (200, expected)
    health = server.get("/healthz")
    assert (health.status_code, health.json()["status"], health.json()["workers"]) == (200, "ok", 2), health.text
    assert server.log.stat().st_size < MOST_LOG_BYTES
    assert "\n2031" not in server.log.read_text()


def connected(server: Server, held: ExitStack) -> socket.socket:
    return held.enter_context(socket.create_connection(server.address, timeout=300))


def test_raw_http(attack: Attack, server: Server) -> None:
    expected = server.post("/v1/recommend", REQUEST).content

    def check(chance: Random) -> None:
        with ExitStack() as held:
            for _ in range(chance.randrange(1, 12)):
                attacker = chance.choice(ATTACKERS)
                client = connected(server, held)
                with suppress(OSError):  # refused before all was sent
                    client.sendall(attacker(chance))
                if attacker in ANSWERED and chance.random() < 0.5:
                    with suppress(ConnectionError):
                        status = client.recv(12).decode()
                        assert status[:9] == "HTTP/1.1 ", (attacker.__name__, status)
                        assert status[9:] in "200 400 413 421 422 404 405", (attacker.__name__, status)
                if chance.random() < 0.5:
                    client.close()
            is_well(server, expected)

    attack.each(check)
    until(lambda: "advise_in_flight 0.0" in server.get("/metrics").text)
    assert "advise_workers_alive 2.0" in server.get("/metrics").text
    assert server.stop() == 0


def test_floods_of_connections(attack: Attack, server: Server) -> None:
    expected = server.post("/v1/recommend", REQUEST).content

    def check(chance: Random) -> None:
        attacker = chance.choice([silence, half_a_head, a_slow_body, a_pipeline])
        with ExitStack() as held:
            for _ in range(chance.randrange(300, 500)):
                client = connected(server, held)
                with suppress(OSError):
                    client.sendall(attacker(chance)[:30_000])
            until(lambda: len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) < 400)
            until(lambda: server.post("/v1/recommend", REQUEST).status_code == 200)
        is_well(server, expected)

    attack.each(check, count=max(1, attack.count // 25))
    assert server.stop() == 0


def test_exhausted_files(attack: Attack, server: Server) -> None:
    expected = server.post("/v1/recommend", REQUEST).content
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (48, 48))

    def check(chance: Random) -> None:
        with ExitStack() as held:
            for _ in range(chance.randrange(100, 300)):
                connected(server, held)
            assert server.post("/v1/recommend", REQUEST).content == expected
        until(lambda: server.get("/healthz").json()["status"] == "ok")  # for want of files prices may not be read
        is_well(server, expected)

    attack.each(check, count=max(1, attack.count // 50))
    assert server.stop() == 0


def test_killed_workers(attack: Attack, server: Server) -> None:
    expected = server.post("/v1/recommend", REQUEST).content

    def ask(path: str) -> int:
        return server.post(path, REQUEST).status_code if path != "/v1/devices" else server.get(path).status_code

    def check(chance: Random) -> None:
        with ThreadPoolExecutor(6) as threads:
            paths = [chance.choice(["/v1/recommend", "/v1/devices", "/page/report"]) for _ in range(6)]
            asked = [threads.submit(ask, path) for path in paths]
            killed = set()
            for _ in range(chance.randrange(1, 5)):
                time.sleep(chance.random() * 0.2)
                victims = server.fork_servers() if chance.random() < 0.1 else server.workers()
                for pid in victims[: chance.randrange(1, 3)]:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        killed.add(pid)
            # One whose second worker was killed too is told so; all others are answered.
            statuses = [one.result() for one in asked]
        assert set(statuses) <= {200, 500}, statuses
        until(lambda: killed.isdisjoint([*server.fork_servers(), *server.workers()]))
        assert [server.post("/v1/recommend", REQUEST).content == expected for _ in range(3)] == [True] * 3
        server.get("/healthz")  # it sees those killed while idle, and has them replaced
        is_well(server, expected)

    attack.each(check, count=max(1, attack.count // 5))
    assert server.stop() == 0


def test_impatient_clients(attack: Attack, server: Server) -> None:
    expected = server.post("/v1/recommend", REQUEST).content

    def check(chance: Random) -> None:
        for _ in range(chance.randrange(5, 30)):
            with suppress(httpx.TimeoutException):
                httpx.post(f"{server.url}/v1/breakeven", json=REQUEST, timeout=chance.random() * 0.1 + 0.01)
        until(lambda: "advise_in_flight 0.0" in server.get("/metrics").text)
        is_well(server, expected)

    attack.each(check, count=max(1, attack.count // 20))
    assert server.stop() == 0
