"""Predicted steps of a generation in, the times of its tokens by the same plans out.

A step of c requests on one replica is their prefill and the passes of decode. In steady state these lie side by side:
while a request decodes, each of the others is read in once.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from advisor.predict.memory import stored_bytes
from advisor.predict.precision import width_of
from advisor.records.answer import BOUNDS
from advisor.records.prediction import FloatArray, IndexArray, Predictions, TokenTimes
from advisor.records.scale import Plan
from advisor.records.workload import Blocks, Phase, Row, StoredBytes, Workload
from advisor.scale.links import fabric_of
from advisor.scale.spread_out import pass_batches
from advisor.scale.step import Alone, spread_step
from advisor.scale.traffic import traffic_of

PredictPart = Callable[[Workload, IndexArray], Predictions]
"""Predicts a part of the step on every single device at these batch sizes."""
_LARGEST = 4096
_COMPARED = tuple(1 << exponent for exponent in range(_LARGEST.bit_length()))
"""The concurrencies at which decode is looked at for what bounds it."""


def with_token_times(predictions: Predictions, workload: Workload, *, predict_part: PredictPart) -> Predictions:
    """The predictions with the times of tokens; those of a workload that generates none as they are."""
    generation = workload.generation
    if generation is None:
        return predictions
    plans, plan_of = _plans(predictions)
    sizes = np.unique(np.concatenate([pass_batches(predictions.batches, plan) for plan in plans] + [_COMPARED]))
    prefill, decode = (part_of_generation(workload, phase) for phase in ("prefill", "decode"))
    first, passes = predict_part(prefill, np.array([1])), predict_part(decode, sizes)
    found = np.full((4, *predictions.step_s.shape), np.inf)
    for number, plan in enumerate(plans):
        is_here = (plan_of == number) & np.isfinite(predictions.step_s)
        rows = np.flatnonzero(is_here.any(axis=1))
        if not len(rows):
            continue
        at = np.searchsorted(sizes, pass_batches(predictions.batches, plan))
        of_plan = np.broadcast_arrays(
            _spread_s(prefill, first, plan, rows=rows, at=np.zeros_like(at)),
            _spread_s(decode, passes, plan, rows=rows, at=at),
            float(plan.data),
            sizes[at],
        )
        found[:, rows] = np.where(is_here[rows], np.stack(of_plan), found[:, rows])
    prompt_s, pass_s, replicas, in_flight = found
    is_possible = np.isfinite(pass_s)
    decode_s = generation.decode_count * np.where(is_possible, pass_s, 0.0)
    prompts_s = np.where(is_possible, predictions.step_s, 0.0) - decode_s
    others_s = (1 - 1 / in_flight) * np.maximum(prompts_s, 0.0)
    return replace(
        predictions,
        tokens=TokenTimes(
            first_s=prompt_s + np.where(in_flight > 1, pass_s, 0.0),
            between_s=pass_s + others_s / generation.decode_count,
            pass_s=pass_s,
            compute_bound_from=_compute_bound_from(passes, sizes)[:, np.newaxis] * replicas,
            kv_cache_bytes=_stored(predictions, workload, "kv_cache", predictions.batches.astype(np.float64)),
            weight_bytes=_stored(predictions, workload, "parameters", np.zeros(len(predictions.batches))),
        ),
    )


def part_of_generation(workload: Workload, phase: Phase) -> Workload:
    """All of prefill, or one pass of decode, as a step by itself."""
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
    """The plans, and which of them each (device, batch) runs by."""
    scaling = predictions.scaling
    if scaling is None:
        return (Plan(),), np.zeros(predictions.step_s.shape, dtype=np.intp)
    used = np.unique(scaling.plan)
    return tuple(scaling.plans[index] for index in used), np.searchsorted(used, scaling.plan)


def _spread_s(part: Workload, alone: Predictions, plan: Plan, *, rows: IndexArray, at: IndexArray) -> FloatArray:
    """A part of the step by the plan, (rows, batches), both as indices of those of `alone`."""
    step_s = alone.step_s[rows][:, at]
    if plan.tensor == 1:
        return step_s
    if alone.part_ratio is None:
        raise ValueError("the parts of the step were not counted")
    # One choice of precision is as wide on all GPUs, and only these are tensor parallel.
    (width,) = {width_of(precision) for precision in (alone.precisions[row] for row in rows) if precision is not None}
    spread = spread_step(
        Alone(step_s=step_s, part_s=alone.part_ratio[:, rows][..., at] * step_s),
        plan,
        traffic=traffic_of(part, batches=alone.batches[at].astype(np.float64), width=width),
        fabric=fabric_of([alone.devices[row] for row in rows], plan),
    )
    return spread.step_s


def _compute_bound_from(passes: Predictions, sizes: IndexArray) -> FloatArray:
    """The fewest requests compared from which decode is bound by computing, (devices,); infinity: never."""
    compared = np.isin(sizes, _COMPARED)
    is_bound = (passes.bound[:, compared] == BOUNDS.index("compute")) & np.isfinite(passes.step_s[:, compared])
    found: FloatArray = np.where(is_bound.any(axis=1), sizes[compared][is_bound.argmax(axis=1)], np.inf)
    return found


def _stored(predictions: Predictions, workload: Workload, name: str, batches: FloatArray) -> FloatArray:
    """What all requests, or one copy of the model, take in memory, (devices, batches)."""
    stored: StoredBytes = getattr(workload.memory[0], name)
    by_width = {
        width_of(precision): stored_bytes(stored, batches=batches, width=width_of(precision))
        for precision in predictions.precisions
        if precision is not None
    }
    nothing = np.zeros(len(batches))
    return np.stack(
        [nothing if precision is None else by_width[width_of(precision)] for precision in predictions.precisions]
    )
