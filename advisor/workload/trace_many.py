"""Traces many requests, from the cache or in several child processes in parallel.

A source that crashes or hangs affects only its own request; its child is replaced.
"""

import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from typing import Any, TypeAlias

from advisor.errors import AdvisorError, UsageError
from advisor.records.workload import Workload
from advisor.workload import trace_cache
from advisor.workload.file import workload_from_json
from advisor.workload.sources import has_scheme
from advisor.workload.spawn import ChildFailure, ProfileRequest, SourceDiedError, SourceProcess

Outcome: TypeAlias = Workload | AdvisorError | ChildFailure
OnProgress: TypeAlias = Callable[[int, int], None]
"""Called with the number of finished requests and the number of all requests."""
_POLL_S = 0.1


def trace_many(
    requests: Iterable[ProfileRequest], *, on_progress: OnProgress | None = None
) -> dict[ProfileRequest, Outcome]:
    """Trace each distinct request once, with one child per CPU core that this process may use.

    Return each request's Workload, or the error that it raised.
    """
    wanted = tuple(dict.fromkeys(requests))
    outcomes: dict[ProfileRequest, Outcome] = {}
    missing = []
    for request in wanted:
        known = trace_cache.read(request)
        if known is None:
            missing.append(request)
        else:
            outcomes[request] = known
    if missing:
        with closing(_outcomes(missing)) as found:
            for request, outcome in found:
                outcomes[request] = outcome
                if on_progress is not None:
                    on_progress(len(outcomes), len(wanted))
        trace_cache.forget_oldest()
    return {request: outcomes[request] for request in wanted}


def workload_of(outcome: Outcome) -> Workload:
    """Return the Workload, or raise the error; of a bug of our own only the last line of its traceback."""
    if isinstance(outcome, ChildFailure):
        raise UsageError(str(outcome).strip().splitlines()[-1])
    if isinstance(outcome, AdvisorError):
        raise outcome
    return outcome


def _outcomes(requests: Sequence[ProfileRequest]) -> Generator[tuple[ProfileRequest, Outcome], None, None]:
    """Yield each request with its outcome, in order of completion; closing the generator ends all children at once."""
    is_over = threading.Event()
    workers = [_Worker(is_over=is_over) for _ in range(min(_usable_cpu_count(), len(requests)))]
    idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def trace(request: ProfileRequest) -> Outcome:
        worker = idle.get()
        try:
            return worker.trace(request)
        finally:
            idle.put(worker)

    pool = ThreadPoolExecutor(len(workers))
    running = {pool.submit(trace, request): request for request in requests}
    try:
        for future in as_completed(running):
            yield running[future], future.result()
    finally:
        is_over.set()
        pool.shutdown(wait=False, cancel_futures=True)
        while not all(future.done() for future in running):
            for worker in workers:
                worker.kill()
            time.sleep(_POLL_S)
        for worker in workers:
            worker.close()


class _Worker:
    """Drives one child, and replaces it when it has ended or has run a user's file, which may have changed anything."""

    def __init__(self, *, is_over: threading.Event) -> None:
        self._is_over = is_over
        self._child: SourceProcess | None = None

    def trace(self, request: ProfileRequest) -> Outcome:
        """Trace the request and cache the Workload; return it, or the error."""
        try:
            request.check()
            message = self._ask(request)
            workload = workload_from_json(message["workload"], where=request.source)
        except (AdvisorError, ChildFailure) as error:
            return error
        trace_cache.write(request, message["workload"], dependencies=message["dependencies"])
        return workload

    def kill(self) -> None:
        """Kill the child, even while another thread waits for its answer."""
        if self._child is not None:
            self._child.kill()

    def close(self) -> None:
        """End the child, if there is one."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def _ask(self, request: ProfileRequest) -> dict[str, Any]:
        is_used = self._child is not None
        try:
            return self._ask_once(request)
        except SourceDiedError:
            if not is_used or self._is_over.is_set():
                raise
        # Earlier requests may have filled the child's memory, so the source is tried again in a fresh one.
        return self._ask_once(request)

    def _ask_once(self, request: ProfileRequest) -> dict[str, Any]:
        child = self._child = self._child or SourceProcess.start(thread_count=1)
        try:
            child.ask(request)
            return child.answer()
        finally:
            if not child.is_ready or not has_scheme(request.source):
                self.close()


def _usable_cpu_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
