"""Quotes in, the cells of a table for people out: shared by every format that shows one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from advisor import units
from advisor.records.answer import Quote


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedQuote:
    """A quote with its place among all quotes, counted from 1."""

    rank: int
    quote: Quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column. `drop_order`: narrow tables lose the lowest number first; None is kept at any width.

    Where room is short, text wider than `wraps_at` wraps before a column is lost: some providers name their types in
    whole phrases.
    """

    header: str
    cell: Callable[[RankedQuote], str]
    is_number: bool = False
    drop_order: int | None = None
    wraps_at: int | None = None


def shown_quotes(quotes: Sequence[Quote], *, top: int) -> tuple[RankedQuote, ...]:
    """The `top` cheapest; the best of a kind of device that is not among them takes the last place, or the second."""
    ranked = [RankedQuote(rank=rank, quote=quote) for rank, quote in enumerate(quotes, start=1)]
    shown = ranked[:top]
    kinds = {row.quote.device.kind for row in shown}
    missing = next((row for row in ranked[top:] if row.quote.device.kind not in kinds), None)
    return tuple(shown) if missing is None else (*shown[: max(top - 1, 1)], missing)


def device_label(quote: Quote) -> str:
    """ "1x L4" for GPUs, "8 vCPU AMD EPYC 9R14" for CPUs."""
    if quote.device.kind == "gpu":
        return f"{quote.device.count}x {quote.device.name}"
    return quote.device.name if quote.vcpus is None else f"{quote.vcpus} vCPU {quote.device.name}"


def _place(row: RankedQuote) -> str:
    return f"{'~' if row.quote.indistinguishable and row.rank > 1 else ''}{row.rank}"


def _memory_share(row: RankedQuote) -> str:
    return units.format_ratio(row.quote.peak_memory_bytes / row.quote.device_memory_bytes)


def percent_chance(quote: Quote) -> str:
    """The chance that the quote is the cheapest in whole percents: "61 %"; it is not known more exactly."""
    return units.format_ratio(round(quote.chance_cheapest, 2))


def _step(row: RankedQuote) -> str:
    step_s = row.quote.step_s
    return units.format_interval_s(step_s.mid, step_s.low, step_s.high)


COLUMNS = (
    Column(header="#", cell=_place, is_number=True),
    Column(header="instance", cell=lambda row: row.quote.instance, wraps_at=24),
    Column(header="provider", cell=lambda row: row.quote.provider, drop_order=10),
    Column(header="region", cell=lambda row: row.quote.region, drop_order=6),
    Column(header="device", cell=lambda row: device_label(row.quote), drop_order=8, wraps_at=22),
    Column(
        header="$/h",
        cell=lambda row: units.format_usd(row.quote.usd_per_hour, digits=3),
        is_number=True,
        drop_order=9,
    ),
    Column(header="batch", cell=lambda row: f"{row.quote.batch:,}", is_number=True, drop_order=7),
    Column(header="precision", cell=lambda row: row.quote.precision, drop_order=2),
    Column(header="step [90 %]", cell=_step, is_number=True, drop_order=11),
    Column(
        header="samples/s", cell=lambda row: units.format_rate(row.quote.samples_per_s), is_number=True, drop_order=5
    ),
    Column(header="cost", cell=lambda row: units.format_usd(row.quote.job_usd.mid), is_number=True),
    Column(header="cheapest", cell=lambda row: percent_chance(row.quote), is_number=True, drop_order=12),
    Column(header="memory", cell=_memory_share, is_number=True, drop_order=4),
    Column(header="bound", cell=lambda row: row.quote.bound, drop_order=3),
    Column(header="price date", cell=lambda row: row.quote.price_date, drop_order=1),
)
