"""Measures the start-up time, response time, request rate, memory growth and shutdown of `advise serve`.

    python scripts/bench_serve.py

Prints each figure with its limit, and exits with 1 if one is missed. The requests rank all offers for GPT-2 training;
no two are equal, since each has its own job size, batch size and cost limit. Client and service share this machine, so
the figures depend on its number of cores. If other processes are busy, the CPU time per request is more reliable than
the elapsed time.
"""

import argparse
import http.client
import itertools
import json
import math
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
ADVISE = str(Path(sys.executable).parent / "advise")
GPT2 = f"hf:{ROOT / 'examples' / 'configs' / 'gpt2.json'}"
MEDIAN_BAR_S, RATE_BAR_PER_S, GROWTH_BAR_RATIO, START_BAR_S = 0.060, 30.0, 0.10, 1.0
BATCHES = (8, 16, 32, 64)
STARTS, ONE_AT_A_TIME, UNDER_LOAD = 5, 100, 8
WARM_UP = 200
"""Number of requests after which Python and numpy have allocated their caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One figure and its limit."""

    what: str
    found: str
    bar: str
    is_met: bool

    def line(self) -> str:
        """Return the line to print."""
        return f"{'met   ' if self.is_met else 'MISSED'} {self.what}: {self.found} (bar: {self.bar})"


def main() -> None:
    """Measure and print; exit with 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000, help="number of requests (default: 10,000)")
    parser.add_argument("--connections", type=int, default=4, help="number of parallel connections (default: 4)")
    parser.add_argument("--most-minutes", type=float, default=8.0, help="stop sending requests after this many minutes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "gpt2.json"
        subprocess.run([ADVISE, "profile", GPT2, "--mode", "training", "-o", saved], check=True)
        workload = json.loads(saved.read_text())
    bodies = (body_of(workload, number) for number in itertools.count())
    bars = [
        startup(bodies),
        *request_load(
            bodies, connections=arguments.connections, count=arguments.requests, limit=arguments.most_minutes
        ),
        shutdown(bodies),
    ]
    print("\n".join(bar.line() for bar in bars))
    sys.exit(0 if all(bar.is_met for bar in bars) else 1)


def startup(bodies: Iterator[bytes]) -> Bar:
    """Measure the median time from the start of the command to the first recommendation."""
    found_s = [first_answer_s(next(bodies)) for _ in range(STARTS)]
    median_s = statistics.median(found_s)
    return Bar(
        what=f"start to the first answer, median of {STARTS}",
        found=f"{median_s:.2f} s [{min(found_s):.2f}-{max(found_s):.2f}]",
        bar=f"{START_BAR_S:g} s",
        is_met=median_s <= START_BAR_S,
    )


def request_load(bodies: Iterator[bytes], *, connections: int, count: int, limit: float) -> list[Bar]:
    """Measure the response time of sequential requests, then the rate and the memory growth of parallel ones."""
    with server() as (url, process):
        ask_all(url, bodies, count=WARM_UP, connections=connections)
        one_s = ask_all(url, bodies, count=ONE_AT_A_TIME, connections=1)
        before_bytes, before_cpu_s = memory_bytes(process.pid), cpu_s(process.pid)
        started_s = time.perf_counter()
        asked = len(ask_all(url, bodies, count=count, connections=connections, until_s=started_s + 60 * limit))
        rate_per_s = asked / (time.perf_counter() - started_s)
        growth_ratio = memory_bytes(process.pid) / before_bytes - 1
        cpu_per_request_s = (cpu_s(process.pid) - before_cpu_s) / asked
    median_s, cores = statistics.median(one_s), os.cpu_count()
    return [
        Bar(
            what=f"one at a time, median of {ONE_AT_A_TIME}",
            found=f"{median_s * 1e3:.0f} ms",
            bar=f"{MEDIAN_BAR_S * 1e3:.0f} ms",
            is_met=median_s <= MEDIAN_BAR_S,
        ),
        Bar(
            what=f"{connections} connections, {cores} cores, {cpu_per_request_s * 1e3:.0f} ms of CPU time per request",
            found=f"{rate_per_s:.1f} per second",
            bar=f"{RATE_BAR_PER_S:g}",
            is_met=rate_per_s >= RATE_BAR_PER_S,
        ),
        Bar(
            what=f"memory after {asked:,} requests",
            found=f"{before_bytes / 2**20:.0f} MiB {growth_ratio:+.1%}",
            bar=f"{GROWTH_BAR_RATIO:.0%}, {count:,} requests",
            is_met=growth_ratio <= GROWTH_BAR_RATIO and asked == count,
        ),
    ]


def shutdown(bodies: Iterator[bytes]) -> Bar:
    """Send SIGTERM while several requests are queued or running, and check that each is answered."""
    with server() as (url, process), ThreadPoolExecutor(UNDER_LOAD) as threads:
        asked = [threads.submit(is_answered, url, next(bodies)) for _ in range(UNDER_LOAD)]
        while f"advise_in_flight {UNDER_LOAD}.0" not in metrics(url) and not any(one.done() for one in asked):
            time.sleep(0.001)
        in_flight = UNDER_LOAD - sum(one.done() for one in asked)
        process.send_signal(signal.SIGTERM)
        answered = sum(one.result() for one in asked)
        code = process.wait()
    return Bar(
        what=f"SIGTERM with {in_flight} requests in flight",
        found=f"{answered} of {UNDER_LOAD} answered, exit code {code}",
        bar="all answered, exit code 0",
        is_met=answered == UNDER_LOAD and code == 0,
    )


def is_answered(url: str, body: bytes) -> bool:
    """Return whether the service answers the request with a recommendation."""
    try:
        ask(http.client.HTTPConnection(urlsplit(url).netloc), body)
    except (OSError, http.client.HTTPException, RefusedError):
        return False
    return True


def metrics(url: str) -> str:
    """Return the text of the service's metrics endpoint."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    connection.request("GET", "/metrics")
    return connection.getresponse().read().decode()


