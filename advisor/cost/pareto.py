"""Costs and times in, which of them are on the Pareto front out."""

import numpy as np

from advisor.records.prediction import BoolArray, FloatArray


def pareto_front(cost: FloatArray, time: FloatArray) -> BoolArray:
    """Where no other is at least as good in both and better in one; equals are on it together."""
    order = np.lexsort((time, cost))
    sorted_cost, sorted_time = cost[order], time[order]
    # Among the cheaper ones and those that cost the same, the soonest so far.
    soonest = np.minimum.accumulate(sorted_time)
    first_of_cost = np.searchsorted(sorted_cost, sorted_cost, side="left")
    soonest_cheaper = np.where(first_of_cost > 0, soonest[first_of_cost - 1], np.inf)
    is_on_front = (sorted_time < soonest_cheaper) & (sorted_time == sorted_time[first_of_cost])
    front: BoolArray = np.empty(len(cost), dtype=np.bool_)
    front[order] = is_on_front
    return front
