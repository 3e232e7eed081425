"""Finds where the cheaper device changes along a curve, with the 90 % interval of each crossing."""

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
_End = Literal["mid", "low", "high"]
_OPTIMISTIC_AND_PESSIMISTIC: Mapping[DeviceKind, tuple[_End, _End]] = {"gpu": ("high", "low"), "cpu": ("low", "high")}
"""The ends of the margin at which a device kind is cheaper, and more expensive, than predicted."""


def find_crossings(grid: Sequence[int], margin_at: MarginAt) -> tuple[Crossing, ...]:
    """Return every change of the cheaper device that an ascending `grid` shows, located exactly between grid points.

    A device's error is the same along the whole curve, so the ends of a crossing's interval are the crossings of the
    curve shifted to the ends of its 90 % interval. A tie goes to the CPU.
    """
    known = cache(margin_at)
    places = [place for place in grid if known(place) is not None]
    kinds = [_cheaper(known(place)) for place in places]
    return tuple(
        _crossing(before=places[: index + 1], after=places[index + 1 :], cheaper=new, margin_at=known)
        for index, (old, new) in enumerate(pairwise(kinds))
        if new is not None and old != new
    )


def _cheaper(margin: Margin | None, end: _End = "mid") -> DeviceKind | None:
    """Return the cheaper kind at one end of the margin's interval."""
    if margin is None:
        return None
    return "gpu" if getattr(margin, end) > _TIE else "cpu"


def _crossing(*, before: Sequence[int], after: Sequence[int], cheaper: DeviceKind, margin_at: MarginAt) -> Crossing:
    """Return the crossing to `cheaper` between the last place of `before` and the first of `after`."""
    optimistic, pessimistic = _OPTIMISTIC_AND_PESSIMISTIC[cheaper]

    def is_cheaper(place: int) -> bool:
        return _cheaper(margin_at(place)) == cheaper

    def may_be_cheaper(place: int) -> bool:
        return _cheaper(margin_at(place), optimistic) == cheaper

    def is_surely_cheaper(place: int) -> bool:
        return _cheaper(margin_at(place), pessimistic) == cheaper

    at = _first(before[-1], after[0], is_cheaper)
    surely_more_expensive = next((place for place in reversed(before) if not may_be_cheaper(place)), None)
    surely_cheaper = next((place for place in (at, *after) if is_surely_cheaper(place)), None)
    return Crossing(
        at=at,
        low=None if surely_more_expensive is None else _first(surely_more_expensive, at, may_be_cheaper),
        high=None if surely_cheaper is None else _first(at, surely_cheaper, is_surely_cheaper),
        cheaper=cheaper,
    )


def _first(outside: int, inside: int, holds: Callable[[int], bool]) -> int:
    """Bisect for the place at which `holds` changes from False at `outside` to True at `inside`."""
    while inside - outside > 1:
        middle = (outside + inside) // 2
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return inside
