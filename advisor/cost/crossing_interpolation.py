"""Margins at a few places in, the margin at any place between them out."""

import math
from collections.abc import Mapping
from itertools import pairwise

from advisor.cost.crossing_margin import Margin


def margin_between(known: Mapping[int, Margin], place: int) -> Margin:
    """A straight line over the logarithm of the place; one that ends where a device cannot do the job ends abruptly.

    Costs grow as powers of a model's width and depth, so that their logarithms are near straight lines over its.
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
