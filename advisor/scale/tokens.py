"""Predicts the time to first token and the time per output token of LLM serving.

A step of c requests on one replica is their prefill and the decode passes. In steady state these overlap: while one
request decodes, the prompt of each other request is processed once.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from advisor.predict.precision import width_of
from advisor.predict.step_memory import stored_bytes
from advisor.records.answer import BOUNDS
from advisor.records.generation import Generation
from advisor.records.prediction import FloatArray, IndexArray, Predictions, TokenTimes
from advisor.records.scale import Plan
from advisor.records.workload import Blocks, Phase, Row, StoredBytes, Workload
from advisor.scale.parallel_step import spread_part
from advisor.scale.spread_out import pass_batches

PredictPart = Callable[[Workload, IndexArray], Predictions]
"""Predicts a part of the step at these batch sizes on every single device."""
_LARGEST = 4096
_COMPARED = tuple(1 << exponent for exponent in range(_LARGEST.bit_length()))
"""The concurrencies at which decode is checked for being compute-bound."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenClock:
    """Computes the token times of steps under any of the given plans.

    `batches` are the batches of the steps. `prompts` predicts the prefill of one request, and `passes` one decode pass
    at every number of requests that a plan gives to a replica, both on every single device.
    """

    workload: Workload
    generation: Generation
    batches: IndexArray
    prefill: Workload
    decode: Workload
    prompts: Predictions
    passes: Predictions

    def times(self, step_s: FloatArray, plan: Plan, *, rows: Sequence[int] | IndexArray) -> TokenTimes:
        """Return the token times of steps under the plan on the devices `rows`, (rows, batches).

        Times of impossible steps are infinite.
        """
        in_flight = pass_batches(self.batches, plan)
        at = np.searchsorted(self.passes.batches, in_flight)
        prompt_s = self._spread_s(self.prefill, self.prompts, plan, rows=rows, at=np.zeros_like(at))
        pass_s = self._spread_s(self.decode, self.passes, plan, rows=rows, at=at)
        decode_count = self.generation.decode_count
        is_possible = np.isfinite(step_s) & np.isfinite(pass_s)
        decode_s = decode_count * np.where(is_possible, pass_s, 0.0)
        others_s = (1 - 1 / in_flight) * np.maximum(np.where(is_possible, step_s, 0.0) - decode_s, 0.0)
        first_s = prompt_s + np.where(in_flight > 1, pass_s, 0.0)
        between_s = pass_s + others_s / decode_count
        # A head is never split, so GPUs beyond the number of heads hold copies.
        held_times = plan.tensor / min(plan.tensor, self.generation.kv_head_count)
        return TokenTimes(
            first_s=np.where(is_possible, first_s, np.inf),
            between_s=np.where(is_possible, between_s, np.inf),
            pass_s=np.where(is_possible, pass_s, np.inf),
            compute_bound_from=np.broadcast_to(self._compute_bound_from(rows) * plan.data, step_s.shape),
            kv_cache_bytes=held_times * self._stored("kv_cache", rows, batches=self.batches.astype(np.float64)),
            weight_bytes=self._stored("parameters", rows, batches=np.zeros(len(self.batches))),
        )

    def _spread_s(
        self, part: Workload, alone: Predictions, plan: Plan, *, rows: Sequence[int] | IndexArray, at: IndexArray
    ) -> FloatArray:
        """Return the time of a part of the step under the plan, (rows, batches); both are indices into `alone`."""
        if plan.tensor == 1:
            return alone.step_s[rows][:, at]
        precisions = [alone.precisions[row, 0] for row in rows]
        # A precision has the same width on all GPUs, and only GPUs are tensor-parallel.
        (width,) = {width_of(precision) for precision in precisions if precision is not None}
        heads = self.generation.kv_head_count
        return spread_part(part, plan, alone=alone, rows=rows, at=at, width=width, kv_head_count=heads).step_s

    def _compute_bound_from(self, rows: Sequence[int] | IndexArray) -> FloatArray:
        """Return the fewest requests of those compared at which decode is compute-bound, (rows, 1), or infinity."""

        passes = self.passes
        compared = np.isin(passes.batches, _COMPARED)
        bound, step_s = (array[rows][:, compared] for array in (passes.bound, passes.step_s))
        is_bound = (bound == BOUNDS.index("compute")) & np.isfinite(step_s)
        first = passes.batches[compared][is_bound.argmax(axis=1)]
        found: FloatArray = np.where(is_bound.any(axis=1), first, np.inf)[:, np.newaxis]
        return found

    def _stored(self, name: str, rows: Sequence[int] | IndexArray, *, batches: FloatArray) -> FloatArray:
        """Return the bytes of the memory part `name`, (rows, batches)."""
        stored: StoredBytes = getattr(self.workload.memory[0], name)
        precisions = [self.passes.precisions[row, 0] for row in rows]
        by_width = {
            width: stored_bytes(stored, batches=batches, width=width)
            for width in {width_of(precision) for precision in precisions if precision is not None}
        }
        nothing = np.zeros(len(batches))
        return np.stack([nothing if precision is None else by_width[width_of(precision)] for precision in precisions])


