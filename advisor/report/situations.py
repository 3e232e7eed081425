"""Says when to use a CPU and when a GPU, and which offers to choose from for a job with a size."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from advisor import units
from advisor.records.answer import (
    Alternative,
    Choice,
    Contender,
    Interval,
    Job,
    Quote,
    Recommendation,
    Situation,
    SituationKind,
)
from advisor.records.break_even_curves import DECADE_COUNT
from advisor.records.device import DeviceKind
from advisor.records.price import ExchangeRate
from advisor.records.sample_words import samples_noun
from advisor.report.amounts import SampleUnit, money_interval, money_text, number_text, sample_unit
from advisor.report.break_even import contender_label, doubt_of, is_too_close, perhaps_of
from advisor.report.content import Section, Table
from advisor.report.marks import KIND_NAMES
from advisor.report.quote_columns import device_label, instance_label
from advisor.report.tables import ColumnOf, column, table_of

_USES: Mapping[SituationKind, str] = {"busy": "full load", "once": "job of", "service": "service"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One side of a situation."""

    situation: Situation
    kind: DeviceKind
    contender: Contender


def when_to_use_which(recommendation: Recommendation) -> str:
    """Return one sentence on the kind of device for each use; nothing if the job has a size or one kind is missing."""
    noun = samples_noun(recommendation.job.generation)
    parts = [
        _sentence(one, ratio, noun, doubt=_doubt_of_cheaper(one, ratio, recommendation))
        for one in recommendation.situations
        if (ratio := one.point.cost_ratio) is not None
    ]
    said = "; ".join(parts)
    return f"{said[:1].upper()}{said[1:]}." if parts else ""


def situation_tables(recommendation: Recommendation) -> Iterator[Table]:
    """Yield the table with the best CPU and the best GPU of each use, if there is any."""
    rate = recommendation.exchange_rate
    rows = [
        _Row(situation=one, kind=kind, contender=contender)
        for one in recommendation.situations
        for kind, contender in _sides(one).items()
    ]
    if rows:
        yield table_of(
            rows,
            (
                column("use", lambda row: _use(row.situation) if row.kind == "cpu" else ""),
                column("", lambda row: KIND_NAMES[row.kind]),
                column("best", lambda row: f"{contender_label(row.contender)}{_doubt_in_ranking(row, recommendation)}"),
                column("cost", lambda row: _cost(row, rate=rate)),
                column("speed", _speed),
                column("", lambda row: _verdict(row, recommendation)),
            ),
            title="CPU or GPU?",
            notes=_notes(rows, recommendation),
        )


def when_section(recommendation: Recommendation) -> Section:
    """Return the section on the uses of the model, or on the choices for a job with a size."""
    tables = (*situation_tables(recommendation), *choice_tables(recommendation), *alternative_tables(recommendation))
    lead = when_to_use_which(recommendation)
    title = "When to use which" if lead or not tables else tables[0].title
    return Section(id="when", title=title, lead=(lead,) if lead else (), tables=tables)


def choice_tables(recommendation: Recommendation) -> Iterator[Table]:
    """Yield the table of the cheapest, the balanced and the fastest offer, unless one offer is all three."""
    by_quote: dict[tuple[str, int, int], tuple[list[Choice], Quote]] = {}
    for choice, quote in recommendation.choices.items():
        by_quote.setdefault((quote.id, quote.instance_count, quote.batch), ([], quote))[0].append(choice)
    if len(by_quote) < 2:
        return
    rate, (cost, time) = recommendation.exchange_rate, _headings(recommendation.job)
    columns: tuple[ColumnOf[tuple[list[Choice], Quote]], ...] = (
        column("choice", lambda row: ", ".join(row[0])),
        column("instance", lambda row: f"{row[1].provider} {instance_label(row[1])}{_doubt(row[1])}"),
        column("device", lambda row: device_label(row[1]), drop_order=1),
        column(cost, lambda row: money_interval(row[1].job_usd, rate=rate)),
        column(time, lambda row: units.format_duration(row[1].time_s)),
    )
    yield table_of(
        by_quote.values(),
        columns,
        title="Choices",
        notes=("fastest: at most twice the cost; balanced: the lowest cost x time of these.",),
    )


