"""Break-even as text for a terminal: the folk rule with figures, then each curve in a sentence and a short table."""

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
    "batch": "Over the batch",
    "requests_per_day": "Over requests a day: a service that is on all day, its cost of a month",
    "samples": "Over the samples of the job: start-up and what is billed at least count",
}
_TITLES_OF_SERVICE: Mapping[CurveKind, str] = {
    **_TITLES,
    "batch": "Over the requests in flight",
    "samples": "Over the requests of the job: start-up and what is billed at least count",
}
_HEADINGS: Mapping[CurveKind, str] = {"batch": "batch", "requests_per_day": "a day", "samples": "samples"}
_HEADINGS_OF_SERVICE: Mapping[CurveKind, str] = {**_HEADINGS, "batch": "in flight", "samples": "requests"}
_FOLK_RULE = "The folk rule (take a GPU if it is faster by more than it is dearer), in figures:"
_SHOWN_COUNT = 5
"""Points of a curve in its table; JSON has all."""
_NAMED_COUNT = 3
_EXACT_BELOW = 10_000
_COUNTED_BELOW = 1_000_000
"""Written out, more would leave the names of instances no room."""


def render_break_even(break_even: BreakEven, *, view: View) -> str:
    """The whole answer, at most `view.width` characters wide."""
    page, rate = Page(width=view.width, color=view.color), break_even.exchange_rate
    generation = break_even.job.generation
    headings = _HEADINGS if generation is None else _HEADINGS_OF_SERVICE
    page.line(f"{break_even.workload}: the cheapest CPU against the cheapest GPU, {_job(break_even.job)}", style="bold")
    if break_even.folk_rule is not None:
        page.titled_list(
            "The folk rule (take a GPU if it is faster by more than it is dearer), in figures:",
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
        return f"{job.mode}, {job.requests_per_day:,} requests a day"
    busy = " with the device kept busy" if job.assumed else ""
    return f"{job.mode}, {samples_text(job.samples, job.generation)}{busy}"


def folk_rule_sentences(
    rule: FolkRule, *, rate: ExchangeRate | None, generation: Generation | None = None
) -> Iterator[str]:
    """By how much a GPU is dearer an hour, by how much faster, and what comes of it."""
    compared = f"{_times(rule.speed_ratio)} {'faster' if rule.speed_ratio.mid >= 1 else 'as fast'}"
    yield (
        f"a GPU costs {units.format_significant(rule.price_ratio)}x an hour and is {compared}: "
        f"{_contender(rule.gpu, generation, rate=rate)} beside {_contender(rule.cpu, generation, rate=rate)}."
    )
    yield f"the job on the CPU costs {_times(rule.cost_ratio)} what it costs on the GPU."


def _contender(one: Contender, generation: Generation | None, *, rate: ExchangeRate | None) -> str:
    hourly = units.format_money(one.usd_per_hour, rate=rate, digits=3)
    return f"{contender_label(one)} ({one.device.name}, {hourly} an hour, {batch_text(one.batch, generation)})"


def contender_label(one: Contender) -> str:
    """ "aws g6.xlarge", or of a service that needs several "3x aws g6.xlarge"."""
    return one.name if one.instance_count == 1 else f"{one.instance_count:,}x {one.name}"


def _times(ratio: Interval) -> str:
    mid, low, high = (units.format_significant(value) for value in (ratio.mid, ratio.low, ratio.high))
    return f"{mid}x [{low}-{high}]"


def curve_title(curve: Curve, *, generation: Generation | None = None) -> str:
    """What the curve is over."""
    if curve.kind != "parameter":
        return (_TITLES if generation is None else _TITLES_OF_SERVICE)[curve.kind]
    traced = ", ".join(f"{point.at:,}" for point in curve.points)
    return f"Over {curve.name}: traced at {traced}, straight lines between them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of a curve on which one kind is the cheaper one, or `is_alone`; `end` is None on the last."""

    kind: DeviceKind
    is_alone: bool
    end: Crossing | None


def stretches(curve: Curve) -> tuple[Stretch, ...]:
    """The parts of the curve between its crossings; none where nothing does the job anywhere."""
    points = [point for point in curve.points if point.cpu or point.gpu]
    starts = [*points[:1], *(_after(points, crossing) for crossing in curve.crossings)]
    return tuple(
        Stretch(kind=_cheaper(start), is_alone=start.cpu is None or start.gpu is None, end=end)
        for start, end in zip(starts, (*curve.crossings, None), strict=False)
    )


def end_text(end: Crossing, *, following: Stretch) -> str:
    """ "1,087 [364-2,788]", an end beyond the curve as "?"; without the interval where a kind can do no more."""
    low, high = (number_text(at) if at is not None else "?" for at in (end.low, end.high))
    return number_text(end.at) if following.is_alone else f"{number_text(end.at)} [{low}-{high}]"


def verdict(curve: Curve, *, generation: Generation | None = None) -> Iterator[str]:
    """Which kind is the cheaper one from where on, and where that is open."""
    parts = stretches(curve)
    if not parts:
        yield "neither a CPU nor a GPU does the job within the limits."
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
        yield f"{', then '.join((*ended, _winner(parts[-1])))} from there on."
    open_count = sum(one.cost_ratio is not None and one.cost_ratio.low <= 1 <= one.cost_ratio.high for one in points)
    if open_count:
        yield f"open at {open_count} of {len(points)} places looked at: the 90 % interval of the costs' ratio holds 1."


def _winner(stretch: Stretch) -> str:
    return f"a {_KINDS[stretch.kind]} {'alone does the job' if stretch.is_alone else 'is cheaper'}"


def _cheaper(point: CurvePoint) -> DeviceKind:
    if point.cpu is None or point.gpu is None:
        return "gpu" if point.cpu is None else "cpu"
    return "gpu" if point.gpu.job_usd.mid < point.cpu.job_usd.mid else "cpu"


def _after(points: Sequence[CurvePoint], crossing: Crossing) -> CurvePoint:
    return next(point for point in points if point.at >= crossing.at)


def _place(curve: Curve, number: str, generation: Generation | None) -> str:
    """ "batch 8", "3,930 requests a day", "width 256"."""
    sample = "sample" if generation is None else "request"
    nouns: dict[CurveKind, tuple[str, str]] = {"requests_per_day": ("request", " a day"), "samples": (sample, "")}
    if generation is not None:
        nouns["batch"] = ("request", " in flight")
    if curve.kind not in nouns:
        return f"{curve.name} {number}"
    noun, per = nouns[curve.kind]
    return f"{number} {noun}{'' if number == '1' else 's'}{per}"


def number_text(count: int) -> str:
    """Three significant digits of what is large."""
    return f"{count if count < _EXACT_BELOW else round(float(f'{count:.3g}')):,}"


def _shown(curve: Curve) -> list[CurvePoint]:
    """The ends, those around the crossings, and others as far apart as they are."""
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
