"""Renders the break-even answer as text: a rule of thumb in numbers, then each curve as a sentence and a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from advisor import units
from advisor.records.answer import Interval, Job
from advisor.records.break_even_curves import BreakEven, Contender, Crossing, Curve, CurveKind, CurvePoint, FolkRule
from advisor.records.device import DeviceKind
from advisor.records.generation import Generation
from advisor.records.price import ExchangeRate
from advisor.records.sample_words import batch_text, samples_text
from advisor.report.money import rate_note
from advisor.report.text_page import Heading, Page
from advisor.report.view import View

_KINDS: Mapping[DeviceKind, str] = {"cpu": "CPU", "gpu": "GPU"}
_TITLES: Mapping[CurveKind, str] = {
    "batch": "By batch size",
    "requests_per_day": "By requests per day: monthly cost of a service that is always on",
    "samples": "By number of samples: with start-up time and minimum billing",
}
_TITLES_OF_SERVICE: Mapping[CurveKind, str] = {
    **_TITLES,
    "batch": "By requests in flight",
    "samples": "By number of requests: with start-up time and minimum billing",
}
_HEADINGS: Mapping[CurveKind, str] = {"batch": "batch", "requests_per_day": "per day", "samples": "samples"}
_HEADINGS_OF_SERVICE: Mapping[CurveKind, str] = {**_HEADINGS, "batch": "in flight", "samples": "requests"}
_FOLK_RULE = "Rule of thumb (use a GPU if its speedup exceeds its price ratio), in numbers:"
_SHOWN_COUNT = 5
"""Number of points of a curve in its table; JSON has all."""
_NAMED_COUNT = 3
_EXACT_BELOW = 10_000
_COUNTED_BELOW = 1_000_000
"""Larger numbers are abbreviated, to leave room for the names of instances."""


def render_break_even(break_even: BreakEven, *, view: View) -> str:
    """Return the whole answer, at most `view.width` characters wide."""
    page, rate = Page(width=view.width, color=view.color), break_even.exchange_rate
    generation = break_even.job.generation
    headings = _HEADINGS if generation is None else _HEADINGS_OF_SERVICE
    page.line(f"{break_even.workload}: the cheapest CPU and the cheapest GPU, {_job(break_even.job)}", style="bold")
    if break_even.folk_rule is not None:
        page.titled_list(
            "Rule of thumb (use a GPU if its speedup exceeds its price ratio), in numbers:",
            folk_rule_sentences(break_even.folk_rule, rate=rate, generation=generation),
        )
    for curve in break_even.curves:
        page.titled_list(f"{curve_title(curve, generation=generation)}:", verdict(curve, generation=generation))
        page.blank()
        page.table(
            [
                Heading(text=headings.get(curve.kind, curve.name), is_number=True),
                Heading(text="CPU"),
                Heading(text="cost", is_number=True),
                Heading(text="GPU"),
                Heading(text="cost", is_number=True),
                Heading(text="CPU / GPU", is_number=True),
            ],
            [_cells(point, rate=rate) for point in _shown(curve)],
        )
    page.titled_list("Not shown:", break_even.left_out)
    for note in rate_note(rate):
        page.line(note, style="dim")
    page.titled_list("Notes:", break_even.notes)
    page.titled_list("Warnings:", break_even.warnings, style="yellow")
    return page.text()


def _job(job: Job) -> str:
    if job.requests_per_day is not None:
        return f"{job.mode}, {job.requests_per_day:,} requests per day"
    busy = " on a device that is always busy" if job.assumed else ""
    return f"{job.mode}, {samples_text(job.samples, job.generation)}{busy}"


def folk_rule_sentences(
    rule: FolkRule, *, rate: ExchangeRate | None, generation: Generation | None = None
) -> Iterator[str]:
    """Yield the price ratio and speedup of the GPU, and the resulting cost ratio."""
    compared = f"{_times(rule.speed_ratio)} {'faster' if rule.speed_ratio.mid >= 1 else 'as fast'}"
    yield (
        f"the GPU costs {units.format_significant(rule.price_ratio)}x as much per hour and is {compared}: "
        f"{_contender(rule.gpu, generation, rate=rate)} vs. {_contender(rule.cpu, generation, rate=rate)}."
    )
    yield f"the job costs {_times(rule.cost_ratio)} as much on the CPU as on the GPU."


def _contender(one: Contender, generation: Generation | None, *, rate: ExchangeRate | None) -> str:
    hourly = units.format_money(one.usd_per_hour, rate=rate, digits=3)
    return f"{contender_label(one)} ({one.device.name}, {hourly} per hour, {batch_text(one.batch, generation)})"


def contender_label(one: Contender) -> str:
    """Return "aws g6.xlarge", or "3x aws g6.xlarge" if a service needs several."""
    return one.name if one.instance_count == 1 else f"{one.instance_count:,}x {one.name}"


def _times(ratio: Interval) -> str:
    mid, low, high = (units.format_significant(value) for value in (ratio.mid, ratio.low, ratio.high))
    return f"{mid}x [{low}-{high}]"


def curve_title(curve: Curve, *, generation: Generation | None = None) -> str:
    """Return the title of a curve: the variable it runs over."""
    if curve.kind != "parameter":
        return (_TITLES if generation is None else _TITLES_OF_SERVICE)[curve.kind]
    traced = ", ".join(f"{point.at:,}" for point in curve.points)
    return f"By {curve.name}: traced at {traced}, linear interpolation in between"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of a curve where one kind of device is cheaper, or the only one (`is_alone`); the last has no `end`."""

    kind: DeviceKind
    is_alone: bool
    end: Crossing | None