def alternative_tables(recommendation: Recommendation) -> Iterator[Table]:
    """Yield the table of offers outside the limits, if no offer keeps all of them."""
    if not recommendation.alternatives:
        return
    job, rate, (cost, time) = recommendation.job, recommendation.exchange_rate, _headings(recommendation.job)
    columns: tuple[ColumnOf[Alternative], ...] = (
        column("", lambda one: _alternative(one, job, rate=rate)),
        column("instance", lambda one: f"{one.quote.provider} {instance_label(one.quote)}{_doubt_outside(one.quote)}"),
        column("batch", lambda one: f"{one.quote.batch:,}", drop_order=1),
        column(cost, lambda one: units.format_money(one.quote.job_usd.mid, rate=rate)),
        column(time, lambda one: units.format_duration(one.quote.time_s)),
    )
    has_doubt = any(_doubt_outside(one.quote) for one in recommendation.alternatives)
    notes = (
        *(
            ["%: the share of the job that is done."]
            if any(one.done_ratio < 1 for one in recommendation.alternatives)
            else []
        ),
        *(["? its price is too old, or no measurement backs its time."] if has_doubt else []),
    )
    yield table_of(recommendation.alternatives, columns, title="Closest to the limits", notes=notes)


def _headings(job: Job) -> tuple[str, str]:
    """Return the headings of cost and time."""
    return ("cost", "time") if job.requests_per_day is None else ("cost per month", "p99")


def _doubt(quote: Quote) -> str:
    return "" if quote.may_lead else " ?"


def _doubt_in_ranking(row: _Row, recommendation: Recommendation) -> str:
    """Return the mark of the ranking for the cheapest offer of a kind, which is judged among its kind alone."""
    best = recommendation.best
    return "" if row.contender.is_candidate or (best is not None and best.id == row.contender.id) else " ?"


def _doubt_outside(quote: Quote) -> str:
    """Return the mark of an offer outside the limits, also if it leads: a single limit may leave no measured offer."""
    return " ?" if quote.time_source == "datasheet" else _doubt(quote)


def _alternative(one: Alternative, job: Job, *, rate: ExchangeRate | None) -> str:
    share = "" if one.done_ratio == 1 else f" ({units.format_significant(100 * one.done_ratio)} %)"
    match one.kind:
        case "cheapest" | "fastest":
            return f"{one.kind} without limits"
        case "budget":
            within = f"within {units.format_money(job.limits.max_usd or 0.0, rate=rate)} alone:"
        case "deadline":
            within = f"within {units.format_duration(job.limits.deadline_s or 0.0)} alone:"
        case "split":
            return "split by hand over several machines"
        case "flag":
            within = "with" if one.done_ratio == 1 else "within all limits:"
    return f"{within} {one.flag or 'the whole job'}{share}"


def _sides(one: Situation) -> Mapping[DeviceKind, Contender]:
    sides: dict[DeviceKind, Contender | None] = {"cpu": one.point.cpu, "gpu": one.point.gpu}
    return {kind: side for kind, side in sides.items() if side is not None}


def _use(one: Situation) -> str:
    size = f" {units.format_count(one.point.at)}" if one.kind == "once" else ""
    return f"{_USES[one.kind]}{size}"


def _cost(row: _Row, *, rate: ExchangeRate | None) -> str:
    money, usd = money_text(rate), row.contender.job_usd
    match row.situation.kind:
        case "busy":
            unit = busy_unit(row.situation)
            return f"{money(unit.of(usd).mid)}/{unit.symbol}"
        case "once":
            return money(usd.mid)
        case "service":
            return f"{money(usd.mid)}/mo"


def busy_unit(one: Situation) -> SampleUnit:
    """Return the unit of samples in which the lower cost of devices at full load is readable."""
    return sample_unit(min(side.job_usd.mid for side in _sides(one).values()), job_samples=one.point.at)


