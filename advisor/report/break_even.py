"""Makes the break-even answer and the report's section: a rule of thumb in numbers, then the curves."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from advisor import units
from advisor.records.answer import ApiComparison, Contender, Crossing, CurvePoint, Interval, Job
from advisor.records.break_even_curves import BreakEven, Curve
from advisor.records.device import DeviceKind
from advisor.records.generation import Generation
from advisor.records.price import ExchangeRate
from advisor.records.sample_words import batch_text, samples_text
from advisor.report.amounts import count_text, in_currency, money_interval, money_text, number_text, rate_note
from advisor.report.content import (
    Axis,
    Block,
    Chart,
    Listing,
    Paragraph,
    Rule,
    Section,
    Series,
    Warnings,
    interval_points,
)
from advisor.report.marks import KIND_MARKS, KIND_NAMES
from advisor.report.tables import ColumnOf, column, numbers, table_of

_SHOWN_COUNT = 5
"""Number of points of a curve in its table; JSON has all."""
_NAMED_COUNT = 3
_COUNTED_BELOW = 1_000_000
"""Larger numbers are abbreviated, to leave room for the names of instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variable:
    """The words for what a curve runs over: its title, the heading of a column, the label of an axis, and a place.

    `place` has `{}` for the number, and `{s}` for a plural: "3,930 requests per day", "width 256".
    """

    title: str
    heading: str
    axis: str
    place: str


def _variable(curve: Curve, generation: Generation | None) -> _Variable:
    sample = "sample" if generation is None else "request"
    match curve.kind:
        case "batch" if generation is None:
            return _Variable(title="By batch size", heading="batch", axis="batch size", place="batch {}")
        case "batch":
            axis = "requests in flight"
            return _Variable(title=f"By {axis}", heading="in flight", axis=axis, place="{} request{s} in flight")
        case "requests_per_day":
            title = "By requests per day: monthly cost of a service that is always on"
            return _Variable(title=title, heading="per day", axis="requests per day", place="{} request{s} per day")
        case "samples":
            title = f"By number of {sample}s: with start-up time and minimum billing"
            axis = f"{sample}s of the job"
            return _Variable(title=title, heading=f"{sample}s", axis=axis, place=f"{{}} {sample}{{s}}")
        case "parameter":
            traced = ", ".join(f"{point.at:,}" for point in curve.points)
            title = f"By {curve.name}: traced at {traced}, linear interpolation in between"
            return _Variable(title=title, heading=curve.name, axis=curve.name, place=f"{curve.name} {{}}")


def break_even_content(break_even: BreakEven) -> Iterator[Block]:
    """Yield the rule of thumb, then each curve as sentences and a table of a few points."""
    generation, rate = break_even.job.generation, break_even.exchange_rate
    money = money_text(rate)
    yield Paragraph(title=f"{break_even.workload}: the cheapest CPU and the cheapest GPU, {_job(break_even.job)}")
    folk_rule, *others = _listings(break_even)
    yield folk_rule
    for curve in break_even.curves:
        over = _variable(curve, generation)
        yield Listing(title=over.title, items=tuple(verdict(curve, generation=generation)))
        yield table_of(_shown(curve), _columns(over.heading, "cost", _short_count, lambda usd: money(usd.mid)))
    yield from others
    yield Listing(title="Notes", items=(*(f"{note}." for note in rate_note(rate)), *break_even.notes))
    yield Warnings(items=break_even.warnings)


def break_even_section(break_even: BreakEven) -> Section:
    """Return the section on where the cheapest CPU and the cheapest GPU cost the same."""
    generation, rate = break_even.job.generation, break_even.exchange_rate
    return Section(
        id="break-even",
        title="Break-even",
        lead=("The cheapest CPU and the cheapest GPU at each point. Bands are 90 % intervals.",),
        lists=_listings(break_even),
        plots=tuple(_chart(curve, generation, rate=rate) for curve in break_even.curves),
    )