def token_clock(
    workload: Workload, *, batches: IndexArray, plans: Iterable[Plan], predict_part: PredictPart
) -> TokenClock | None:
    """Return the clock for steps at these batches under these plans; None if the workload generates no tokens."""
    generation = workload.generation
    if generation is None:
        return None
    prefill, decode = (part_of_generation(workload, phase) for phase in ("prefill", "decode"))
    sizes = np.unique(np.concatenate([pass_batches(batches, plan) for plan in plans] + [_COMPARED]))
    return TokenClock(
        workload=workload,
        generation=generation,
        batches=batches,
        prefill=prefill,
        decode=decode,
        prompts=predict_part(prefill, np.array([1])),
        passes=predict_part(decode, sizes),
    )


def with_token_times(predictions: Predictions, clock: TokenClock | None) -> Predictions:
    """Add the token times under the chosen plans; without a clock, return the predictions unchanged."""
    if clock is None:
        return predictions
    found = {field.name: np.full(predictions.step_s.shape, np.inf) for field in fields(TokenTimes)}
    plans, plan_of = _plans(predictions)
    for number, plan in enumerate(plans):
        is_here = (plan_of == number) & np.isfinite(predictions.step_s)
        rows = np.flatnonzero(is_here.any(axis=1))
        if not len(rows):
            continue
        times = clock.times(predictions.step_s[rows], plan, rows=rows)
        for name, values in found.items():
            values[rows] = np.where(is_here[rows], getattr(times, name), values[rows])
    tokens: Any = found
    return replace(predictions, tokens=TokenTimes(**tokens))


def part_of_generation(workload: Workload, phase: Phase) -> Workload:
    """Return the whole prefill, or one decode pass, as a workload of its own."""
    if workload.generation is None:
        raise ValueError(f"{workload.name} generates nothing")
    count = workload.generation.decode_count if phase == "decode" else 1
    return replace(
        workload,
        generation=None,
        inputs=workload.inputs if phase == "prefill" else (),
        rows=tuple(_one_pass(row, count) for row in workload.rows if row.phase == phase),
        blocks=tuple(_blocks_of_pass(blocks, count) for blocks in workload.blocks if blocks.phase == phase),
    )


def _one_pass(row: Row, count: int) -> Row:
    return replace(row, count=row.count // count)


def _blocks_of_pass(blocks: Blocks, count: int) -> Blocks:
    results = blocks.results
    start, slope = results.full
    return replace(blocks, count=blocks.count // count, results=replace(results, full=(start / count, slope / count)))


def _plans(predictions: Predictions) -> tuple[tuple[Plan, ...], IndexArray]:
    """Return the plans, and the index of the plan of each (device, batch)."""

    scaling = predictions.scaling
    if scaling is None:
        return (Plan(),), np.zeros(predictions.step_s.shape, dtype=np.intp)
    used = np.unique(scaling.plan)
    return tuple(scaling.plans[index] for index in used), np.searchsorted(used, scaling.plan)
