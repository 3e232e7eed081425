"""Makes the answer on what changed between two answers or two workloads."""

from collections.abc import Iterator, Mapping, Sequence

from advisor import units
from advisor.records.change import Change, Comparison, Measure
from advisor.records.price import ExchangeRate
from advisor.report.content import Block, Listing, Paragraph
from advisor.report.tables import ColumnOf, column, table_of

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
"""From this ratio on, up or down, a change is shown as a factor instead of percent."""


def comparison_content(comparison: Comparison, *, top: int) -> Iterator[Block]:
    """Yield the headline, a table for each kind of change, and notes on what makes the two hard to compare."""
    columns = _columns(comparison.exchange_rate)
    yield Paragraph(title=headline(comparison))
    yield table_of([(_NAMES[one.measure], one) for one in comparison.counted], columns, title="One step")
    for which, instance in (
        ("Cheapest instance", comparison.cheapest),
        ("Cheapest instance before", comparison.same_instance),
    ):
        if instance is not None:
            name = instance.after if instance.before == instance.after else f"{instance.after}; was {instance.before}"
            yield table_of([(_NAMES[one.measure], one) for one in instance.changes], columns, title=f"{which}: {name}")
    title = "Modules that changed"
    if len(comparison.modules) > top:
        title = f"Modules that changed most ({len(comparison.modules):,} in total)"
    rows = [
        (f"{module.name or '(the model itself)'}: {what}", one)
        for module in comparison.modules[:top]
        for one, what in ((module.flops, "FLOP"), (module.moved_bytes, "bytes"))
        if _differs(one)
    ]
    yield table_of(rows, columns, title=title)
    yield Listing(title="Notes", items=comparison.notes)


def headline(comparison: Comparison) -> str:
    """Return the effect of the change on the cost, or on the FLOP if there are no prices."""
    rate = comparison.exchange_rate
    (flops,) = (one for one in comparison.counted if one.measure == "flops")
    name = comparison.new if comparison.new == comparison.base else f"{comparison.new} (was {comparison.base})"
    if comparison.cheapest is None:
        return f"{name}: {_flops(flops, rate=rate)}."
    (cost,) = (one for one in comparison.cheapest.changes if one.measure == "job_usd")
    inside = ", which is within the interval of the prediction" if _is_inside(cost) else ""
    effect = _effect(cost, rate=rate)
    return f"{name}: {_flops(flops, rate=rate)}; the job costs {effect} on its cheapest instance{inside}."


def _flops(flops: Change, *, rate: ExchangeRate | None) -> str:
    return f"{_effect(flops, rate=rate)} FLOP per step" if _differs(flops) else "FLOP per step unchanged"


def _format(value: float, measure: Measure, *, rate: ExchangeRate | None) -> str:
    if measure.endswith("_s"):
        return units.format_duration(value) if value else "0"
    if measure.endswith("_bytes"):
        return units.format_bytes(value)
    if measure.startswith("usd") or measure.endswith("_usd"):
        return units.format_money(value, rate=rate, digits=3)
    return units.format_flops(value) if measure == "flops" else units.format_count(value)


def _signed(one: Change) -> str:
    """Return "+12 %", "-3.4 %", "x 12", "/ 12" or "none"; "new" or "gone" if there is no ratio."""
    if not _differs(one):
        return "none"
    if one.ratio is None:
        return "new"
    if one.after == 0:
        return "gone"
    if one.ratio <= 1 / _MANY:
        return f"/ {1 / one.ratio:,.0f}"
    return f"{'+' if one.ratio > 1 else '-'}{_percent(one.ratio)}" if one.ratio < _MANY else f"x {one.ratio:,.0f}"


def _effect(one: Change, *, rate: ExchangeRate | None) -> str:
    """Return "12 % more", "12 times as much", "12x fewer" or "as much"."""
    if not _differs(one):
        return "as much" if one.measure == "job_usd" else "as many"
    if one.ratio is None:
        return f"now {_format(one.after, one.measure, rate=rate)}"
    if one.ratio >= _MANY:
        return f"{one.ratio:,.0f} times as {'much' if one.measure == 'job_usd' else 'many'}"
    less = "less" if one.measure == "job_usd" else "fewer"
    if 0 < one.ratio <= 1 / _MANY:
        return f"{1 / one.ratio:,.0f}x {less}"
    return f"{_percent(one.ratio)} {'more' if one.ratio > 1 else less}"


def _percent(ratio: float) -> str:
    percent = abs(ratio - 1) * 100
    return f"{units.format_significant(percent, digits=2)} %"


def _differs(one: Change) -> bool:
    return one.before != one.after


def _is_inside(one: Change) -> bool:
    return bool(one.is_inside_interval) and _differs(one)


def _columns(rate: ExchangeRate | None) -> Sequence[ColumnOf[tuple[str, Change]]]:
    return (
        column("", lambda row: row[0]),
        column("before", lambda row: _format(row[1].before, row[1].measure, rate=rate), lambda row: row[1].before),
        column("now", lambda row: _format(row[1].after, row[1].measure, rate=rate), lambda row: row[1].after),
        column("change", lambda row: f"{_signed(row[1])}{', within the interval' if _is_inside(row[1]) else ''}"),
    )
