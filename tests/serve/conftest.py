"""A real server on a port of its own, stopped at the end, and the request that every test sends."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD = json.loads((ROOT / "advisor" / "serve" / "example_workload.json").read_text())


def children_of(pid: int) -> list[int]:
    """The processes whose parent that one is, in no order; zombies are none."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(stat.parent.name))
    return found


@dataclass
class Server:
    """`url` answers; `log` is what it said until then."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def address(self) -> tuple[str, int]:
        """For a socket."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 0

    def post(self, path: str, document: Any, **more: Any) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json=document, timeout=300, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=300, **more)

    def workers(self) -> list[int]:
        """The numbers of the worker processes."""
        return [worker for fork_server in self.fork_servers() for worker in children_of(fork_server)]

    def fork_servers(self) -> list[int]:
        """The number of the process that forks workers; none while it is started anew."""
        return children_of(self.process.pid)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=300)


@contextmanager
def serving(folder: Path, *flags: str, python: str = sys.executable) -> Iterator[Server]:
    """A server with `folder` as its working folder, and no configuration of this machine's user."""
    log = folder / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [python, "-m", "advisor", "serve", "--port", "0", "--workers", "1", *flags],
            cwd=folder,
            stderr=stream,
            text=True,
            env=os.environ | {"XDG_CONFIG_HOME": str(folder / "config")},
        )
    try:
        while not (found := re.search(r"serving on (\S+),", log.read_text())):
            assert process.poll() is None, log.read_text()
        yield Server(found[1], process, log)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("serve")) as started:
        yield started


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Any]:
    return lambda *flags: serving(tmp_path, *flags)
