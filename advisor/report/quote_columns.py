"""Defines the rows and columns of a table of quotes, shared by every format that shows one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from advisor import units
from advisor.records.answer import Quote, Recommendation, TokenQuote
from advisor.records.machine import LOCAL
from advisor.records.options import Objective
from advisor.records.price import ExchangeRate
from advisor.report.amounts import count_text, interval_text, money_text
from advisor.report.marks import arm_mark
from advisor.report.tables import ColumnOf, ValueT, column, numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedQuote:
    """A quote with its rank among all quotes, counted from 1; None for the local machine if it is not ranked.

    `rate` is the exchange rate of the currency to show, None for dollars; `objective` is what the ranking minimizes.
    """

    rank: int | None
    quote: Quote
    rate: ExchangeRate | None = None
    objective: Objective = "cost"

    @property
    def has_front_mark(self) -> bool:
        """True if the ranking shows the Pareto front and the quote is on it."""
        return self.objective == "cost-time" and self.quote.on_pareto_front


def table_rows(recommendation: Recommendation, *, top: int) -> tuple[RankedQuote, ...]:
    """Return the best `top` quotes, then the local machine if it is not ranked itself.

    If CPUs or GPUs are missing among them, the best of them replaces the last row.
    """
    rate, objective = recommendation.exchange_rate, recommendation.job.objective
    ranked = [
        RankedQuote(rank=rank, quote=quote, rate=rate, objective=objective)
        for rank, quote in enumerate(recommendation.quotes, start=1)
    ]
    shown = ranked[:top]
    kinds = {row.quote.device.kind for row in shown}
    missing = next((row for row in ranked[top:] if row.quote.device.kind not in kinds), None)
    if missing is not None:
        shown = [*shown[: max(top - 1, 1)], missing]
    at_hand = unranked(recommendation)
    here = [] if at_hand is None else [RankedQuote(rank=None, quote=at_hand, rate=rate, objective=objective)]
    return (*shown, *here)


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
    """Return "g6.xlarge", or "3x g6.xlarge" if several are needed; one with an Arm CPU is marked "[Arm]"."""
    count = "" if quote.instance_count == 1 else f"{quote.instance_count:,}x "
    return f"{count}{quote.instance}{arm_mark(quote.architecture)}"


def percent_chance(quote: Quote) -> str:
    """Return the probability that the quote is the cheapest, in whole percent, such as "61 %"."""
    return units.format_ratio(round(quote.chance_cheapest, 2))


def columns_for(rows: Sequence[RankedQuote]) -> tuple[ColumnOf[RankedQuote], ...]:
    """Return the columns for these rows; in LLM serving, times, throughput and cost are those of tokens.

    Text that `wraps_at` a width wraps first, because some providers name their types in whole phrases.
    """
    rate = rows[0].rate if rows else None
    is_served = bool(rows) and rows[0].quote.tokens is not None
    return (
        column("#", _place, lambda row: row.rank),
        column("instance", lambda row: instance_label(row.quote), wraps_at=24),
        column("provider", lambda row: row.quote.provider, is_choice=True, drop_order=10),
        column("region", lambda row: row.quote.region, drop_order=6),
        column("device", lambda row: device_label(row.quote), drop_order=8, wraps_at=22),
        numbers("per h", lambda row: row.quote.usd_per_hour, money_text(rate, digits=3), drop_order=9),
        numbers("in flight" if is_served else "batch", lambda row: row.quote.batch, count_text, drop_order=7),
        column("precision", lambda row: row.quote.precision, is_choice=True, drop_order=2),
        *(_token_columns(rate) if is_served else _SAMPLE_COLUMNS),
        numbers("cost", lambda row: row.quote.job_usd.mid, money_text(rate)),
        column("cheapest", _chance, lambda row: row.quote.chance_cheapest, drop_order=12),
        column("memory", _memory, _memory_share, drop_order=4),
        column("bound", lambda row: row.quote.bound, is_choice=True, drop_order=3),
        column("price date", lambda row: " ".join((row.quote.price_date, *row.quote.price_marks)), drop_order=1),
    )


_SAMPLE_COLUMNS: tuple[ColumnOf[RankedQuote], ...] = (
    numbers("step [90 %]", lambda row: row.quote.step_s, interval_text, drop_order=11),
    numbers("samples/s", lambda row: row.quote.samples_per_s, units.format_rate, drop_order=5),
)


def _token_columns(rate: ExchangeRate | None) -> tuple[ColumnOf[RankedQuote], ...]:
    def of(figure: Callable[[TokenQuote], ValueT]) -> Callable[[RankedQuote], ValueT | None]:
        return lambda row: None if row.quote.tokens is None else figure(row.quote.tokens)

    per_token = money_text(rate, digits=3)
    return (
        numbers("TTFT", of(lambda one: one.ttft_s.mid), units.format_duration, missing="", drop_order=13),
        numbers("TPOT [90 %]", of(lambda one: one.tpot_s), interval_text, missing="", drop_order=14),
        numbers("tokens/s", of(lambda one: one.output_tokens_per_s), units.format_rate, missing="", drop_order=11),
        numbers("per Mtok", of(lambda one: one.usd_per_million_tokens), per_token, missing=""),
    )


def _place(row: RankedQuote) -> str:
    if row.rank is None:
        return "-"
    in_doubt = "~" if row.quote.indistinguishable and row.rank > 1 else ""
    return f"{in_doubt}{row.rank}{'*' if row.has_front_mark else ''}"


def _chance(row: RankedQuote) -> str:
    return "-" if row.rank is None else percent_chance(row.quote)


def _memory_share(row: RankedQuote) -> float:
    return row.quote.peak_memory_bytes / row.quote.device_memory_bytes


def _memory(row: RankedQuote) -> str:
    share = units.format_ratio(_memory_share(row))
    return f"{share} tight" if row.quote.is_tight else share