def stretches(curve: Curve) -> tuple[Stretch, ...]:
    """Return the parts of the curve between its crossings; none if no device can run the job at any point."""
    points = [point for point in curve.points if point.cpu or point.gpu]
    starts = [*points[:1], *(_after(points, crossing) for crossing in curve.crossings)]
    return tuple(
        Stretch(kind=_cheaper(start), is_alone=start.cpu is None or start.gpu is None, end=end)
        for start, end in zip(starts, (*curve.crossings, None), strict=False)
    )


def end_text(end: Crossing, *, following: Stretch) -> str:
    """Return "1,087 [364-2,788]", with "?" for an end beyond the curve; no interval if one kind can no longer run."""
    low, high = (number_text(at) if at is not None else "?" for at in (end.low, end.high))
    return number_text(end.at) if following.is_alone else f"{number_text(end.at)} [{low}-{high}]"


def verdict(curve: Curve, *, generation: Generation | None = None) -> Iterator[str]:
    """Yield which kind is cheaper on which part of the curve, and where it is too close to call."""
    parts = stretches(curve)
    if not parts:
        yield "no CPU and no GPU can run the job within the limits."
        return
    points = [point for point in curve.points if point.cpu or point.gpu]
    if len(parts) == 1:
        first, last = (_place(curve, number_text(point.at), generation) for point in (points[0], points[-1]))
        yield f"{_winner(parts[0])} everywhere from {first} to {last}."
    else:
        ended = [
            f"{_winner(one)} below {_place(curve, end_text(one.end, following=following), generation)}"
            for one, following in pairwise(parts)
            if one.end is not None
        ]
        if len(ended) > _NAMED_COUNT:
            ended[_NAMED_COUNT:] = [f"{len(ended) - _NAMED_COUNT} more changes"]
        yield f"{', then '.join((*ended, _winner(parts[-1])))} above that."
    open_count = sum(one.cost_ratio is not None and one.cost_ratio.low <= 1 <= one.cost_ratio.high for one in points)
    if open_count:
        yield f"too close to call at {open_count} of {len(points)} points (90 % interval of the cost ratio includes 1)."


def _winner(stretch: Stretch) -> str:
    return f"a {_KINDS[stretch.kind]} {'is the only option' if stretch.is_alone else 'is cheaper'}"


def _cheaper(point: CurvePoint) -> DeviceKind:
    if point.cpu is None or point.gpu is None:
        return "gpu" if point.cpu is None else "cpu"
    return "gpu" if point.gpu.job_usd.mid < point.cpu.job_usd.mid else "cpu"


def _after(points: Sequence[CurvePoint], crossing: Crossing) -> CurvePoint:
    return next(point for point in points if point.at >= crossing.at)


def _place(curve: Curve, number: str, generation: Generation | None) -> str:
    """Return a place on a curve: "batch 8", "3,930 requests per day", "width 256"."""
    sample = "sample" if generation is None else "request"
    nouns: dict[CurveKind, tuple[str, str]] = {"requests_per_day": ("request", " per day"), "samples": (sample, "")}
    if generation is not None:
        nouns["batch"] = ("request", " in flight")
    if curve.kind not in nouns:
        return f"{curve.name} {number}"
    noun, per = nouns[curve.kind]
    return f"{number} {noun}{'' if number == '1' else 's'}{per}"


def number_text(count: int) -> str:
    """Return a count as text, with three significant digits if it is large."""
    return f"{count if count < _EXACT_BELOW else round(float(f'{count:.3g}')):,}"


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


def _cells(point: CurvePoint, *, rate: ExchangeRate | None) -> tuple[str, ...]:
    costs = [
        (contender_label(one), units.format_money(one.job_usd.mid, rate=rate)) if one else ("-", "-")
        for one in (point.cpu, point.gpu)
    ]
    return (
        number_text(point.at) if point.at < _COUNTED_BELOW else units.format_count(point.at),
        *costs[0],
        *costs[1],
        units.format_times(point.cost_ratio.mid) if point.cost_ratio else "-",
    )
