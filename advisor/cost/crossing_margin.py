"""Computes how much cheaper or faster the GPU is than the CPU, with its 90 % interval.

The error has the parts of `advisor.cost.cheapest`. Errors of the model, its trace and its counts make both devices
slower or faster together, so only the difference of their effects counts. The errors of the two devices, and those of
their prices, are independent, so they add in squares.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from advisor.records.answer import Z_90, Interval
from advisor.records.break_even_curves import KindCost

Margin: TypeAlias = Interval
"""log(CPU amount / GPU amount): positive if the GPU is ahead, and infinite if only one of the two can do the job."""


def ratio_of(margin: Margin | None) -> Interval | None:
    """Return the ratio of the CPU amount to the GPU amount; None if at most one of the two can do the job."""
    if margin is None or not math.isfinite(margin.mid):
        return None
    return Interval(mid=math.exp(margin.mid), low=math.exp(margin.low), high=math.exp(margin.high))


def cost_margin(cpu: KindCost | None, gpu: KindCost | None) -> Margin | None:
    """Return the margin of the job's cost; None if neither device can do the job."""
    if cpu is None or gpu is None:
        return None if cpu is gpu else _sure(math.inf if cpu is None else -math.inf)
    cpu_usd, gpu_usd = cpu.own_usd.mid, gpu.own_usd.mid
    if not cpu_usd or not gpu_usd:  # owned hardware whose electricity has no price
        return _sure(0.0 if cpu_usd == gpu_usd else math.copysign(math.inf, cpu_usd - gpu_usd))
    return _margin(
        math.log(cpu_usd / gpu_usd),
        own=[(_log_ends(cpu.own_usd), _log_ends(gpu.own_usd)), (_log_ends(cpu.price_usd), _log_ends(gpu.price_usd))],
        shared=(_log_ends(cpu.shared_usd), _log_ends(gpu.shared_usd)),
    )


def margin_over_known(usd: float, own: KindCost) -> Margin:
    """Return the margin of an offer over a cost that is known exactly; positive if the offer is cheaper."""
    if not own.own_usd.mid:
        return _sure(math.inf)
    none = (0.0, 0.0)
    return _margin(
        math.log(usd / own.own_usd.mid),
        own=[(none, _log_ends(own.own_usd)), (none, _log_ends(own.price_usd))],
        shared=(none, _log_ends(own.shared_usd)),
    )


def speed_margin(cpu: KindCost, gpu: KindCost) -> Margin:
    """Return the margin of the time per sample: how many times faster the GPU is."""
    return _margin(
        math.log(gpu.quote().samples_per_s / cpu.quote().samples_per_s),
        own=[(_half_widths(cpu.own_log_spread), _half_widths(gpu.own_log_spread))],
        shared=(_half_widths(cpu.shared_log_spread), _half_widths(gpu.shared_log_spread)),
    )


def margin_between(known: Mapping[int, Margin], place: int) -> Margin:
    """Interpolate linearly over the logarithm of `place`, or take the left margin if one of the two is infinite.

    Costs grow as powers of a model's width and depth, so their logarithms are nearly linear in its logarithm.
    """
    places = sorted(known)
    for left, right in pairwise(places):
        if left <= place < right:
            start, end = known[left], known[right]
            if not (math.isfinite(start.mid) and math.isfinite(end.mid)):
                return start
            share = math.log(place / left) / math.log(right / left)
            return Margin(
                mid=start.mid + share * (end.mid - start.mid),
                low=start.low + share * (end.low - start.low),
                high=start.high + share * (end.high - start.high),
            )
    return known[place]


_Ends = tuple[float, float]
"""The low and the high end of an interval as logarithms relative to its middle: below 0 and above 0."""


def _margin(mid: float, *, own: Sequence[tuple[_Ends, _Ends]], shared: tuple[_Ends, _Ends]) -> Margin:
    """Return the margin with the errors of both devices, each as (CPU, GPU); all of `own` are independent."""
    together = [cpu_end - gpu_end for cpu_end, gpu_end in zip(*shared, strict=True)]
    return Margin(
        mid=mid,
        low=mid - math.hypot(*(end for cpu, gpu in own for end in (cpu[0], gpu[1])), min(*together, 0.0)),
        high=mid + math.hypot(*(end for cpu, gpu in own for end in (cpu[1], gpu[0])), max(*together, 0.0)),
    )


def _sure(mid: float) -> Margin:
    return Margin(mid=mid, low=mid, high=mid)


def _log_ends(amount: Interval) -> _Ends:
    return math.log(amount.low / amount.mid), math.log(amount.high / amount.mid)


def _half_widths(log_spread: float) -> _Ends:
    return -Z_90 * log_spread, Z_90 * log_spread
