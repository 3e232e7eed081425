"""How fast the service answers and what memory it keeps: `python scripts/bench_serve.py [--requests 10000]`.

GPT-2 training over all offers, no two requests the same: each has its own job size, batch and limit. Everything runs on
this machine, the client included, so the figures hold for the cores that it has.
"""

import argparse
import http.client
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
ADVISE = str(Path(sys.executable).parent / "advise")
GPT2 = f"hf:{ROOT / 'examples' / 'configs' / 'gpt2.json'}"
MEDIAN_BAR_S, RATE_BAR_PER_S, GROWTH_BAR_RATIO, START_BAR_S = 0.060, 30.0, 0.10, 1.0
BATCHES = (8, 16, 32, 64)
WARM_UP = 200
"""Requests after which Python and numpy have what they need."""


def main() -> None:
    """Measure and print; exit with 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "gpt2.json"
        subprocess.run([ADVISE, "profile", GPT2, "--mode", "training", "-o", saved], check=True)
        workload = json.loads(saved.read_text())
        bodies = (body_of(workload, number) for number in itertools.count())
        starts_s = [first_answer_s(next(bodies)) for _ in range(3)]
        with server() as (url, process):
            ask_all(url, bodies, count=WARM_UP, connections=arguments.connections)
            median_s = statistics.median(ask_all(url, bodies, count=100, connections=1))
            before_bytes, before_cpu_s = memory_bytes(process.pid), cpu_s(process.pid)
            started_s = time.perf_counter()
            ask_all(url, bodies, count=arguments.requests, connections=arguments.connections)
            rate_per_s = arguments.requests / (time.perf_counter() - started_s)
            growth_ratio = memory_bytes(process.pid) / before_bytes - 1
            cpu_per_request_s = (cpu_s(process.pid) - before_cpu_s) / arguments.requests
    start_s = statistics.median(starts_s)
    before_mib, cores = before_bytes / 2**20, os.cpu_count()
    print(f"start to the first answer: {start_s:.2f} s (bar {START_BAR_S:g})")
    print(f"median of 100 one at a time: {median_s * 1e3:.0f} ms (bar {MEDIAN_BAR_S * 1e3:.0f})")
    print(f"{arguments.connections} connections, {cores} cores: {rate_per_s:.0f} a second (bar {RATE_BAR_PER_S:g})")
    print(f"CPU time of the service for each: {cpu_per_request_s * 1e3:.0f} ms")
    print(
        f"memory: {before_mib:.0f} MiB, {growth_ratio:+.1%} after {arguments.requests:,} (bar {GROWTH_BAR_RATIO:.0%})"
    )
    is_met = start_s <= START_BAR_S and median_s <= MEDIAN_BAR_S and rate_per_s >= RATE_BAR_PER_S
    sys.exit(0 if is_met and growth_ratio <= GROWTH_BAR_RATIO else 1)


def body_of(workload: dict[str, Any], number: int) -> bytes:
    """A request like no other: a batch that people train at, a job size and a limit of its own."""
    options = {"samples": 1_000_000 + number, "batch": BATCHES[number % len(BATCHES)], "max_usd": 10_000 + number}
    return json.dumps({"workload": workload, "options": options}).encode()


@contextmanager
def server() -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """The service on a free port."""
    process = subprocess.Popen([ADVISE, "serve", "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"serving on (\S+),", line):
                break
        else:
            raise RuntimeError("the service did not start")
        yield found[1], process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def first_answer_s(body: bytes) -> float:
    """From the start of the command to the first recommendation."""
    started_s = time.perf_counter()
    with server() as (url, _):
        ask(http.client.HTTPConnection(urlsplit(url).netloc), body)
        return time.perf_counter() - started_s


def ask_all(url: str, bodies: Iterator[bytes], *, count: int, connections: int) -> list[float]:
    """Seconds of each of `count` requests, from the first byte sent to the last received."""
    took_s: list[float] = []
    lock = threading.Lock()
    numbers = iter(range(count))

    def client() -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        while True:
            with lock:
                if next(numbers, None) is None:
                    return
                body = next(bodies)
            started_s = time.perf_counter()
            ask(connection, body)
            took_s.append(time.perf_counter() - started_s)

    threads = [threading.Thread(target=client) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(took_s) != count:
        raise RuntimeError(f"{count - len(took_s)} of {count} requests failed")
    return took_s


def ask(connection: http.client.HTTPConnection, body: bytes) -> None:
    """One request on a connection that stays open; raises where it is not answered."""
    connection.request("POST", "/v1/recommend", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        raise RuntimeError(f"{response.status}: {answer[:200]!r}")


def memory_bytes(pid: int) -> int:
    """Resident memory of a process and of all its children."""
    return sum(int(_status(one, "VmRSS")) * 1024 for one in _with_children(pid))


def cpu_s(pid: int) -> float:
    """Processor time of a process and of all its children so far."""
    ticks = 0
    for one in _with_children(pid):
        after_name = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(after_name[11]) + int(after_name[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _with_children(pid: int) -> Iterator[int]:
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield from _with_children(int(child))


def _status(pid: int, name: str) -> str:
    found = re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return found[1] if found else "0"


if __name__ == "__main__":
    main()
