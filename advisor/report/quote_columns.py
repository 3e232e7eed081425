"""Defines the rows and columns of a table of quotes, shared by every format that shows one."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from advisor import units
from advisor.records.answer import Interval, Job, JobLimits, Quote, Recommendation, TokenQuote
from advisor.records.machine import LOCAL
from advisor.records.options import Statistic
from advisor.records.price import ExchangeRate
from advisor.report.amounts import SampleUnit, count_text, in_unit, money_range, money_text, unit_of
from advisor.report.emissions import asks_for_co2, co2_interval
from advisor.report.marks import arm_mark
from advisor.report.tables import ColumnOf, ValueT, column, numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedQuote:
    """A quote with its rank among all quotes, counted from 1; None for the local machine if it is not ranked.

    `name` is the instance, with what tells it from a row of the same provider and instance. `rate` is the exchange rate
    of the currency to show, None for dollars; `unit`: the costs are rates, because the job has no size.
    """

    rank: int | None
    quote: Quote
    name: str
    job: Job
    rate: ExchangeRate | None
    unit: SampleUnit | None

    @property
    def cost_usd(self) -> Interval:
        """Return the cost of the job, or of a unit of samples if it has no size."""
        return in_unit(self.quote.job_usd, unit=self.unit)

    @property
    def is_close(self) -> bool:
        """True if the quote is a candidate and too close to the best to call."""
        return self.quote.indistinguishable and self.quote.is_candidate

    @property
    def has_front_mark(self) -> bool:
        """True if the ranking shows the Pareto front and the quote is on it."""
        return self.job.objective == "cost-time" and self.quote.on_pareto_front


_DOUBTFUL_COUNT = 3
"""Rows of offers that rank ahead of the best but may not lead: the first of them are enough to see."""
NAMED_RIVAL_COUNT = 3
"""Rivals of the best that the answer names; the table shows them too."""


def rivals_of(best: Quote, recommendation: Recommendation) -> tuple[Quote, ...]:
    """Return the offers too close to the best to call, the likeliest first; by cost, those that could cost less."""
    close = sorted(
        (one for one in recommendation.quotes if one.indistinguishable and one.is_candidate == best.is_candidate),
        key=lambda one: -one.chance_among_trusted,
    )
    # An offer on the best's device is close to it and never cheaper: it shares its error.
    is_cost = recommendation.job.objective == "cost"
    return tuple(one for one in close if one is close[0] or not is_cost or round(one.chance_among_trusted, 2))


def table_rows(recommendation: Recommendation, *, top: int) -> tuple[RankedQuote, ...]:
    """Return `top` quotes by rank, then the local machine if it is not ranked itself.

    They are the best, the offers that the answer names beside it, and the first that may lead, after at most
    `_DOUBTFUL_COUNT` that rank ahead of them. If they have no CPU or no GPU, or only ones in doubt while there is a
    candidate, the best one replaces the last: the one that the answer compares at full load, if it compares any.
    """
    at_hand, unit = unranked(recommendation), unit_of(recommendation)
    quotes = (*recommendation.quotes, *(() if at_hand is None else (at_hand,)))
    rows = [
        RankedQuote(
            rank=rank if rank <= len(recommendation.quotes) else None,
            quote=quote,
            name=name,
            job=recommendation.job,
            rate=recommendation.exchange_rate,
            unit=unit,
        )
        for rank, (quote, name) in enumerate(zip(quotes, _names(quotes), strict=True), start=1)
    ]
    ranked = [row for row in rows if row.rank is not None]
    first = next((place for place, row in enumerate(ranked) if row.quote.may_lead), 0)
    doubtful = ranked[: min(first, _DOUBTFUL_COUNT, top - 1)]
    ids = _ids_named(recommendation)
    named = sorted((row for row in ranked[len(doubtful) :] if row.quote.id in ids), key=lambda row: ids[row.quote.id])
    unnamed = [row for row in ranked[len(doubtful) :] if row.quote.id not in ids]
    leading = [row for row in unnamed if row.quote.may_lead]
    others = [row for row in unnamed if not row.quote.may_lead]
    shown = [*doubtful, *named, *leading, *others][:top]

    compared = compared_ids(recommendation)

    def is_missing(row: RankedQuote) -> bool:
        alike = [one.quote for one in shown if one.quote.device.kind == row.quote.device.kind]
        if any(one.id in compared for one in alike):
            return False
        is_compared = row.quote.id in compared
        return is_compared or not any(one.is_candidate or not row.quote.is_candidate for one in alike)

    best_first = sorted(
        ranked[len(doubtful) :],
        key=lambda row: (row.quote.id not in compared, not row.quote.is_candidate, not row.quote.may_lead),
    )
    missing = [row for row in best_first if is_missing(row)][:1]
    shown = [*shown[: max(top - len(missing), 1)], *missing]
    return (*sorted(shown, key=lambda row: row.rank or 0), *rows[len(ranked) :])


def compared_ids(recommendation: Recommendation) -> frozenset[str]:
    """Return the ids of the CPU and the GPU that an answer by cost compares at full load; none if it does not."""
    busy = (one.point for one in recommendation.situations if one.kind == "busy")
    sides = (side for point in busy for side in (point.cpu, point.gpu) if side is not None)
    return frozenset(side.id for side in sides if recommendation.job.objective == "cost")


def _ids_named(recommendation: Recommendation) -> Mapping[str, int]:
    """Return the ids of the best and of the offers that the answer names beside it, with their order."""
    best = recommendation.best
    rivals = () if best is None else rivals_of(best, recommendation)[:NAMED_RIVAL_COUNT]
    named = (best, *rivals, recommendation.better_if_price_holds, recommendation.better_if_prediction_holds)
    return {quote.id: place for place, quote in enumerate(quote for quote in named if quote is not None)}


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


def _names(quotes: Sequence[Quote]) -> list[str]:
    """Return the instance of each quote, followed by its device, region or price where another would read the same."""
    names = [instance_label(quote) for quote in quotes]
    told: tuple[Callable[[Quote], str], ...] = (
        device_label,
        lambda quote: quote.region,
        lambda quote: quote.price_kind.replace("_", "-"),
    )
    for what in told:
        found = defaultdict[tuple[str, str], set[str]](set)
        for quote, name in zip(quotes, names, strict=True):
            found[quote.provider, name].add(what(quote))
        names = [
            f"{name} ({what(quote)})" if len(found[quote.provider, name]) > 1 else name
            for quote, name in zip(quotes, names, strict=True)
        ]
    return names


def percent_chance(chance: float) -> str:
    """Return a chance of being the cheapest with a trusted price in whole percent: "61 %", ">99 %" if not certain."""
    is_nearly_sure = round(chance, 2) == 1 and round(chance, 6) < 1
    return ">99 %" if is_nearly_sure else units.format_ratio(round(chance, 2))


def columns_for(rows: Sequence[RankedQuote]) -> tuple[ColumnOf[RankedQuote], ...]:
    """Return the columns for these rows; in LLM serving, times, throughput and cost are those of tokens.

    Columns up to `samples/s` may be missing at 80 characters; a drop order from 20 is only for narrower terminals.
    """
    rate = rows[0].rate if rows else None
    is_served = bool(rows) and rows[0].quote.tokens is not None
    is_service = bool(rows) and rows[0].job.requests_per_day is not None
    is_queued = any(row.quote.tokens is not None and row.quote.tokens.ttft_p99_s is not None for row in rows)
    unit = rows[0].unit if rows else None
    cost = "cost" if unit is None else f"per {unit.name}"
    # The throughput stands for the time where the job has no size.
    samples_per_s: ColumnOf[RankedQuote] = numbers(
        "samples/s", lambda row: row.quote.samples_per_s, units.format_rate, drop_order=22 if unit else 9
    )
    return (
        column("#", _place, lambda row: row.rank),
        column("provider", lambda row: row.quote.provider, is_choice=True, drop_order=20),
        column("instance", lambda row: row.name, shortens_to=24),
        column("device", lambda row: device_label(row.quote), drop_order=8, shortens_to=22),
        column("region", lambda row: row.quote.region, drop_order=3),
        numbers("per h", lambda row: row.quote.usd_per_hour, money_text(rate, digits=3), drop_order=21),
        numbers("in flight" if is_served else "batch", lambda row: row.quote.batch, count_text, drop_order=7),
        column("precision", lambda row: row.quote.precision, is_choice=True, drop_order=6),
        *(
            _token_columns(rate, limits=rows[0].job.limits, is_queued=is_queued)
            if is_served
            else (samples_per_s, *((_P50, _P99) if is_service else ()))
        ),
        *(() if is_service or unit else (_JOB_TIME,)),
        numbers(cost, lambda row: row.cost_usd.mid, money_text(rate)),
        numbers(f"{cost} [90 %]", lambda row: row.cost_usd, lambda usd: money_range(usd, rate=rate), drop_order=2),
        *(energy_columns(unit) if rows and asks_for_co2(rows[0].job) else ()),
        *((_CHEAPEST,) if not rows or rows[0].job.objective == "cost" else ()),
        column("memory", _memory, _memory_share, drop_order=5),
        column("bound", lambda row: row.quote.bound, is_choice=True, drop_order=4),
        column("price date", lambda row: " ".join((row.quote.price_date, *row.quote.price_marks)), drop_order=1),
    )


_JOB_TIME: ColumnOf[RankedQuote] = numbers(
    "time", lambda row: row.quote.job_s.mid, units.format_duration, drop_order=22
)
_P50: ColumnOf[RankedQuote] = numbers(
    "p50", lambda row: row.quote.p50_s, units.format_duration, missing="", drop_order=11
)
_P99: ColumnOf[RankedQuote] = numbers(
    "p99", lambda row: row.quote.p99_s, units.format_duration, missing="", drop_order=22
)
"""A service has no time of its job, but percentiles of its latency."""


def energy_columns(unit: SampleUnit | None) -> tuple[ColumnOf[RankedQuote], ...]:
    """Return the columns of energy and CO2, of the job or of a unit of samples; a dash: not known."""
    per = "" if unit is None else f" per {unit.name}"

    def kwh(row: RankedQuote) -> Interval | None:
        return in_unit(row.quote.energy_kwh, unit=unit)

    def co2_kg(row: RankedQuote) -> Interval | None:
        return in_unit(row.quote.co2_kg, unit=unit)

    return (
        numbers(f"energy{per}", kwh, lambda found: units.format_kwh(found.mid), drop_order=10),
        numbers(f"CO2{per}", co2_kg, lambda found: units.format_co2(found.mid), drop_order=22),
        numbers(f"CO2{per} [90 %]", co2_kg, co2_interval, drop_order=2),
    )


def _token_columns(
    rate: ExchangeRate | None, *, limits: JobLimits, is_queued: bool
) -> tuple[ColumnOf[RankedQuote], ...]:
    """Return the columns of LLM serving; under the load of a service, token times are the percentiles with a limit."""

    def of(figure: Callable[[TokenQuote], ValueT]) -> Callable[[RankedQuote], ValueT | None]:
        return lambda row: None if row.quote.tokens is None else figure(row.quote.tokens)

    def time(name: str, limited: Statistic, *, drop_order: int) -> ColumnOf[RankedQuote]:
        at = "p99" if limited == "mean" else limited
        heading, seconds = (
            (f"{name.upper()} {at}", of(lambda one: getattr(one, f"{name}_{at}_s")))
            if is_queued
            else (name.upper(), of(lambda one: getattr(one, f"{name}_s").mid))
        )
        return numbers(heading, seconds, units.format_duration, missing="", drop_order=drop_order)

    per_token = money_text(rate, digits=3)
    return (
        time("ttft", limits.ttft_of, drop_order=11),
        time("tpot", limits.tpot_of, drop_order=12),
        numbers("tokens/s", of(lambda one: one.output_tokens_per_s), units.format_rate, missing="", drop_order=9),
        numbers("per Mtok", of(lambda one: one.usd_per_million_tokens), per_token, missing="", drop_order=13),
    )


def _place(row: RankedQuote) -> str:
    if row.rank is None:
        return "-"
    in_doubt = "~" if row.is_close else ""
    doubt = "" if row.quote.is_candidate else "?"
    return f"{in_doubt}{row.rank}{doubt}{'*' if row.has_front_mark else ''}"


def _chance(row: RankedQuote) -> str:
    is_compared = row.rank is not None and (row.quote.is_candidate or row.quote.chance_among_trusted > 0)
    return percent_chance(row.quote.chance_among_trusted) if is_compared else "-"


_CHEAPEST: ColumnOf[RankedQuote] = column("P(best)", _chance, lambda row: row.quote.chance_among_trusted, drop_order=10)
"""Shown with `--objective cost` only: other objectives choose other batch sizes and instance counts."""


def _memory_share(row: RankedQuote) -> float:
    return row.quote.peak_memory_bytes / row.quote.device_memory_bytes


def _memory(row: RankedQuote) -> str:
    share = units.format_ratio(_memory_share(row))
    return f"{share} tight" if row.quote.is_tight else share
