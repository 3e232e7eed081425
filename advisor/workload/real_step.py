"""Says why a step runs for real: in the workload, and to a watchdog in another thread while it runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from advisor.workload.user_error import line_of, summary_line

SMALLER_STEP_HINT = "trace a smaller configuration, or avoid .item(), .tolist() and branches on values in the step"
_running: list[str] = []
"""Why the steps that run now run for real; those that a trace calls inside its own are last."""


def real_step_note(error: Exception | None) -> str:
    """Return the note of a workload traced by a real step, after the step on fake tensors ended in this error."""
    line = line_of(error) if error is not None else ""
    return (
        "traced by a real step on this CPU, because the code needs values that fake tensors do not have"
        + (f" ({line})" if line else "")
        + ". Where it branches on values, only the path that these weights and inputs take is counted"
    )


@contextmanager
def running_for_real(error: Exception | None) -> Iterator[None]:
    """Let `real_step_reason` return that the step inside runs for real because of this error."""
    lines = ["the step runs for real on this CPU, which takes longer"]
    if error is not None:
        line = line_of(error)
        lines[0] += f", because tracing it on fake tensors failed: {summary_line(error)}"
        lines += [f"  {line}"] if line else []
    _running.append("\n".join(lines))
    try:
        yield
    finally:
        _running.pop()


def real_step_reason() -> str:
    """Return why a step runs for real now, with the line that failed on fake tensors; "" if none does."""
    return _running[-1] if _running else ""
