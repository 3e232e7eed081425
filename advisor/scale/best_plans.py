"""Keeps the best plan for each device and batch, with the figures of its step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from advisor.records.prediction import BoolArray, FloatArray, IndexArray, TokenTimes
from advisor.records.scale import Plan

Lateness = Callable[[FloatArray, Sequence[int], FloatArray, FloatArray, TokenTimes | None], FloatArray]
"""Returns needed over allowed time or money of steps, (members, batches), on the devices at these indices.

Further arguments are the `server_counts` of an instance, the machines that work together, and the token times of LLM
serving.
"""


def never_late(
    step_s: FloatArray, members: Sequence[int], servers: FloatArray, machines: FloatArray, tokens: TokenTimes | None
) -> FloatArray:
    """Return 0 for every step: no limit is set."""
    return np.zeros_like(step_s)


class BestPlans:
    """The best of `plans` so far for each device and batch, as an index, and the figures of its step.

    Arrays are (devices, batches). `initial` has the figures before any plan. `rank` holds the sort keys of the best
    plan, (keys, devices, batches), the most important first.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        *,
        device_count: int,
        batches: IndexArray,
        key_count: int,
        initial: Mapping[str, float],
    ) -> None:
        shape = (device_count, len(batches))
        self.plans, self.batches = tuple(plans), batches
        self.plan = np.zeros(shape, dtype=np.intp)
        self.rank = np.full((key_count, *shape), np.inf)
        self.figures: dict[str, Any] = {name: np.full(shape, value) for name, value in initial.items()}

    def take(
        self,
        plan: Plan,
        members: Sequence[int],
        *,
        rank: FloatArray,
        figures: Mapping[str, Any],
        batches: slice = slice(None),
    ) -> None:
        """Take the plan on those of the members and batches where it is better; without a step, where none is held."""
        at = (..., members, batches)
        held = self.rank[at]
        is_better = _precedes(rank, held) & (np.isfinite(figures["step_s"]) | ~np.isfinite(held[0]))
        self.rank[at] = np.where(is_better, rank, held)
        self.plan[at] = np.where(is_better, self.plans.index(plan), self.plan[at])
        for name, values in figures.items():
            self.figures[name][at] = np.where(is_better, values, self.figures[name][at])


def _precedes(rank: FloatArray, held: FloatArray) -> BoolArray:
    """Return where `rank` is less than `held`, (keys, ...): by the first key in which they differ."""
    is_less: BoolArray = rank[-1] < held[-1]
    for new, old in zip(rank[-2::-1], held[-2::-1], strict=True):
        is_less = (new < old) | ((new == old) & is_less)
    return is_less
