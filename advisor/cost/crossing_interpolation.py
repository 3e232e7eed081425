"""Interpolates the cost margin between the places where it is known."""

import math
from collections.abc import Mapping
from itertools import pairwise

from advisor.cost.crossing_margin import Margin


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
