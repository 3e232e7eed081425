"""Writes the sentences about steps that were measured on this machine."""

from collections.abc import Iterable, Iterator

from advisor import units
from advisor.records.answer import MeasuredStep
from advisor.report.interval_text import interval_text

_TWOFOLD = 2.0


def measured_notes(steps: Iterable[MeasuredStep]) -> Iterator[str]:
    """Yield, for each step, its time, the wait for data, and the effect on predictions for other devices."""
    for step in steps:
        yield (
            f"measured here: a step at batch {step.batch:,} in {step.precision} takes "
            f"{interval_text(step.step_s)} on {step.device.name} ({step.step_count:,} steps); predicted: "
            f"{interval_text(step.predicted_s)}, {_difference(step.predicted_s.mid / step.step_s.mid)}."
        )
        if step.loader_wait_s is not None:
            yield f"between two steps, the device waited {units.format_duration(step.loader_wait_s)} for data."
        yield _carried(step)


def _carried(step: MeasuredStep) -> str:
    if step.device.kind == "cpu":
        return "a CPU's prediction error does not transfer to other devices, so their predictions are unchanged."
    return f"predictions for GPUs with the same bottleneck were adjusted: {_difference(step.carried_ratio)}."


def _difference(ratio: float) -> str:
    """Return "20 % less", or "3.1x less" beyond a factor of two."""
    times = max(ratio, 1 / ratio)
    amount = units.format_times(times) if times >= _TWOFOLD else units.format_ratio(abs(ratio - 1))
    return f"{amount} {'more' if ratio > 1 else 'less'}"
