"""Defines the columns of a table of quotes, shared by every format that shows one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from advisor import units
from advisor.records.answer import Quote, Recommendation
from advisor.records.machine import LOCAL
from advisor.records.options import Objective
from advisor.records.price import ExchangeRate
from advisor.report.interval_text import interval_text


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedQuote:
    """A quote with its rank among all quotes, counted from 1; None for the local machine if it is not ranked.

    `rate` is the exchange rate of the currency to show, None for dollars; `objective` is what the ranking minimizes.
    """

    rank: int | None
    quote: Quote
    rate: ExchangeRate | None = None
    objective: Objective = "cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column. Narrow tables drop the column with the lowest `drop_order` first; None is never dropped.

    Text wider than `wraps_at` wraps before a column is dropped, because some providers name their types in whole
    phrases. `number` returns the value to sort by.
    """

    header: str
    cell: Callable[[RankedQuote], str]
    number: Callable[[RankedQuote], float | None] | None = None
    drop_order: int | None = None
    wraps_at: int | None = None

    @property
    def is_number(self) -> bool:
        """True for numbers, which are aligned to the right."""
        return self.number is not None


def shown_quotes(
    quotes: Sequence[Quote], *, top: int, rate: ExchangeRate | None = None, objective: Objective = "cost"
) -> tuple[RankedQuote, ...]:
    """Return the best `top` quotes; if CPUs or GPUs are missing, the best of them replaces the last row."""
    ranked = [
        RankedQuote(rank=rank, quote=quote, rate=rate, objective=objective)
        for rank, quote in enumerate(quotes, start=1)
    ]
    shown = ranked[:top]
    kinds = {row.quote.device.kind for row in shown}
    missing = next((row for row in ranked[top:] if row.quote.device.kind not in kinds), None)
    return tuple(shown) if missing is None else (*shown[: max(top - 1, 1)], missing)


def table_rows(recommendation: Recommendation, *, top: int) -> tuple[RankedQuote, ...]:
    """Return `shown_quotes`, then the local machine if it is not ranked itself."""
    rate, at_hand = recommendation.exchange_rate, unranked(recommendation)
    objective = recommendation.job.objective
    shown = shown_quotes(recommendation.quotes, top=top, rate=rate, objective=objective)
    if at_hand is None:
        return shown
    return (*shown, RankedQuote(rank=None, quote=at_hand, rate=rate, objective=objective))


def unranked(recommendation: Recommendation) -> Quote | None:
    """Return the quote of the local machine if it is not in the ranking."""
    at_hand = recommendation.at_hand
    is_ranked = at_hand is not None and any(quote.id == at_hand.id for quote in recommendation.quotes)
    return None if is_ranked else at_hand


def device_label(quote: Quote) -> str:
    """Return "1x L4" for GPUs, "8 vCPU AMD EPYC 9R14" for CPUs, "8 threads of AMD EPYC 9R14" for the local CPU."""
    if quote.device.kind == "gpu":
        return f"{quote.device.count}x {quote.device.name}"
    if quote.vcpus is None:
        return quote.device.name
    return f"{quote.vcpus} {'threads of' if quote.provider == LOCAL else 'vCPU'} {quote.device.name}"


def instance_label(quote: Quote) -> str:
    """Return "g6.xlarge", or "3x g6.xlarge" if several are needed."""
    return quote.instance if quote.instance_count == 1 else f"{quote.instance_count:,}x {quote.instance}"


def _place(row: RankedQuote) -> str:
    if row.rank is None:
        return "-"
    in_doubt = "~" if row.quote.indistinguishable and row.rank > 1 else ""
    return f"{in_doubt}{row.rank}{'*' if has_front_mark(row) else ''}"


def has_front_mark(row: RankedQuote) -> bool:
    """Return True if the ranking shows the Pareto front and the quote is on it."""
    return row.objective == "cost-time" and row.quote.on_pareto_front


def _memory_share(row: RankedQuote) -> float:
    return row.quote.peak_memory_bytes / row.quote.device_memory_bytes


def _memory(row: RankedQuote) -> str:
    share = units.format_ratio(_memory_share(row))
    return f"{share} tight" if row.quote.is_tight else share


def percent_chance(quote: Quote) -> str:
    """Return the probability that the quote is the cheapest, in whole percent, such as "61 %"."""
    return units.format_ratio(round(quote.chance_cheapest, 2))


def _chance(row: RankedQuote) -> str:
    return "-" if row.rank is None else percent_chance(row.quote)


def _step(row: RankedQuote) -> str:
    return interval_text(row.quote.step_s)


def _price_date(row: RankedQuote) -> str:
    return " ".join((row.quote.price_date, *row.quote.price_marks))


COLUMNS = (
    Column(header="#", cell=_place, number=lambda row: row.rank),
    Column(header="instance", cell=lambda row: instance_label(row.quote), wraps_at=24),
    Column(header="provider", cell=lambda row: row.quote.provider, drop_order=10),
    Column(header="region", cell=lambda row: row.quote.region, drop_order=6),
    Column(header="device", cell=lambda row: device_label(row.quote), drop_order=8, wraps_at=22),
    Column(
        header="per h",
        cell=lambda row: units.format_money(row.quote.usd_per_hour, rate=row.rate, digits=3),
        number=lambda row: row.quote.usd_per_hour,
        drop_order=9,
    ),
    Column(header="batch", cell=lambda row: f"{row.quote.batch:,}", number=lambda row: row.quote.batch, drop_order=7),
    Column(header="precision", cell=lambda row: row.quote.precision, drop_order=2),
    Column(header="step [90 %]", cell=_step, number=lambda row: row.quote.step_s.mid, drop_order=11),
    Column(
        header="samples/s",
        cell=lambda row: units.format_rate(row.quote.samples_per_s),
        number=lambda row: row.quote.samples_per_s,
        drop_order=5,
    ),
    Column(
        header="cost",
        cell=lambda row: units.format_money(row.quote.job_usd.mid, rate=row.rate),
        number=lambda row: row.quote.job_usd.mid,
    ),
    Column(header="cheapest", cell=_chance, number=lambda row: row.quote.chance_cheapest, drop_order=12),
    Column(header="memory", cell=_memory, number=_memory_share, drop_order=4),
    Column(header="bound", cell=lambda row: row.quote.bound, drop_order=3),
    Column(header="price date", cell=_price_date, drop_order=1),
)
