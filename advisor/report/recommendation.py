"""Makes the content of a recommendation, and the report's sections on the ranking and on cost against time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from advisor.records.answer import Interval, Job, Recommendation
from advisor.records.options import Objective
from advisor.records.price import Rejection
from advisor.records.sample_words import batch_text
from advisor.report import sentence
from advisor.report.amounts import SampleUnit, count_text, in_currency, interval_text, money_interval, unit_of
from advisor.report.break_even import api_sentences
from advisor.report.content import Axis, Block, Chart, Listing, Paragraph, Point, Section, Series, Warnings, section
from advisor.report.contexts import context_tables
from advisor.report.marks import KIND_MARKS, KIND_NAMES
from advisor.report.quote_columns import RankedQuote, columns_for, device_label, instance_label, table_rows
from advisor.report.situations import alternative_tables, choice_tables, situation_tables, when_to_use_which
from advisor.report.sweeps import batch_tables, machine_tables
from advisor.report.tables import ColumnOf, column, numbers, table_of

_ORDER = (
    "#", "provider", "instance", "per h", "TTFT", "TPOT", "TTFT p99", "TPOT p99", "p99", "p50", "time", "cost",
    "per million", "per billion", "per Mtok", "device", "cheapest", "samples/s", "tokens/s",
)  # fmt: skip
"""The most important columns come first; the others follow in their usual order."""
_FRONT = "The answer and the Pareto front"
_FIRST: Mapping[Objective, str] = {"cost": "Cheapest", "time": "Fastest", "cost-time": "Lowest cost x time"}


def recommendation_content(recommendation: Recommendation, *, top: int = 10) -> Iterator[Block]:
    """Yield the verdict, `top` offers that include CPUs and GPUs, then assumptions, offers left out and warnings."""
    rows = table_rows(recommendation, top=top)
    better = (
        sentence.in_other_precision(recommendation),
        sentence.better_if_price_holds(recommendation),
        sentence.better_if_prediction_holds(recommendation),
    )
    if when := when_to_use_which(recommendation):
        yield Paragraph(title=when)
        yield from situation_tables(recommendation)
    about_best = (*sentence.best_figures(recommendation), *sentence.certainty(recommendation), *filter(None, better))
    yield Paragraph(title=sentence.verdict(recommendation), sentences=about_best)
    if about_api := tuple(api_sentences(recommendation.api, recommendation.job, rate=recommendation.exchange_rate)):
        yield Paragraph(sentences=about_api)
    yield from choice_tables(recommendation)
    yield from alternative_tables(recommendation)
    yield Listing(title="The best of the other tiers", items=sentence.by_tier(recommendation))
    yield table_of(
        rows,
        columns_for(rows),
        notes=sentence.table_notes(rows, quote_count=len(recommendation.quotes)),
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
    return section("basis", "Assumptions", lists=[listing])


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
    return section("left-out", "Left out", lead=[lead], lists=[listing], tables=[table], is_folded=True)


def ranking_section(recommendation: Recommendation) -> Section:
    """Return the section with the table of all ranked offers."""
    ranked = _all_rows(recommendation)
    rows = sorted(ranked, key=lambda row: not row.quote.is_candidate)
    more: tuple[ColumnOf[RankedQuote], ...] = (
        column("kind", lambda row: KIND_NAMES[row.quote.device.kind], is_choice=True),
        column("tier", lambda row: row.quote.tier, is_choice=True),
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
    doubtful = (
        "" if all(row.quote.is_candidate for row in rows) else ", after them those that may not head the answer (?)"
    )
    lead = f"{_FIRST[recommendation.job.objective]} first{doubtful}. Click a column's heading to sort by it."
    return section("ranking", "Ranking", lead=[lead], tables=[table])


def _headline_place(rows: Sequence[RankedQuote]) -> int:
    """Return the place of the row that heads the answer: the first that may, or the first of all."""
    return next((place for place, row in enumerate(rows) if row.quote.may_lead), 0)


def _all_rows(recommendation: Recommendation) -> tuple[RankedQuote, ...]:
    return table_rows(recommendation, top=max(1, len(recommendation.quotes)))


def cost_time_section(recommendation: Recommendation) -> Section:
    """Return the section that plots cost against time for all offers, with the Pareto front."""
    job, unit = recommendation.job, unit_of(recommendation)
    rows = [row for row in _all_rows(recommendation) if row.quote.job_usd.mid > 0]  # a logarithmic axis has no 0
    front = sorted((row for row in rows if row.quote.on_pareto_front), key=lambda row: row.quote.job_usd.mid)
    best = [row for row in rows if row.quote is recommendation.best]
    others = [row for row in rows if row.rank is not None and not row.quote.on_pareto_front and row not in best]
    here = [row for row in rows if row.rank is None]
    series = []
    for kind, (color, symbol) in KIND_MARKS.items():
        of_kind = tuple(_point(row, job) for row in others if row.quote.device.kind == kind)
        series.append(Series(name=KIND_NAMES[kind], color=color, symbol=symbol, points=of_kind, is_faint=True))
    at_front, at_best, at_hand = (tuple(_with_intervals(row, job) for row in those) for those in (front, best, here))
    named = tuple(replace(point, name=point.text.partition("\n")[0]) for point in at_best)
    title = "Pareto front: no other offer is both cheaper and faster; with 90 % intervals"
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
        column("cost [90 %]", lambda row: money_interval(row.cost_usd, rate=row.rate), lambda row: row.cost_usd.mid),
        numbers(f"{_time_name(job, unit)} [90 %]", lambda row: _time(row, job), interval_text),
    )
    cost_name = "cost per month" if job.requests_per_day is not None else amount_name("cost", job, unit)
    chart = Chart(
        title=f"Cost and {_time_name(job, unit)} of every offer",
        x=Axis(label=_time_name(job, unit), unit="s"),
        y=Axis(label=cost_name, unit="money"),
        series=tuple(one for one in series if one.points),
        table=table_of([*best, *(row for row in front if row not in best), *here], columns, title=_FRONT),
    )
    lead = f"Pareto front: {len(front)} of {len(recommendation.quotes):,} offers. All others cost more and take longer."
    return section("cost-time", "Cost against time", lead=[lead], plots=[chart])


def amount_name(what: str, job: Job, unit: SampleUnit | None) -> str:
    """Return the name of an axis: of the cost or the time of the job, or of so many samples if it has no size."""
    if unit is None:
        return f"{what} of the job"
    return f"{what} per {unit.name} {'samples' if job.generation is None else 'requests'}"


def _time_name(job: Job, unit: SampleUnit | None) -> str:
    """Return the name of the time axis."""
    return amount_name("time", job, unit) if job.requests_per_day is None else "99th percentile of the latency"


def _time(row: RankedQuote, job: Job) -> Interval:
    """Return the time of the job, of so many samples without a size, or the 99th percentile of a service."""
    quote = row.quote
    if row.unit is not None:
        return row.unit.of(quote.job_s)
    if job.requests_per_day is None or quote.p99_s is None:
        return quote.job_s
    ratios = (end / quote.step_s.mid for end in (quote.step_s.mid, quote.step_s.low, quote.step_s.high))
    mid, low, high = (quote.p99_s * ratio for ratio in ratios)
    return Interval(mid=mid, low=low, high=high)


def _point(row: RankedQuote, job: Job) -> Point:
    cost, time = in_currency(row.cost_usd, rate=row.rate), _time(row, job)
    text = (
        f"{row.quote.provider} {instance_label(row.quote)}\n{device_label(row.quote)}\n"
        f"{money_interval(row.cost_usd, rate=row.rate)} in {interval_text(time)}\n"
        f"{batch_text(row.quote.batch, job.generation)}, {row.quote.precision}"
    )
    return Point(x=time.mid, y=cost.mid, text=text)


def _with_intervals(row: RankedQuote, job: Job) -> Point:
    cost, time = in_currency(row.cost_usd, rate=row.rate), _time(row, job)
    return replace(_point(row, job), x_low=time.low, x_high=time.high, y_low=cost.low, y_high=cost.high)
