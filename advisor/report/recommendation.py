"""Makes the content of a recommendation, and the report's sections on the ranking and on cost against time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from advisor.records.answer import Interval, Quote, Recommendation
from advisor.records.options import PERCENTILES, Objective
from advisor.records.rejection import Rejection
from advisor.records.sample_words import batch_text
from advisor.report import sentence
from advisor.report.amounts import count_text, in_currency, in_unit, interval_text, money_interval, per_samples, unit_of
from advisor.report.break_even import api_sentences
from advisor.report.content import (
    Axis,
    Block,
    Chart,
    Listing,
    Paragraph,
    Point,
    Section,
    Series,
    Warnings,
)
from advisor.report.contexts import context_tables
from advisor.report.emissions import asks_for_co2, co2_interval
from advisor.report.marks import KIND_MARKS, KIND_NAMES
from advisor.report.quote_columns import (
    RankedQuote,
    columns_for,
    compared_ids,
    device_label,
    energy_columns,
    instance_label,
    table_rows,
)
from advisor.report.situations import alternative_tables, choice_tables, situation_tables, when_to_use_which
from advisor.report.sweeps import batch_tables, machine_tables
from advisor.report.tables import ColumnOf, column, numbers, table_of

_ORDER = (
    "#", "provider", "instance", "per h", "TTFT", "TPOT",
    *(f"{name} {at}" for at in PERCENTILES for name in ("TTFT", "TPOT")), "p99", "p50", "time", "cost",
    "per million", "per billion", "per Mtok", "device", "P(best)", "samples/s", "tokens/s",
)  # fmt: skip
"""The most important columns come first; the others follow in their usual order."""
_FIRST: Mapping[Objective, str] = {
    "cost": "Cheapest",
    "time": "Fastest",
    "cost-time": "Lowest cost x time",
    "co2": "Lowest CO2",
}


def recommendation_content(recommendation: Recommendation, *, top: int = 10) -> Iterator[Block]:
    """Yield the verdict, `top` offers that include CPUs and GPUs, then assumptions, offers left out and warnings."""
    rows = table_rows(recommendation, top=top)
    more = (
        sentence.emissions(recommendation),
        sentence.in_other_precision(recommendation),
        sentence.better_if_price_holds(recommendation),
        sentence.better_if_prediction_holds(recommendation),
    )
    if when := when_to_use_which(recommendation):
        yield Paragraph(title=when)
        yield from situation_tables(recommendation)
    about_best = (*sentence.best_figures(recommendation), *sentence.certainty(recommendation), *filter(None, more))
    yield Paragraph(title=sentence.verdict(recommendation), sentences=about_best)
    if about_api := tuple(api_sentences(recommendation.api, recommendation.job, rate=recommendation.exchange_rate)):
        yield Paragraph(sentences=about_api)
    yield from choice_tables(recommendation)
    yield from alternative_tables(recommendation)
    yield Listing(title="Best offers of other kinds of providers", items=sentence.by_tier(recommendation))
    yield table_of(
        rows,
        columns_for(rows),
        notes=sentence.table_notes(rows, quote_count=len(recommendation.quotes), compared=compared_ids(recommendation)),
        more=sentence.table_details(rows),
        highlighted=_headline_place(rows),
    )
    yield from context_tables(recommendation)
    yield from batch_tables(recommendation)
    yield from machine_tables(recommendation)
    yield Listing(title="Assumes", items=sentence.settings(recommendation), more=sentence.further_basis(recommendation))
    reasons = sentence.left_out(recommendation)
    if recommendation.best is None:
        yield Listing(title=f"Left out ({len(recommendation.rejected):,})", items=reasons)
    else:
        yield Listing(title=sentence.left_out_summary(recommendation), more=reasons)
    yield Warnings(items=recommendation.warnings)


def basis_section(recommendation: Recommendation) -> Section:
    """Return the section on the assumptions of the headline."""
    listing = Listing(title="Assumes", items=sentence.basis(recommendation))
    return Section(id="basis", title="Assumptions", lists=(listing,))


def left_out_section(recommendation: Recommendation) -> Section:
    """Return the section on the offers that are not ranked, with the reasons."""
    rejected = recommendation.rejected
    listing = Listing(title="By reason, most common first", items=sentence.left_out(recommendation))
    columns: tuple[ColumnOf[Rejection], ...] = (
        column("why", lambda one: one.code, is_choice=True),
        column("provider", lambda one: one.provider, is_choice=True),
        column("instance", lambda one: one.instance),
        column("region", lambda one: one.region),
        column("reason", lambda one: one.reason),
    )
    table = table_of(rejected, columns, title="Every offer left out")
    lead = sentence.left_out_summary(recommendation)
    return Section(id="left-out", title="Left out", lead=(lead,), lists=(listing,), tables=(table,), is_folded=True)


def ranking_section(recommendation: Recommendation) -> Section:
    """Return the section with the table of all ranked offers."""
    ranked = _all_rows(recommendation)
    rows = sorted(ranked, key=lambda row: not row.quote.is_candidate)
    more: tuple[ColumnOf[RankedQuote], ...] = (
        column("kind", lambda row: KIND_NAMES[row.quote.device.kind], is_choice=True),
        column("tier", lambda row: row.quote.tier, is_choice=True),
        *(() if asks_for_co2(recommendation.job) else energy_columns(unit_of(recommendation))),
    )
    places = {header: place for place, header in enumerate(_ORDER)}
    table = table_of(
        rows,
        sorted((*columns_for(rows), *more), key=lambda one: places.get(one.header, len(places))),
        title="Every offer",
        notes=(
            *sentence.table_notes(ranked, quote_count=len(recommendation.quotes)),
            *sentence.table_details(ranked),
        ),
        highlighted=_headline_place(rows),
    )
    doubtful = "" if all(row.quote.is_candidate for row in rows) else ", after them those that are not recommended (?)"
    lead = f"{_FIRST[recommendation.job.objective]} first{doubtful}. Click a column's heading to sort by it."
    return Section(id="ranking", title="Ranking", lead=(lead,), tables=(table,))


def _headline_place(rows: Sequence[RankedQuote]) -> int:
    """Return the place of the recommended row: the first that may lead, or the first of all."""
    return next((place for place, row in enumerate(rows) if row.quote.may_lead), 0)


def _all_rows(recommendation: Recommendation) -> tuple[RankedQuote, ...]:
    return table_rows(recommendation, top=max(1, len(recommendation.quotes)))


def cost_time_section(recommendation: Recommendation) -> Section:
    """Return the section that plots cost against time for all offers, with the Pareto front."""
    is_service = recommendation.job.requests_per_day is not None
    count = sum(quote.on_pareto_front for quote in recommendation.quotes)
    lead = f"Pareto front: {count} of {len(recommendation.quotes):,} offers. All others cost more and take longer."
    label = "99th percentile of the latency" if is_service else amount_name("time", recommendation)
    chart = _front_chart(
        recommendation,
        x=Axis(label=label, unit="s"),
        amount=_time,
        text=interval_text,
        is_on_front=lambda quote: quote.on_pareto_front,
        better="faster",
    )
    return Section(id="cost-time", title="Cost against time", lead=(lead,), plots=(chart,))


def cost_co2_section(recommendation: Recommendation) -> Section:
    """Return the section that plots cost against CO2 for the offers whose CO2 is known, with the Pareto front."""
    quotes = recommendation.quotes
    known = sum(quote.co2_kg is not None for quote in quotes)
    if not known:
        return Section(id="cost-co2", title="Cost against CO2")
    front = sum(quote.on_co2_front for quote in quotes)
    lead = (
        f"Pareto front: {front} of the {known:,} offers whose CO2 is known ({len(quotes) - known:,} have no figure for "
        "their grid or their power). Annual averages of the local grids, without embodied carbon."
    )
    chart = _front_chart(
        recommendation,
        x=Axis(label=amount_name("CO2", recommendation), unit="kg"),
        amount=lambda row: in_unit(row.quote.co2_kg, unit=row.unit) or _NO_CO2,
        text=co2_interval,
        is_on_front=lambda quote: quote.on_co2_front,
        better="lower in CO2",
    )
    return Section(id="cost-co2", title="Cost against CO2", lead=(lead,), plots=(chart,))


_NO_CO2 = Interval(mid=0.0, low=0.0, high=0.0)


def _front_chart(
    recommendation: Recommendation,
    *,
    x: Axis,
    amount: Callable[[RankedQuote], Interval],
    text: Callable[[Interval], str],
    is_on_front: Callable[[Quote], bool],
    better: str,
) -> Chart:
    """Return the chart of cost against another amount of all offers, with the Pareto front and its table."""
    rate = recommendation.exchange_rate

    def point(row: RankedQuote) -> Point:
        cost, other = in_currency(row.cost_usd, rate=rate), amount(row)
        about = (
            f"{row.quote.provider} {instance_label(row.quote)}\n{device_label(row.quote)}\n"
            f"{money_interval(row.cost_usd, rate=rate)} {'in' if x.unit == 's' else 'with'} {text(other)}\n"
            f"{batch_text(row.quote.batch, row.job.generation)}, {row.quote.precision}"
        )
        return Point(x=other.mid, y=cost.mid, text=about)

    def with_intervals(row: RankedQuote) -> Point:
        cost, other = in_currency(row.cost_usd, rate=rate), amount(row)
        return replace(point(row), x_low=other.low, x_high=other.high, y_low=cost.low, y_high=cost.high)

    # A logarithmic axis has no 0.
    rows = [row for row in _all_rows(recommendation) if row.quote.job_usd.mid > 0 and amount(row).mid > 0]
    front = sorted((row for row in rows if is_on_front(row.quote)), key=lambda row: row.quote.job_usd.mid)
    best = [row for row in rows if row.quote is recommendation.best]
    others = [row for row in rows if row.rank is not None and not is_on_front(row.quote) and row not in best]
    here = [row for row in rows if row.rank is None]
    series = []
    for kind, (color, symbol) in KIND_MARKS.items():
        of_kind = tuple(point(row) for row in others if row.quote.device.kind == kind)
        series.append(Series(name=KIND_NAMES[kind], color=color, symbol=symbol, points=of_kind, is_faint=True))
    at_front, at_best, at_hand = (tuple(map(with_intervals, those)) for those in (front, best, here))
    named = tuple(replace(one, name=one.text.partition("\n")[0]) for one in at_best)
    title = f"Pareto front: no other offer is both cheaper and {better}; with 90 % intervals"
    series += [
        Series(name=title, color=3, symbol="diamond", points=at_front, has_line=True),
        Series(name="the answer", color=5, symbol="square", points=named),
        Series(name="the local machine", color=4, symbol="star", points=at_hand),
    ]
    columns: tuple[ColumnOf[RankedQuote], ...] = (
        numbers("#", lambda row: row.rank, count_text),
        column("provider", lambda row: row.quote.provider),
        column("instance", lambda row: instance_label(row.quote)),
        column("device", lambda row: device_label(row.quote)),
        numbers("cost [90 %]", lambda row: row.cost_usd, lambda usd: money_interval(usd, rate=rate)),
        numbers(f"{x.label} [90 %]", amount, text),
    )
    in_table = [*best, *(row for row in front if row not in best), *here]
    return Chart(
        title=f"Cost and {x.label} of every offer",
        x=x,
        y=Axis(label=amount_name("cost", recommendation), unit="money"),
        series=tuple(one for one in series if one.points),
        table=table_of(in_table, columns, title="The answer and the Pareto front"),
    )


def amount_name(what: str, recommendation: Recommendation) -> str:
    """Return the name of an amount: of the job, of a month of a service, or of a unit of samples without a size."""
    if recommendation.job.requests_per_day is not None:
        return f"{what} per month"
    return f"{what}{per_samples(recommendation) or ' of the job'}"


def _time(row: RankedQuote) -> Interval:
    """Return the time of the job, of so many samples without a size, or the 99th percentile of a service."""
    quote = row.quote
    if row.unit is not None:
        return row.unit.of(quote.job_s)
    if row.job.requests_per_day is None or quote.p99_s is None:
        return quote.job_s
    ratios = (end / quote.step_s.mid for end in (quote.step_s.mid, quote.step_s.low, quote.step_s.high))
    mid, low, high = (quote.p99_s * ratio for ratio in ratios)
    return Interval(mid=mid, low=low, high=high)
