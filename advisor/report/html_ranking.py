"""Makes the report's ranked table and its plot of cost against time."""

from collections.abc import Mapping

from advisor.records.answer import Interval, Job, Recommendation
from advisor.records.options import Objective
from advisor.records.sample_words import batch_text
from advisor.report import sentence
from advisor.report.html_parts import Axis, Chart, Point, Section, Series, Table, TableColumn
from advisor.report.interval_text import interval_text
from advisor.report.money import in_currency, money_interval
from advisor.report.quote_columns import Column, RankedQuote, device_label, instance_label, table_rows
from advisor.report.token_columns import columns_for

_KIND_NAMES = {"cpu": "CPU", "gpu": "GPU"}
_MORE_COLUMNS = (
    Column(header="kind", cell=lambda row: _KIND_NAMES[row.quote.device.kind]),
    Column(header="tier", cell=lambda row: row.quote.tier),
)
_ORDER = (
    "#", "instance", "per Mtok", "cost", "device", "provider", "step [90 %]", "TTFT", "TPOT [90 %]", "tokens/s",
    "cheapest", "per h",
)  # fmt: skip
"""The most important columns come first; the others follow in their usual order."""
_FIRST: Mapping[Objective, str] = {"cost": "Cheapest", "time": "Fastest", "cost-time": "Lowest cost x time"}
_CHOICES = ("provider", "kind", "tier", "precision", "bound")


def ranking_section(recommendation: Recommendation) -> Section:
    """Return the section with the table of all ranked offers."""
    rows = table_rows(recommendation, top=max(1, len(recommendation.quotes)))
    columns = sorted((*columns_for(rows), *_MORE_COLUMNS), key=_place)
    table = Table(
        title="Every offer",
        columns=tuple(
            TableColumn(
                header=column.header,
                is_number=column.is_number,
                keys=tuple(column.number(row) for row in rows) if column.number else (),
                is_choice=column.header in _CHOICES,
            )
            for column in columns
        ),
        rows=tuple(tuple(column.cell(row) for column in columns) for row in rows),
        notes=sentence.table_notes(rows, quote_count=len(recommendation.quotes)),
    )
    lead = f"{_FIRST[recommendation.job.objective]} first. Click a column's heading to sort by it."
    return Section(id="ranking", title="Ranking", lead=(lead,) if rows else (), tables=(table,) if rows else ())


def _place(column: Column) -> int:
    return _ORDER.index(column.header) if column.header in _ORDER else len(_ORDER)


def cost_time_section(recommendation: Recommendation) -> Section:
    """Return the section that plots cost against time for all offers, with the Pareto front."""
    job, rows = recommendation.job, table_rows(recommendation, top=max(1, len(recommendation.quotes)))
    rows = tuple(row for row in rows if row.quote.job_usd.mid > 0)  # a logarithmic axis has no 0
    front = sorted((row for row in rows if row.quote.on_pareto_front), key=lambda row: row.quote.job_usd.mid)
    ranked = [row for row in rows if row.rank is not None and not row.quote.on_pareto_front]
    here = [row for row in rows if row.rank is None]
    groups = (
        Series(name="GPU", color=1, symbol="triangle", points=_points(ranked, job, kind="gpu"), is_faint=True),
        Series(name="CPU", color=2, symbol="circle", points=_points(ranked, job, kind="cpu"), is_faint=True),
        Series(
            name="Pareto front: no other offer is both cheaper and faster; with 90 % intervals",
            color=3,
            symbol="diamond",
            points=tuple(_point(row, job, has_interval=True) for row in front),
            has_line=True,
        ),
        Series(
            name="the local machine",
            color=4,
            symbol="star",
            points=tuple(_point(row, job, has_interval=True) for row in here),
        ),
    )
    series = tuple(one for one in groups if one.points)
    if not series:
        return Section(id="cost-time", title="Cost against time")
    chart = Chart(
        title=f"Cost and {_time_name(job)} of every offer",
        x=Axis(label=f"{_time_name(job)}", unit="s"),
        y=Axis(label="cost per month" if job.requests_per_day is not None else "cost of the job", unit="money"),
        series=series,
        table=_front_table([*front, *here], job),
    )
    lead = f"Pareto front: {len(front)} of {len(recommendation.quotes):,} offers. All others cost more and take longer."
    return Section(id="cost-time", title="Cost against time", lead=(lead,), plots=(chart,))


def _time_name(job: Job) -> str:
    """Return the name of the time axis; in LLM serving, a step lasts as long as each of its answers."""
    if job.requests_per_day is None:
        return "time of the job"
    return "time of a step" if job.generation is None else "time of an answer"


def _time(row: RankedQuote, job: Job) -> Interval:
    """Return the time of the job, or of a step for a service, which never ends."""
    return row.quote.job_s if job.requests_per_day is None else row.quote.step_s


def _points(rows: list[RankedQuote], job: Job, *, kind: str) -> tuple[Point, ...]:
    return tuple(_point(row, job) for row in rows if row.quote.device.kind == kind)


def _point(row: RankedQuote, job: Job, *, has_interval: bool = False) -> Point:
    cost, time = in_currency(row.quote.job_usd, rate=row.rate), _time(row, job)
    batch = batch_text(row.quote.batch, job.generation)
    text = (
        f"{row.quote.provider} {instance_label(row.quote)}\n{device_label(row.quote)}\n"
        f"{_cost_text(row)} in {interval_text(time)}\n{batch}, {row.quote.precision}"
    )
    if not has_interval:
        return Point(x=time.mid, y=cost.mid, text=text)
    return Point(x=time.mid, y=cost.mid, text=text, x_low=time.low, x_high=time.high, y_low=cost.low, y_high=cost.high)


def _cost_text(row: RankedQuote) -> str:
    return money_interval(row.quote.job_usd, rate=row.rate)


def _front_table(rows: list[RankedQuote], job: Job) -> Table:
    return Table(
        title="The Pareto front",
        columns=(
            TableColumn(header="#", is_number=True, keys=tuple(row.rank for row in rows)),
            TableColumn(header="provider"),
            TableColumn(header="instance"),
            TableColumn(header="device"),
            TableColumn(header="cost [90 %]", is_number=True, keys=tuple(row.quote.job_usd.mid for row in rows)),
            TableColumn(
                header=f"{_time_name(job)} [90 %]", is_number=True, keys=tuple(_time(row, job).mid for row in rows)
            ),
        ),
        rows=tuple(
            (
                "-" if row.rank is None else f"{row.rank:,}",
                row.quote.provider,
                instance_label(row.quote),
                device_label(row.quote),
                _cost_text(row),
                interval_text(_time(row, job)),
            )
            for row in rows
        ),
    )
