"""Marks the offers on the Pareto front of cost and time."""

import numpy as np

from advisor.records.prediction import BoolArray, FloatArray


def pareto_front(cost: FloatArray, time: FloatArray) -> BoolArray:
    """Return a mask of the points that no other point dominates; equal points are on the front together."""
    order = np.lexsort((time, cost))
    sorted_cost, sorted_time = cost[order], time[order]
    # The shortest time so far among offers that cost less or the same.
    shortest = np.minimum.accumulate(sorted_time)
    first_of_cost = np.searchsorted(sorted_cost, sorted_cost, side="left")
    shortest_of_cheaper = np.where(first_of_cost > 0, shortest[first_of_cost - 1], np.inf)
    is_on_front = (sorted_time < shortest_of_cheaper) & (sorted_time == sorted_time[first_of_cost])
    front: BoolArray = np.empty(len(cost), dtype=np.bool_)
    front[order] = is_on_front
    return front
