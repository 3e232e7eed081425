"""Makes the headline and tables of a comparison, for all its formats."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from advisor import units
from advisor.records.change import Change, Comparison, InstanceChange, Measure, ModuleChange

_NAMES: Mapping[Measure, str] = {
    "flops": "FLOP per step",
    "moved_bytes": "bytes read and written",
    "parameter_count": "parameters",
    "peak_memory_bytes": "peak memory, as traced",
    "step_s": "step",
    "ttft_s": "time to first token",
    "tpot_s": "time per output token",
    "usd_per_million_tokens": "price per million tokens",
    "usd_per_hour": "price per hour",
    "job_s": "time of the job",
    "job_usd": "cost of the job",
}
_MANY = 10.0
"""From this ratio on, a change is shown as a factor instead of percent."""
HEADINGS = ("", "before", "now", "change")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTable:
    """A title and rows with the columns `HEADINGS`."""

    title: str
    rows: Sequence[tuple[str, str, str, str]]


def headline(comparison: Comparison) -> str:
    """Return the effect of the change on the cost, or on the FLOP if there are no prices."""
    (flops,) = (one for one in comparison.counted if one.measure == "flops")
    name = comparison.new if comparison.new == comparison.base else f"{comparison.new} (was {comparison.base})"
    if comparison.cheapest is None:
        return f"{name}: {_effect(flops)} FLOP per step."
    (cost,) = (one for one in comparison.cheapest.changes if one.measure == "job_usd")
    inside = ", which is within the interval of the prediction" if cost.is_inside_interval and _differs(cost) else ""
    return f"{name}: {_effect(flops)} FLOP per step; on its cheapest instance, the job costs {_effect(cost)}{inside}."


def tables(comparison: Comparison, *, top: int) -> Iterator[ChangeTable]:
    """Yield tables of the step, the cheapest instance now, the cheapest instance before, and the changed modules."""
    yield ChangeTable(title="One step:", rows=[_row(one) for one in comparison.counted])
    if comparison.cheapest is not None:
        yield _instance_table("Cheapest instance", comparison.cheapest)
    if comparison.same_instance is not None:
        yield _instance_table("Cheapest instance before", comparison.same_instance)
    if comparison.modules:
        shown = comparison.modules[:top]
        title = "Modules that changed:"
        if len(shown) < len(comparison.modules):
            title = f"Modules that changed most ({len(comparison.modules):,} in total):"
        yield ChangeTable(title=title, rows=[row for module in shown for row in _module_rows(module)])


def _instance_table(which: str, instance: InstanceChange) -> ChangeTable:
    name = instance.after if instance.before == instance.after else f"{instance.after}; was {instance.before}"
    return ChangeTable(title=f"{which}: {name}:", rows=[_row(one) for one in instance.changes])


def _module_rows(module: ModuleChange) -> Iterator[tuple[str, str, str, str]]:
    name = module.name or "(the model itself)"
    for one, what in ((module.flops, "FLOP"), (module.moved_bytes, "bytes")):
        if _differs(one):
            yield (f"{name}: {what}", *_cells(one))


def _row(one: Change) -> tuple[str, str, str, str]:
    return (_NAMES[one.measure], *_cells(one))


def _cells(one: Change) -> tuple[str, str, str]:
    inside = ", within the interval" if one.is_inside_interval and _differs(one) else ""
    return _format(one.before, one.measure), _format(one.after, one.measure), f"{_signed(one)}{inside}"


def _format(value: float, measure: Measure) -> str:
    if measure.endswith("_s"):
        return units.format_duration(value) if value else "0"
    if measure.endswith("_bytes"):
        return units.format_bytes(value)
    if measure.startswith("usd") or measure.endswith("_usd"):
        return units.format_usd(value, digits=3)
    return units.format_flops(value) if measure == "flops" else units.format_count(value)


def _signed(one: Change) -> str:
    """Return "+12 %", "-3.4 %", "x 12" or "none"; "new" or "gone" if there is no ratio."""
    if not _differs(one):
        return "none"
    if one.ratio is None:
        return "new"
    if one.after == 0:
        return "gone"
    return f"{'+' if one.ratio > 1 else '-'}{_percent(one.ratio)}" if one.ratio < _MANY else f"x {one.ratio:,.0f}"


def _effect(one: Change) -> str:
    """Return "12 % more", "12 times as much" or "as much"."""
    if not _differs(one):
        return "as much" if one.measure == "job_usd" else "as many"
    if one.ratio is None:
        return f"now {_format(one.after, one.measure)}"
    if one.ratio >= _MANY:
        return f"{one.ratio:,.0f} times as {'much' if one.measure == 'job_usd' else 'many'}"
    more, less = ("more", "less") if one.measure == "job_usd" else ("more", "fewer")
    return f"{_percent(one.ratio)} {more if one.ratio > 1 else less}"


def _percent(ratio: float) -> str:
    percent = abs(ratio - 1) * 100
    return f"{units.format_significant(percent, digits=2)} %"


def _differs(one: Change) -> bool:
    return one.before != one.after
