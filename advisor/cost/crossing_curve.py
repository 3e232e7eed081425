"""Builds the break-even curve of the cheapest CPU and the cheapest GPU, with its crossings."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeAlias

from advisor.cost.crossing_margin import Margin, cost_margin, margin_between, speed_margin
from advisor.cost.crossing_search import find_crossings
from advisor.cost.quotes import quoted_fields
from advisor.records.break_even_curves import Contender, Curve, CurveKind, CurvePoint, FolkRule, KindCost
from advisor.records.device import DeviceKind

ByKind: TypeAlias = Mapping[DeviceKind, KindCost]
"""The cheapest offer of each device kind; a kind that cannot do the job is missing."""


def curve_of(kind: CurveKind, grid: Sequence[int], cheapest: Callable[[int], ByKind]) -> Curve:
    """Return the curve over an ascending `grid`; `cheapest` is also called between grid points to locate crossings."""
    known = cache(cheapest)
    return Curve(
        kind=kind,
        name=kind,
        points=tuple(_point(place, known(place)) for place in grid),
        crossings=find_crossings(grid, lambda place: _margin(known(place))),
    )


def parameter_curve(parameter: str, costs: Mapping[int, ByKind]) -> Curve:
    """Return the curve over the values of a model parameter that were traced."""
    margins = {value: margin for value, pair in sorted(costs.items()) if (margin := _margin(pair)) is not None}
    return Curve(
        kind="parameter",
        name=parameter,
        points=tuple(_point(value, pair) for value, pair in sorted(costs.items())),
        crossings=find_crossings(list(margins), lambda value: margin_between(margins, value)),
    )


def folk_rule_of(pair: ByKind) -> FolkRule | None:
    """Compare price and speed of the CPU and the GPU; return None if one is missing or costs nothing."""
    margin = _margin(pair)
    cost_ratio = margin.ratio if margin else None
    if cost_ratio is None:
        return None
    cpu, gpu = pair["cpu"], pair["gpu"]
    speed_ratio = speed_margin(cpu, gpu).ratio
    if speed_ratio is None:
        return None
    return FolkRule(
        cpu=_contender(cpu),
        gpu=_contender(gpu),
        price_ratio=gpu.quote.usd_per_hour / cpu.quote.usd_per_hour,
        speed_ratio=speed_ratio,
        cost_ratio=cost_ratio,
    )


def _margin(pair: ByKind) -> Margin | None:
    return cost_margin(pair.get("cpu"), pair.get("gpu"))


def _point(place: int, pair: ByKind) -> CurvePoint:
    margin = _margin(pair)
    return CurvePoint(
        at=place,
        cpu=_contender(pair["cpu"]) if "cpu" in pair else None,
        gpu=_contender(pair["gpu"]) if "gpu" in pair else None,
        cost_ratio=margin.ratio if margin else None,
    )


def _contender(cost: KindCost) -> Contender:
    quote = cost.quote
    return Contender(name=f"{quote.provider} {quote.instance}", **quoted_fields(quote, Contender))
