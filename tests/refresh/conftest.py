"""A local server that answers as it is told, and a client that does not wait."""

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from advisor.refresh.client import Client

SAMPLES = Path(__file__).parents[1] / "data/prices"


def sample(name: str) -> Any:
    return json.loads((SAMPLES / name).read_text())


@dataclass
class Answer:
    """`body` may be an iterable of chunks that is sent without a length; `claimed_length` is a lie about it.

    One `is_without_head` is sent in place of the status line and headers.
    """

    body: bytes | Iterable[bytes] = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    claimed_length: int | None = None
    is_without_head: bool = False


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


def json_answer(content: Any, **more: Any) -> Answer:
    return Answer(json.dumps(content).encode(), **more)


class Server:
    """Answers by path: the answers in order, the last one for ever."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._answers: dict[str, list[Answer]] = {}
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, path: str, *answers: Answer) -> str:
        self._answers[path] = list(answers)
        return f"{self.url}{path}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def next_answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        queue = self._answers.get(asked.path, [Answer(status=404)])
        answer = queue.pop(0) if len(queue) > 1 else queue[0]
        tag = answer.headers.get("ETag")
        return Answer(status=304) if tag and asked.headers.get("If-None-Match") == tag else answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *arguments: Any) -> None:
                pass

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name.title(): value for name, value in self.headers.items()}
                headers = {("ETag" if name == "Etag" else name): value for name, value in headers.items()}
                asked = Asked(self.command, parts.path, parse_qs(parts.query), headers, body)
                try:
                    self._send(server.next_answer(asked))
                except (BrokenPipeError, ConnectionResetError):  # the client has had enough
                    self.close_connection = True

            do_POST = do_GET  # noqa: N815 - http.server's name

            def _send(self, answer: Answer) -> None:
                if answer.is_without_head and not isinstance(answer.body, bytes):
                    for chunk in answer.body:
                        self.wfile.write(chunk)
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if isinstance(answer.body, bytes):
                    length = len(answer.body) if answer.claimed_length is None else answer.claimed_length
                    self.send_header("Content-Length", str(length))
                    self.end_headers()
                    self.wfile.write(answer.body)
                else:
                    self.end_headers()
                    for chunk in answer.body:
                        self.wfile.write(chunk)

        return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@dataclass
class Waits:
    """The seconds that the client would have waited."""

    seconds: list[float] = field(default_factory=list)

    def client(self) -> Client:
        return Client(sleep=self.seconds.append)


@pytest.fixture
def waits() -> Waits:
    return Waits()
