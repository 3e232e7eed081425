"""Times operators in a child process, so that the parent does not import torch."""

import json
import math
import os
import selectors
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import IO, Any

from advisor.errors import UsageError
from advisor.records.calibration import TimedOperator, Timings
from advisor.records.device import Precision
from advisor.records.machine import BUS_ORDER
from advisor.workload import supervisor

OnProgress = Callable[[int, int], None]
"""Called with the number of timed operators and the number planned."""
_WORKER = "advisor.calibrate.operator_worker"
_OVERTIME_S = 1.0
"""How long past its deadline the child may work on an operator before it is ended."""
_GRACE_S = 0.5
"""How long the child may take to exit after the end of its output."""
_COPY = "host_to_device_bytes_per_s"
_SLOWED: Mapping[str, float] = {"product_s": 0.6, "calls_s": 0.2}
"""How strongly an operator slows down with a matmul on all threads and with calls on one thread, as exponents. Fitted
on 95 operators timed five times on a virtual machine with shared cores, whose speed varies between 1 and 1.8 from one
second to the next. The correction reduces an operator's deviation from its mean from 0.16 to 0.11."""
_FIELDS = tuple(field.name for field in fields(TimedOperator))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingRequest:
    """A request to time operators on a device."""

    device: str
    """Torch's name of the device."""
    thread_count: int | None
    """Threads of a CPU; None on a GPU."""
    precisions: tuple[Precision, ...]
    budget_s: float


def time_operators(request: TimingRequest, *, on_progress: OnProgress | None = None) -> Timings:
    """Time as many operators as the budget allows; it includes the start of the child.

    A KeyboardInterrupt ends it with the operators timed so far, and is raised if there are none. Raises `UsageError`
    if nothing was timed, with the child's last message.
    """
    deadline_s = time.time() + request.budget_s
    lines: list[dict[str, Any]] = []
    is_interrupted = False
    with tempfile.TemporaryFile() as errors, _child(request, deadline_s=deadline_s, errors=errors) as process:
        try:
            for line in _lines(process, end_s=deadline_s + _OVERTIME_S):
                lines.append(line)
                if on_progress is not None:
                    on_progress(sum("name" in one for one in lines), lines[0]["planned_count"])
        except KeyboardInterrupt:
            is_interrupted = True
            if not any("name" in one for one in lines):
                raise
        if not any("name" in one for one in lines):
            raise _nothing_timed(request, process, errors)
    return replace(_timings(lines, is_cpu=request.device == "cpu"), is_interrupted=is_interrupted)


@contextmanager
def _child(request: TimingRequest, *, deadline_s: float, errors: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Run the child under its supervisor and end it afterwards; the terminal's interrupt reaches only the parent."""
    asked = {
        "device": request.device,
        "thread_count": request.thread_count,
        "precisions": request.precisions,
        "deadline_s": deadline_s,
    }
    threads = {} if request.thread_count is None else {"OMP_NUM_THREADS": str(request.thread_count)}
    process = supervisor.start(
        _WORKER, [json.dumps(asked)], stdout=subprocess.PIPE, stderr=errors, env=os.environ | BUS_ORDER | threads
    )
    try:
        yield process
    finally:
        supervisor.end(process)
        if process.stdout is not None:
            process.stdout.close()


def _lines(process: "subprocess.Popen[bytes]", *, end_s: float) -> Iterator[dict[str, Any]]:
    """Yield the child's lines until it ends or the time is over."""
    if process.stdout is None:
        raise ValueError("the child has no pipe")
    descriptor, buffer = process.stdout.fileno(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while (left_s := end_s - time.time()) > 0:
            if not selector.select(left_s):
                return
            chunk = os.read(descriptor, 2**20)
            if not chunk:
                return
            *whole, buffer = (buffer + chunk).split(b"\n")
            yield from map(json.loads, whole)


def _nothing_timed(request: TimingRequest, process: "subprocess.Popen[bytes]", errors: IO[bytes]) -> UsageError:
    """Return the error for an empty result, with the child's last message if it failed."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)
    errors.seek(0)
    said = errors.read().decode(errors="replace").strip()
    if process.poll() and said:
        return UsageError(
            f"{request.device} cannot be timed: {said.splitlines()[-1]}", hint="choose another device with --on"
        )
    return UsageError(
        f"no operator could be timed in {request.budget_s:g} s", hint="allow more time, such as --time-budget 10s"
    )


def _timings(lines: Sequence[dict[str, Any]], *, is_cpu: bool) -> Timings:
    """Collect the operators; on a CPU, correct their times to the machine's usual pace (not tried on a GPU)."""
    said = [line for line in lines if "name" in line]
    usual_s = {name: statistics.median(line[name] for line in said) for name in _SLOWED}
    operators = []
    for line in said:
        pace_ratio = math.prod((line[name] / usual_s[name]) ** share for name, share in _SLOWED.items())
        step_s = line["step_s"] / pace_ratio if is_cpu else line["step_s"]
        values = {name: line[name] for name in _FIELDS if name in line} | {"step_s": step_s}
        operators.append(TimedOperator(**values, pace_ratio=pace_ratio))
    return Timings(
        operators=tuple(operators),
        planned_count=lines[0]["planned_count"],
        others_cpu_count=said[-1]["others_cpu_count"],
        host_to_device_bytes_per_s=next((line[_COPY] for line in lines if _COPY in line), None),
    )
