"""Steps that were timed here in, sentences out: how long they take, what was predicted, what others are told by it."""

from collections.abc import Iterable, Iterator

from advisor import units
from advisor.records.answer import MeasuredStep
from advisor.report.interval_text import interval_text

_TWOFOLD = 2.0


def measured_notes(steps: Iterable[MeasuredStep]) -> Iterator[str]:
    """One sentence for each step, one for what the device waited, one for the other devices."""
    for step in steps:
        yield (
            f"measured here: a step at batch {step.batch:,} in {step.precision} takes {step.device.name} "
            f"{interval_text(step.step_s)}, over {step.step_count:,} steps; predicted: "
            f"{interval_text(step.predicted_s)}, {_difference(step.predicted_s.mid / step.step_s.mid)}."
        )
        if step.loader_wait_s is not None:
            yield f"between two steps it waited {units.format_duration(step.loader_wait_s)} for its data."
        yield _carried(step)


def _carried(step: MeasuredStep) -> str:
    if step.device.kind == "cpu":
        return "what a CPU's prediction is off by does not carry to other devices, so theirs stay as they are."
    return f"by that, predictions for GPUs that the same resource bounds became {_difference(step.carried_ratio)}."


def _difference(ratio: float) -> str:
    """ "20 % less", and beyond twofold "3.1x less"."""
    times = max(ratio, 1 / ratio)
    amount = units.format_times(times) if times >= _TWOFOLD else units.format_ratio(abs(ratio - 1))
    return f"{amount} {'more' if ratio > 1 else 'less'}"
