"""Times operators in a child process, so that the parent does not import torch.

The child answers requests like `advisor.workload.trace_child`, each with the operators that it has timed in half a
second. These count even if the child ends early.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from advisor.errors import LoadError, UsageError
from advisor.records.calibration import TimedOperator, Timings
from advisor.records.device import Precision
from advisor.workload.spawn import ChildFailure, ProfileRequest, SourceProcess

OnProgress = Callable[[int, int], None]
"""Called with the number of timed operators and the number planned."""
_CHILD = "advisor.calibrate.operator_child"
_OVERTIME_S = 1.0
"""How long past its deadline the child may work on an operator before it is ended."""
_SLOWED: Mapping[str, float] = {"product_s": 0.6, "calls_s": 0.2}
"""How strongly an operator slows down with a matmul on all threads and with calls on one thread, as exponents. Fitted
on 95 operators timed five times on a virtual machine with shared cores, whose speed varies between 1 and 1.8 from one
second to the next. The correction reduces an operator's deviation from its mean from 0.16 to 0.11."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingRequest(ProfileRequest):
    """A request to time operators on a device."""

    source: str = "advise calibrate"
    device: str
    """Torch's name of the device."""
    thread_count: int | None
    """Threads of a CPU; None on a GPU."""
    precisions: tuple[Precision, ...]
    budget_s: float
    deadline_s: float = 0.0
    """End of the budget, in seconds since the epoch; set when the child is asked."""
    first: int = 0
    """Index of the first operator to time, of those planned."""


def time_operators(request: TimingRequest, *, on_progress: OnProgress | None = None) -> Timings:
    """Time as many operators as the budget allows; it includes the start of the child.

    A KeyboardInterrupt ends it with the operators timed so far, and is raised if there are none. Raises `UsageError`
    if nothing was timed, with the reason.
    """
    deadline_s = time.time() + request.budget_s
    timed: list[dict[str, Any]] = []
    answer: dict[str, Any] = {"planned_count": math.inf}
    is_interrupted = False
    process = SourceProcess.start(thread_count=request.thread_count, module=_CHILD, sees_gpus=request.device != "cpu")
    try:
        while (left_s := deadline_s - time.time()) > 0 and len(timed) < answer["planned_count"]:
            timeout_s = left_s + _OVERTIME_S
            process.ask(replace(request, deadline_s=deadline_s, first=len(timed), timeout_s=timeout_s))
            answer = process.answer()
            timed += answer["timed"]
            if on_progress is not None:
                on_progress(len(timed), answer["planned_count"])
    except KeyboardInterrupt:
        is_interrupted = True
        if not timed:
            raise
    except (LoadError, ChildFailure) as error:  # it has taken too long or failed; the operators so far count
        if not timed and time.time() < deadline_s:
            lines = str(error).strip().splitlines()
            reason = lines[-1] if isinstance(error, ChildFailure) else lines[0]  # of a traceback, the last
            raise UsageError(
                f"{request.device} cannot be timed: {reason}", hint="choose another device with --on"
            ) from error
    finally:
        process.close()
    if not timed:
        raise UsageError(
            f"no operator could be timed in {request.budget_s:g} s",
            hint=f"starting torch may have used up the time: allow more, such as {longer(request.budget_s)}",
        )
    return Timings(
        operators=tuple(_at_usual_pace(timed, is_cpu=request.device == "cpu")),
        planned_count=answer["planned_count"],
        others_cpu_count=answer["others_cpu_count"],
        host_to_device_bytes_per_s=answer["host_to_device_bytes_per_s"],
        is_interrupted=is_interrupted,
    )


def longer(budget_s: float) -> str:
    """Return the flag with three times the budget that was too short, in whole tens of seconds."""
    return f"--time-budget {math.ceil(3 * budget_s / 10) * 10}s"


def _at_usual_pace(timed: Sequence[dict[str, Any]], *, is_cpu: bool) -> Iterator[TimedOperator]:
    """Yield the operators; on a CPU, with times corrected to the machine's usual pace (not tried on a GPU)."""
    usual_s = {name: statistics.median(one["pace"][name] for one in timed) for name in _SLOWED}
    for one in timed:
        pace_ratio = math.prod((one["pace"][name] / usual_s[name]) ** share for name, share in _SLOWED.items())
        operator = TimedOperator(**one["operator"], pace_ratio=pace_ratio)
        yield replace(operator, step_s=operator.step_s / pace_ratio) if is_cpu else operator
