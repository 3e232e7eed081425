"""What ranked offers cost in, the chance that each is the cheapest and which cannot be told from the first out.

A predicted time errs in two parts. One comes from the model, its trace and its counts, and makes every device slower or
faster alike: it moves all costs by one factor and leaves their order as it was. So offers are compared by the other
part alone: each device's own, independent of the others' and log-normal around the predicted time. Offers of the same
step on the same device share that one too, and among them the price decides.
"""

import math
from dataclasses import dataclass

import numpy as np

from advisor.records.answer import Z_90
from advisor.records.prediction import BoolArray, FloatArray, IndexArray

_REACH = 5.0
"""Standard deviations looked at on either side of a cost; beyond lie 3 in 10 million."""
_CELL_COUNT = 1024
"""Cells of the integral: against 20,000 the chances move by less than 0.1 %, where whole percents are shown."""
_LEAST_LOG_SPREAD = 1e-9
"""Stands for no error at all."""
_DEVIATIONS = np.linspace(-8.0, 8.0, 1601)
_CUMULATIVE_HAZARDS = np.array([-math.log(math.erfc(z / math.sqrt(2)) / 2) for z in _DEVIATIONS])
"""-log(1 - F) of the standard normal; numpy has no error function."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """Arrays are (offers,): the chance of being the cheapest of all, and whether an offer may cost less than the first.

    The first is never `indistinguishable` from itself.
    """

    chance_cheapest: FloatArray
    indistinguishable: BoolArray


def compare_costs(usd: FloatArray, *, own_log_spread: FloatArray, step: IndexArray) -> Comparison:
    """Compare offers, cheapest first; those with the same number in `step` run the same step on the same device.

    `step` counts from 0 in the order of the offers. Offers whose 90 % intervals of cost overlap the first's cannot be
    told from it. Offers of one step that also cost the same share their chance evenly, and so do offers that cost
    nothing: no other is cheaper.
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
    """The chance of each of some independent normals to be the least; `spread` is one standard deviation.

    The integral of f_i(x) times the product of 1 - F_j(x) over all others j, cell by cell: the least falls into a cell
    with the chance that it is above the left edge less that it is above the right one, and is then theirs in proportion
    to the growth of their cumulative hazards -log(1 - F), as with competing risks (Kalbfleisch and Prentice, "The
    Statistical Analysis of Failure Time Data", 2nd edition, chapter 8).
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
