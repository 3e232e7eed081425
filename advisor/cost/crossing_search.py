"""Finds where the cheaper device changes along a curve, with the 90 % interval of each crossing."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Literal

from advisor.cost.crossing_margin import Margin
from advisor.records.answer import Crossing
from advisor.records.device import DeviceKind

MarginAt = Callable[[int], Margin | None]
"""Returns the margin at a place; None if neither device can do the job."""
_TIE = 1e-9
"""Margins up to this size count as a tie: rounding can leave that much."""
_TOLERANCE = 1e-4
"""Accuracy of a crossing, relative to its place."""
_End = Literal["mid", "low", "high"]
_OPTIMISTIC_AND_PESSIMISTIC: Mapping[DeviceKind, tuple[_End, _End]] = {"gpu": ("high", "low"), "cpu": ("low", "high")}
"""The ends of the margin at which a device kind is cheaper, and more expensive, than predicted."""


def find_crossings(grid: Sequence[int], margin_at: MarginAt) -> tuple[Crossing, ...]:
    """Return every change of the cheaper device that an ascending `grid` shows, located between grid points.

    A device's error is the same along the whole curve, so the ends of a crossing's interval are the crossings of the
    curve shifted to the ends of its 90 % interval. A tie goes to the CPU.
    """
    known = cache(margin_at)

    def value(place: int, end: _End) -> float:
        """Return one end of the margin; not a number if neither device can do the job."""
        margin = known(place)
        return math.nan if margin is None else float(getattr(margin, end))

    places = [place for place in grid if known(place) is not None]
    kinds: list[DeviceKind] = ["gpu" if value(place, "mid") > _TIE else "cpu" for place in places]
    return tuple(
        _crossing(before=places[: index + 1], after=places[index + 1 :], cheaper=new, value=value)
        for index, (old, new) in enumerate(pairwise(kinds))
        if old != new
    )


def _crossing(
    *, before: Sequence[int], after: Sequence[int], cheaper: DeviceKind, value: Callable[[int, _End], float]
) -> Crossing:
    """Return the crossing to `cheaper` between the last place of `before` and the first of `after`."""
    optimistic, pessimistic = _OPTIMISTIC_AND_PESSIMISTIC[cheaper]

    def is_cheaper(place: int, end: _End) -> bool:
        return value(place, end) > _TIE if cheaper == "gpu" else value(place, end) <= _TIE

    def first(outside: int, inside: int, end: _End) -> int:
        return _first(outside, inside, lambda place: is_cheaper(place, end), lambda place: value(place, end))

    at = first(before[-1], after[0], "mid")
    surely_more_expensive = next((place for place in reversed(before) if not is_cheaper(place, optimistic)), None)
    surely_cheaper = next((place for place in (at, *after) if is_cheaper(place, pessimistic)), None)
    return Crossing(
        at=at,
        low=None if surely_more_expensive is None else first(surely_more_expensive, at, optimistic),
        high=None if surely_cheaper is None else first(at, surely_cheaper, pessimistic),
        cheaper=cheaper,
    )


def _first(outside: int, inside: int, holds: Callable[[int], bool], value: Callable[[int], float]) -> int:
    """Find the place at which `holds` changes from False at `outside` to True at `inside`, where `value` crosses 0.

    The result is exact up to 1 / _TOLERANCE, and off by this ratio at most above: bills grow in steps of a second.
    The next place is where a line through both values, over the logarithm of the place, crosses 0. If two such places
    do not halve the range, or a value is not finite, it is the middle.
    """
    at_outside, at_inside = value(outside), value(inside)
    halved = inside - outside
    tries = 0
    while inside - outside > max(1.0, _TOLERANCE * outside):
        if inside - outside <= halved / 2:
            halved, tries = inside - outside, 0
        share = at_outside / (at_outside - at_inside) if at_outside != at_inside else math.nan
        if tries < 2 and outside > 0 and math.isfinite(share):
            place = round(outside * (inside / outside) ** share)
            middle = min(max(place, outside + 1), inside - 1)
        else:
            middle = (outside + inside) // 2
        tries += 1
        if holds(middle):
            inside, at_inside = middle, value(middle)
        else:
            outside, at_outside = middle, value(middle)
    return inside