def _listings(break_even: BreakEven) -> tuple[Listing, ...]:
    """Return the rule of thumb, the comparison with an API, and what has no curve."""
    folk_rule = "Rule of thumb (use a GPU if its speedup exceeds its price ratio), in numbers"
    of_api = api_sentences(break_even.api, break_even.job, rate=break_even.exchange_rate)
    return (
        Listing(title=folk_rule, items=tuple(_folk_rule(break_even))),
        Listing(title="A service of your own, or an API", items=tuple(of_api)),
        Listing(title="Not shown", items=break_even.left_out),
    )


def _chart(curve: Curve, generation: Generation | None, *, rate: ExchangeRate | None) -> Chart:
    over = _variable(curve, generation)
    columns = _columns(over.axis, "cost [90 %]", count_text, lambda usd: money_interval(usd, rate=rate))
    series = []
    for kind, (color, symbol) in KIND_MARKS.items():
        found = [(point.at, one) for point in curve.points if (one := _contender(point, kind)) is not None]
        points = interval_points(
            (
                at,
                in_currency(one.job_usd, rate=rate),
                f"{at:,}: {contender_label(one)}\n{one.device.name}, {batch_text(one.batch, generation)}\n"
                f"{money_interval(one.job_usd, rate=rate)}",
            )
            for at, one in found
            if one.job_usd.mid > 0
        )
        name = f"cheapest {KIND_NAMES[kind]}"
        series += [Series(name=name, color=color, symbol=symbol, points=points, has_line=True)] if points else []
    return Chart(
        title=over.title,
        notes=(" ".join(verdict(curve, generation=generation)),),
        x=Axis(label=over.axis, unit="count"),
        y=Axis(label="cost per month" if curve.kind == "requests_per_day" else "cost of the job", unit="money"),
        series=tuple(series),
        rules=tuple(Rule(x=crossing.at, name=number_text(crossing.at)) for crossing in curve.crossings),
        table=table_of(curve.points, columns, title=over.title),
    )


def _columns(
    over: str, cost_heading: str, count: Callable[[int], str], cost: Callable[[Interval], str]
) -> list[ColumnOf[CurvePoint]]:
    """Return the columns of a curve's table: the point, the name and cost of both contenders, and their ratio."""
    at: ColumnOf[CurvePoint] = numbers(over, lambda point: point.at, count)
    ratio: ColumnOf[CurvePoint] = numbers(
        "CPU / GPU", lambda point: point.cost_ratio, lambda ratio: units.format_times(ratio.mid)
    )
    return [at, *_of_kind("cpu", cost_heading, cost), *_of_kind("gpu", cost_heading, cost), ratio]


def _of_kind(kind: DeviceKind, cost_heading: str, cost: Callable[[Interval], str]) -> Iterator[ColumnOf[CurvePoint]]:
    yield column(KIND_NAMES[kind], lambda point: contender_label(one) if (one := _contender(point, kind)) else "-")
    yield numbers(cost_heading, lambda point: one.job_usd if (one := _contender(point, kind)) else None, cost)


def _contender(point: CurvePoint, kind: DeviceKind) -> Contender | None:
    return point.gpu if kind == "gpu" else point.cpu


def _job(job: Job) -> str:
    if job.requests_per_day is not None:
        return f"{job.mode}, {job.requests_per_day:,} requests per day"
    busy = " on a device that is always busy" if job.assumed else ""
    return f"{job.mode}, {samples_text(job.samples, job.generation)}{busy}"


def _folk_rule(break_even: BreakEven) -> Iterator[str]:
    """Yield the price ratio and speedup of the GPU, and the resulting cost ratio."""
    rule = break_even.folk_rule
    if rule is None:
        return
    generation, hourly = break_even.job.generation, money_text(break_even.exchange_rate, digits=3)
    gpu, cpu = (
        f"{contender_label(one)} ({one.device.name}, {hourly(one.usd_per_hour)} per hour, "
        f"{batch_text(one.batch, generation)})"
        for one in (rule.gpu, rule.cpu)
    )
    doubt = doubt_of(rule.gpu if rule.cost_ratio.mid > 1 else rule.cpu)
    compared = f"{_times(rule.speed_ratio)} {'faster' if rule.speed_ratio.mid >= 1 else 'as fast'}"
    yield (
        f"the GPU costs {units.format_significant(rule.price_ratio)}x as much per hour and is {compared}: {gpu} vs. "
        f"{cpu}."
    )
    perhaps, why = perhaps_of(doubt)
    yield f"the job {perhaps}costs {_times(rule.cost_ratio)} as much on the CPU as on the GPU{why}."