def _speed(row: _Row) -> str:
    match row.situation.kind:
        case "busy":
            return f"{units.format_rate(row.contender.samples_per_s)}/s"
        case "once":
            return units.format_duration(row.contender.job_s.mid)
        case "service":
            return units.format_duration(row.contender.step_s.mid)


def _verdict(row: _Row, recommendation: Recommendation) -> str:
    ratio = row.situation.point.cost_ratio
    if ratio is None or row.kind != _cheaper(ratio):
        return ""
    if is_too_close(ratio):
        return "too close"
    is_doubtful = _doubt_of_cheaper(row.situation, ratio, recommendation)
    return f"perhaps {times_cheaper(ratio)}" if is_doubtful else f"{times_cheaper(ratio)} cheaper"


def _doubt_of_cheaper(one: Situation, ratio: Interval, recommendation: Recommendation) -> str:
    """Return why the cheaper side may not be so; "" if it may head an answer, or heads this one."""
    side, best = _sides(one)[_cheaper(ratio)], recommendation.best
    return "" if best is not None and best.id == side.id else doubt_of(side)


def _cheaper(ratio: Interval) -> DeviceKind:
    return "gpu" if ratio.mid > 1 else "cpu"


def times_cheaper(ratio: Interval) -> str:
    """Return how many times less the cheaper side costs, such as "3.5x"."""
    return units.format_times(ratio.mid if ratio.mid > 1 else 1 / ratio.mid)


def _sentence(one: Situation, ratio: Interval, noun: str, *, doubt: str) -> str:
    """Return which kind is cheaper at full load, or up to where for one job or a service."""
    perhaps, why = perhaps_of(doubt)
    if one.kind == "busy":
        if is_too_close(ratio):
            return "at full load, neither a CPU nor a GPU is clearly cheaper"
        kind, other = ("GPU", "CPU") if ratio.mid > 1 else ("CPU", "GPU")
        return f"at full load, a {kind} is {perhaps}{times_cheaper(ratio)} cheaper than a {other}{why}"
    subject, unit = ("for one job", noun) if one.kind == "once" else ("for an always-on service", "requests per day")
    if not one.crossings:
        kind, most = KIND_NAMES[_cheaper(ratio)], units.format_count(10**DECADE_COUNT)
        return f"{subject}, a {kind} is {perhaps}cheaper up to at least {most} {unit}{why}"
    first, at_crossing = one.crossings[0], one.at_crossing
    below, above = ("CPU", "GPU") if first.cheaper == "gpu" else ("GPU", "CPU")
    doubts = dict.fromkeys(("CPU", "GPU"), "")
    if at_crossing is not None:
        sides = {"CPU": at_crossing.cpu, "GPU": at_crossing.gpu}
        doubts = {name: doubt_of(side) for name, side in sides.items() if side is not None}
    (perhaps, why), (perhaps_above, why_above) = perhaps_of(doubts.get(below, "")), perhaps_of(doubts.get(above, ""))
    said = f"{subject}, a {below} is {perhaps}cheaper below {number_text(first.at)} {unit}{why}"
    said += f", and {perhaps_above}a {above} above{why_above}" if perhaps_above else ""
    return said if len(one.crossings) == 1 else f"{said} (it changes again: `advise breakeven`)"


def _notes(rows: Sequence[_Row], recommendation: Recommendation) -> Iterator[str]:
    kinds = [row.situation.kind for row in rows]
    noun = samples_noun(recommendation.job.generation)
    service = "; service: always on, cost per month, one request at a time" if "service" in kinds else ""
    marks = [_doubt_in_ranking(row, recommendation) for row in rows]
    doubt = "; ? its price is in doubt, or no measurement backs its time" if any(marks) else ""
    yield (
        f"full load: compute time only, per million (M) or billion (B) {noun}; job: with start-up and minimum "
        f"billing{service}{doubt}."
    )