def body_of(workload: dict[str, Any], number: int) -> bytes:
    """Return a request that differs from all others in job size and cost limit, with a typical batch size."""
    options = {"samples": 1_000_000 + number, "batch": BATCHES[number % len(BATCHES)], "max_usd": 10_000 + number}
    return json.dumps({"workload": workload, "options": options}).encode()


@contextmanager
def server() -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Run the service on a free port; yield its URL and its process."""
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
        process.terminate()
        process.wait()


def first_answer_s(body: bytes) -> float:
    """Return the time from the start of the command to the first recommendation."""
    started_s = time.perf_counter()
    with server() as (url, _):
        ask(http.client.HTTPConnection(urlsplit(url).netloc), body)
        return time.perf_counter() - started_s


def ask_all(
    url: str, bodies: Iterator[bytes], *, count: int, connections: int, until_s: float = math.inf
) -> list[float]:
    """Send `count` requests, or as many as start before `until_s`; return the duration of each in seconds.

    A duration runs from the first byte sent to the last byte received.
    """
    took_s: list[float] = []
    lock = threading.Lock()
    numbers = iter(range(count))

    def client() -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        while time.perf_counter() < until_s:
            with lock:
                if next(numbers, None) is None:
                    return
                body = next(bodies)
            started_s = time.perf_counter()
            ask(connection, body)
            took_s.append(time.perf_counter() - started_s)

    with ThreadPoolExecutor(connections) as threads:
        for one in [threads.submit(client) for _ in range(connections)]:
            one.result()  # raises the client's exception
    return took_s


class RefusedError(Exception):
    """The service answered with an error."""


def ask(connection: http.client.HTTPConnection, body: bytes) -> None:
    """Send one request on a connection that stays open; raise an exception if it is not answered.

    The service closes connections that were idle for several seconds, which happens if this client is slowed down by a
    busy machine. The request is then repeated on a new connection, as browsers do.
    """
    for attempt in (1, 2):
        try:
            connection.request("POST", "/v1/recommend", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            break
        except (ConnectionError, http.client.BadStatusLine):
            connection.close()
            if attempt == 2:
                raise
    answer = response.read()
    if response.status != 200:
        raise RefusedError(f"{response.status}: {answer[:200]!r}")


def memory_bytes(pid: int) -> int:
    """Return the anonymous memory of a process and all its children; shared pages count once."""
    return sum(_proportional_kib(one) * 1024 for one in _with_children(pid))


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process and all its children have used so far."""
    ticks = 0
    for one in _with_children(pid):
        after_name = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(after_name[11]) + int(after_name[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _with_children(pid: int) -> Iterator[int]:
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield from _with_children(int(child))


def _proportional_kib(pid: int) -> int:
    found = re.search(r"^Pss_Anon:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), flags=re.MULTILINE)
    if found is None:
        raise RuntimeError(f"/proc has no memory figures for process {pid}")
    return int(found[1])


if __name__ == "__main__":
    main()
