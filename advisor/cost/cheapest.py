"""Computes the chance that each offer is the cheapest, and which offers are too close to the first to call.

The error of a predicted time has two parts. The first comes from the model, its trace and its counts. It scales the
time on every device by the same factor, so it does not change the order of the costs. Offers are therefore compared by
the second part alone: the device's own error, which is independent of the others' and log-normal around the predicted
time. Offers that run the same step on the same device share that error too, so the price decides between them.
"""

import math
from dataclasses import dataclass

import numpy as np

from advisor.records.answer import Z_90
from advisor.records.prediction import BoolArray, FloatArray, IndexArray

_REACH = 5.0
"""Standard deviations covered on each side of a cost; 3 in 10 million lie above."""
_CELL_COUNT = 1024
"""Cells of the integral. With 20,000 cells the chances change by less than 0.1 %, and whole percents are shown."""
_LEAST_LOG_SPREAD = 1e-9
"""Replaces a spread of 0, by which nothing can be divided."""
_DEVIATIONS = np.linspace(-8.0, 8.0, 1601)
_CUMULATIVE_HAZARDS = np.array([-math.log(math.erfc(z / math.sqrt(2)) / 2) for z in _DEVIATIONS])
"""-log(1 - F) of the standard normal; numpy has no error function."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """The chance that each offer is the cheapest, and whether it is too close to the first to call; both (offers,).

    The first offer itself is never marked `indistinguishable`.
    """

    chance_cheapest: FloatArray
    indistinguishable: BoolArray


def compare_costs(usd: FloatArray, *, own_log_spread: FloatArray, step: IndexArray) -> Comparison:
    """Compare offers, cheapest first; those with the same number in `step` run the same step on the same device.

    `step` counts from 0 in the order of the offers. An offer is indistinguishable from the first if the 90 % intervals
    of their costs overlap. Offers of one step at the same cost share their chance evenly, and so do free offers.
    """
    if len(usd) and usd[0] == 0:
        is_free = usd == 0
        is_rival = is_free & (np.arange(len(usd)) > 0)
        return Comparison(chance_cheapest=is_free / is_free.sum(), indistinguishable=is_rival)
    cheapest_of_step = np.unique(step, return_index=True)[1]
    step_usd = usd[cheapest_of_step]
    step_chance = chances_of_least(np.log(step_usd), own_log_spread[cheapest_of_step])
    is_cheapest = usd == step_usd[step]
    chance_cheapest = np.where(is_cheapest, (step_chance / np.bincount(step, weights=is_cheapest))[step], 0.0)

    low_usd, high_usd = (usd * np.exp(z * own_log_spread) for z in (-Z_90, Z_90))
    indistinguishable = (low_usd <= high_usd[0]) & ((step != step[0]) | (usd == usd[0]))
    indistinguishable[0] = False
    return Comparison(chance_cheapest=chance_cheapest, indistinguishable=indistinguishable)


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
