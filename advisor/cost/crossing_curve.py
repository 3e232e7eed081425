"""Builds the break-even curve of the cheapest CPU and the cheapest GPU, with its crossings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from advisor.cost.by_kind import ByKind
from advisor.cost.crossing_margin import Margin, cost_margin, margin_between, ratio_of, speed_margin
from advisor.cost.crossing_search import find_crossings
from advisor.cost.quotes import quoted_fields
from advisor.cost.service import requests_per_month
from advisor.records.answer import Contender, CurvePoint, Job
from advisor.records.break_even_curves import DECADE_COUNT, Curve, CurveKind, FolkRule, KindCost

_POINTS_PER_DECADE = 4
GRID = tuple(round(10 ** (place / _POINTS_PER_DECADE)) for place in range(DECADE_COUNT * _POINTS_PER_DECADE + 1))
"""The numbers of requests per day and of samples between which crossings are searched, the same in every command."""


def curve_of(
    kind: CurveKind, grid: Sequence[int], cheapest: Callable[[int], ByKind], *, shown: Sequence[int] | None = None
) -> Curve:
    """Return the curve over an ascending `grid`, with points for all of it, or for `shown` and the first crossing.

    `cheapest` is also called between grid points to locate crossings.
    """
    known = cache(cheapest)
    crossings = find_crossings(grid, lambda place: _margin(known(place)))
    places = grid if shown is None else (*shown, *(one.at for one in crossings[:1]))
    return Curve(
        kind=kind,
        name=kind,
        points=tuple(point_of(place, known(place)) for place in places),
        crossings=crossings,
    )


def requests_curve(cheapest: Callable[[Job], ByKind], *, job: Job, shown: Sequence[int] | None = None) -> Curve:
    """Return the curve over the requests per day of a service that runs what `job` runs."""

    def at(requests: int) -> ByKind:
        return cheapest(service_of(job, requests_per_day=requests))

    return curve_of("requests_per_day", GRID, at, shown=shown)


def service_of(job: Job, *, requests_per_day: int) -> Job:
    """Return the month of an always-on service that runs what `job` runs."""
    return replace(_of_no_size(job), requests_per_day=requests_per_day, samples=requests_per_month(requests_per_day))


def samples_curve(cheapest: Callable[[Job], ByKind], *, job: Job, shown: Sequence[int] | None = None) -> Curve:
    """Return the curve over the samples of `job`, with start-up and minimum billing."""
    one = _of_no_size(job)
    return curve_of("samples", GRID, lambda samples: cheapest(replace(one, samples=samples)), shown=shown)


def _of_no_size(job: Job) -> Job:
    return replace(
        job, assumed=False, epochs=None, steps=None, tokens=None, requests_per_day=None, requests_per_second=None
    )


def parameter_curve(parameter: str, costs: Mapping[int, ByKind]) -> Curve:
    """Return the curve over the values of a model parameter that were traced."""
    margins = {value: margin for value, pair in sorted(costs.items()) if (margin := _margin(pair)) is not None}
    return Curve(
        kind="parameter",
        name=parameter,
        points=tuple(point_of(value, pair) for value, pair in sorted(costs.items())),
        crossings=find_crossings(list(margins), lambda value: margin_between(margins, value)),
    )


def folk_rule_of(pair: ByKind) -> FolkRule | None:
    """Compare price and speed of the CPU and the GPU; return None if one is missing or costs nothing."""
    cost_ratio = ratio_of(_margin(pair))
    if cost_ratio is None:
        return None
    cpu, gpu = pair["cpu"], pair["gpu"]
    speed_ratio = ratio_of(speed_margin(cpu, gpu))
    if speed_ratio is None or not cpu.quote().usd_per_hour:
        return None
    return FolkRule(
        cpu=contender_of(cpu),
        gpu=contender_of(gpu),
        price_ratio=gpu.quote().usd_per_hour / cpu.quote().usd_per_hour,
        speed_ratio=speed_ratio,
        cost_ratio=cost_ratio,
    )


def _margin(pair: ByKind) -> Margin | None:
    return cost_margin(pair.get("cpu"), pair.get("gpu"))


def point_of(place: int, pair: ByKind) -> CurvePoint:
    """Return the point of a curve at `place`."""
    return CurvePoint(
        at=place,
        cpu=contender_of(pair["cpu"]) if "cpu" in pair else None,
        gpu=contender_of(pair["gpu"]) if "gpu" in pair else None,
        cost_ratio=ratio_of(_margin(pair)),
    )


def contender_of(cost: KindCost) -> Contender:
    """Return the offer as a contender."""
    quote = cost.quote()
    return Contender(name=f"{quote.provider} {quote.instance}", **quoted_fields(quote, Contender))