def contender_label(one: Contender) -> str:
    """Return "aws g6.xlarge", or "3x aws g6.xlarge" if a service needs several."""
    return one.name if one.instance_count == 1 else f"{one.instance_count:,}x {one.name}"


def doubt_of(one: Contender) -> str:
    """Return why an offer may not be as cheap as it looks; "" if it may head an answer."""
    if one.is_candidate:
        return ""
    if not one.price_is_trusted:
        return f"the price of {one.name} is in doubt"
    return f"no measurement backs the time of {one.name}"


def perhaps_of(doubt: str) -> tuple[str, str]:
    """Return what stands before a claim that is in doubt, and what behind it."""
    return ("perhaps ", f" ({doubt})") if doubt else ("", "")


def _times(ratio: Interval) -> str:
    mid, low, high = (units.format_significant(value) for value in (ratio.mid, ratio.low, ratio.high))
    return f"{mid}x [{low}-{high}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of a curve where one kind of device is cheaper, or the only one (`is_alone`); the last has no `end`.

    - `is_in_doubt`: at every point the offer that is cheaper has a doubtful price or an unmeasured time
    """

    kind: DeviceKind
    is_alone: bool
    end: Crossing | None
    is_in_doubt: bool = False


def stretches(curve: Curve) -> tuple[Stretch, ...]:
    """Return the parts of the curve between its crossings; none if no device can run the job at any point."""
    points = [point for point in curve.points if point.cpu or point.gpu]
    starts = [*points[:1], *(_after(points, crossing) for crossing in curve.crossings)]

    def is_in_doubt(start: CurvePoint, end: Crossing | None) -> bool:
        inside = (point for point in points if point.at >= start.at and (end is None or point.at < end.at))
        return all(map(_doubt_at, inside))

    return tuple(
        Stretch(
            kind=_cheaper(start),
            is_alone=start.cpu is None or start.gpu is None,
            end=end,
            is_in_doubt=is_in_doubt(start, end),
        )
        for start, end in zip(starts, (*curve.crossings, None), strict=False)
    )


def api_sentences(api: ApiComparison | None, job: Job, *, rate: ExchangeRate | None) -> Iterator[str]:
    """Yield what an API charges, and from how many requests per day on a service of one's own is cheaper."""
    if api is None:
        return
    price, money = api.price, money_text(rate, digits=3)
    dated = f" (price of {price.date})" if price.date else ""
    yield (
        f"The API at {money(price.input_usd_per_mtok)} and {money(price.output_usd_per_mtok)} per million tokens of "
        f"prompts and answers charges {money(1e6 * api.usd_per_request)} per million requests{dated}."
    )
    if job.requests_per_day is not None and api.usd_per_month is not None:
        load = number_text(job.requests_per_day)
        yield f"At {load} requests per day it charges {money(api.usd_per_month)} per month."
    name, (perhaps, why) = contender_label(api.own), perhaps_of(doubt_of(api.own))
    if api.crossing is not None:
        start, own = _interval(api.crossing), f"{name}, {money(api.own.job_usd.mid)} per month{why}"
        yield f"A service of your own is {perhaps}cheaper from {start} requests per day on: {own}."
    else:
        cost, load = money(1e6 * api.own_usd_per_request), units.format_count(api.requests_per_day)
        yield f"A service of your own is cheaper at no load: {load} requests per day cost {cost} per million ({name})."


def _interval(crossing: Crossing) -> str:
    low, high = (number_text(at) if at is not None else "?" for at in (crossing.low, crossing.high))
    return f"{number_text(crossing.at)} [{low}-{high}]"


def end_text(end: Crossing, *, following: Stretch) -> str:
    """Return "1,087 [364-2,788]", with "?" for an end beyond the curve; no interval if one kind can no longer run."""
    return number_text(end.at) if following.is_alone else _interval(end)


