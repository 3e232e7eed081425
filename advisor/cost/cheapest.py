"""Computes the chance that each offer is the cheapest, and which offers are too close to the first to call.

The error of a predicted time has two parts. The first comes from the model, its trace and its counts. It scales the
time on every device by the same factor, so it does not change the order of the costs. Offers are therefore compared by
the second part alone: the device's own error, which is independent of the others' and log-normal around the predicted
time. Offers that run the same step on the same device share that error too, so the price decides between them.
"""

import math
from collections.abc import Hashable, Sequence

import numpy as np

from advisor.records.answer import Z_90
from advisor.records.prediction import BoolArray, FloatArray

_REACH = 5.0
"""Standard deviations covered on each side of a cost; 3 in 10 million lie above."""
_CELL_COUNT = 1024
"""Cells of the integral. With 20,000 cells the chances change by less than 0.1 %, and whole percents are shown."""
_LEAST_LOG_SPREAD = 1e-9
"""Replaces a spread of 0, by which nothing can be divided."""
_DEVIATIONS = np.linspace(-8.0, 8.0, 1601)
_CUMULATIVE_HAZARDS = np.array([-math.log(math.erfc(z / math.sqrt(2)) / 2) for z in _DEVIATIONS])
"""-log(1 - F) of the standard normal; numpy has no error function."""


def chances_of_cheapest(usd: FloatArray, *, own_log_spread: FloatArray, steps: Sequence[Hashable]) -> FloatArray:
    """Return the chance that each offer is the cheapest; offers with equal entries in `steps` run the same step.

    Offers of one step at the same cost share their chance evenly, and so do free offers.
    """
    if (usd == 0).any():
        shares: FloatArray = (usd == 0) / np.count_nonzero(usd == 0)
        return shares
    cheapest_of: dict[Hashable, list[int]] = {}  # the offers of each step that cost the least
    for offer in np.argsort(usd, kind="stable").tolist():
        cheapest = cheapest_of.setdefault(steps[offer], [])
        if not cheapest or usd[offer] == usd[cheapest[0]]:
            cheapest.append(offer)
    first = [offers[0] for offers in cheapest_of.values()]
    chances = np.zeros_like(usd)
    for offers, chance in zip(
        cheapest_of.values(), chances_of_least(np.log(usd[first]), own_log_spread[first]), strict=True
    ):
        chances[offers] = chance / len(offers)
    return chances


def indistinguishable(amounts: FloatArray, *, own_log_spread: FloatArray, steps: Sequence[Hashable]) -> BoolArray:
    """Return which offers are too close to the first, the best, to call: their 90 % intervals overlap.

    The first offer itself is never marked, and offers of its step only if their amounts are equal.
    """
    is_same_step = np.array([step == steps[0] for step in steps])
    overlaps: BoolArray = amounts == 0  # of offers that cost nothing
    if amounts[0] != 0:
        low, high = (amounts * np.exp(z * own_log_spread) for z in (-Z_90, Z_90))
        overlaps = (low <= high[0]) & (~is_same_step | (amounts == amounts[0]))
    overlaps[0] = False
    return overlaps


def chances_of_least(mid: FloatArray, spread: FloatArray) -> FloatArray:
    """Return the probability that each of some independent normals is the smallest; `spread` is a standard deviation.

    It is the integral of f_i(x) times the product of 1 - F_j(x) over all others j, summed over cells. The smallest
    value lies in a cell with the probability that it is above the left edge minus that it is above the right edge.
    Within a cell it is divided in proportion to the growth of the cumulative hazards -log(1 - F), as with competing
    risks (Kalbfleisch and Prentice, "The Statistical Analysis of Failure Time Data", 2nd edition, chapter 8).
    """
    spread = np.maximum(spread, _LEAST_LOG_SPREAD)
    bottoms, top = mid - _REACH * spread, (mid + _REACH * spread).min()
    edges = np.linspace(bottoms.min(), top, _CELL_COUNT + 1)
    may_win = bottoms < top
    deviations = (edges - mid[may_win, np.newaxis]) / spread[may_win, np.newaxis]
    hazards = np.interp(deviations, _DEVIATIONS, _CUMULATIVE_HAZARDS)
    growth = np.diff(hazards, axis=1)
    falls_into_cell = -np.diff(np.exp(-hazards.sum(axis=0)))
    chances: FloatArray = np.zeros_like(mid)
    chances[may_win] = (growth / growth.sum(axis=0)) @ falls_into_cell
    chances /= chances.sum()
    return chances