def verdict(curve: Curve, *, generation: Generation | None = None) -> Iterator[str]:
    """Yield which kind is cheaper on which part of the curve, and where it is too close to call or in doubt."""

    def place(number: str) -> str:
        return over.place.format(number, s="" if number == "1" else "s")

    parts, over = stretches(curve), _variable(curve, generation)
    if not parts:
        yield "no CPU and no GPU can run the job within the limits."
        return
    points = [point for point in curve.points if point.cpu or point.gpu]
    beyond = [place(number_text(point.at)) for point in curve.points if point.at > points[-1].at]
    if len(parts) == 1:
        first, last = (place(number_text(point.at)) for point in (points[0], points[-1]))
        yield f"{_winner(parts[0])} everywhere from {first} to {last}."
    else:
        ended = [
            f"{_winner(one)} below {place(end_text(one.end, following=following))}"
            for one, following in pairwise(parts)
            if one.end is not None
        ]
        if len(ended) > _NAMED_COUNT:
            ended[_NAMED_COUNT:] = [f"{len(ended) - _NAMED_COUNT} more changes"]
        end = parts[-1]
        if len(parts) == 2 and not beyond and not any(one.is_alone for one in parts):
            yield f"{ended[0]}, {'perhaps ' if end.is_in_doubt else ''}a {KIND_NAMES[end.kind]} above."
        else:
            limit = f"up to {place(number_text(points[-1].at))}" if beyond else "above that"
            yield f"{', then '.join((*ended, _winner(end)))} {limit}."
    if beyond:
        yield f"no CPU and no GPU can run the job at {beyond[0]}{' or more' if len(beyond) > 1 else ''}."
    open_count = sum(one.cost_ratio is not None and is_too_close(one.cost_ratio) for one in points)
    if open_count:
        yield f"too close to call at {open_count} of {len(points)} points (90 % interval of the cost ratio includes 1)."
    if doubts := [doubt for point in points if (doubt := _doubt_at(point))]:
        named = list(dict.fromkeys(doubts))
        more = f" and {len(named) - _NAMED_COUNT} more" if len(named) > _NAMED_COUNT else ""
        yield f"uncertain at {len(doubts)} of {len(points)} points: {', '.join(named[:_NAMED_COUNT])}{more}."


def is_too_close(ratio: Interval) -> bool:
    """Return whether a ratio of costs may be below or above 1."""
    return ratio.low <= 1 <= ratio.high


def _winner(stretch: Stretch) -> str:
    cheaper = "is perhaps cheaper" if stretch.is_in_doubt else "is cheaper"
    return f"a {KIND_NAMES[stretch.kind]} {'is the only option' if stretch.is_alone else cheaper}"


def _cheaper(point: CurvePoint) -> DeviceKind:
    if point.cpu is None or point.gpu is None:
        return "gpu" if point.cpu is None else "cpu"
    return "gpu" if point.gpu.job_usd.mid < point.cpu.job_usd.mid else "cpu"


def _doubt_at(point: CurvePoint) -> str:
    """Return why the cheaper kind may not be so; "" if it may head an answer, or is alone."""
    cheaper = _contender(point, _cheaper(point))
    return "" if cheaper is None or point.cost_ratio is None else doubt_of(cheaper)


def _after(points: Sequence[CurvePoint], crossing: Crossing) -> CurvePoint:
    return next(point for point in points if point.at >= crossing.at)


def _shown(curve: Curve) -> list[CurvePoint]:
    """Return the points to show: both ends, the points around the crossings, and others evenly spaced."""
    count = len(curve.points)
    after = [curve.points.index(_after(curve.points, crossing)) for crossing in curve.crossings[:_NAMED_COUNT]]
    spread = [round(step * (count - 1) / (_SHOWN_COUNT - 1)) for step in range(_SHOWN_COUNT)]
    chosen = {0, count - 1, *after, *(index - 1 for index in after)}
    for index in spread:
        if len(chosen) < _SHOWN_COUNT:
            chosen.add(index)
    return [curve.points[index] for index in sorted(chosen)]


def _short_count(count: int) -> str:
    return number_text(count) if count < _COUNTED_BELOW else units.format_count(count)
