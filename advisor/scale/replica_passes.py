"""Predicts the passes of one replica of a served language model, from which its queue is simulated."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from advisor.records.prediction import EXACT_PARTS, EnginePasses, FloatArray, IndexArray
from advisor.scale.best_plans import BestPlans
from advisor.scale.links import fabric_of
from advisor.scale.request_times import chunk_count, passes
from advisor.scale.served_best import Replicas
from advisor.scale.served_model import ServedModel


def passes_at(
    model: ServedModel, best: BestPlans, replicas: Sequence[Replicas], devices: IndexArray, batches: IndexArray
) -> EnginePasses:
    """Return the passes of a replica on these devices, under the best plans for these batches, both by index."""
    plans, in_flight = best.plan[devices, batches], best.batches[batches]
    decoding = _decoding(int(in_flight.max(initial=1)))
    found: dict[str, Any] = {}
    for group in replicas:
        budget = group.limits.max_num_batched_tokens
        chunks = chunk_count(model.generation, budget)
        part_tokens, verified = model.generation.new_tokens / chunks, 1 + model.generation.draft_tokens
        most_parts = max(1, int(budget // part_tokens))
        place = np.full(len(best.plan), -1)
        place[list(group.members)] = range(len(group.members))
        for number in np.unique(plans[place[devices] >= 0]):
            at = np.flatnonzero((place[devices] >= 0) & (plans == number))
            plan, own = best.plans[number], place[devices[at]]
            rates = group.rates.of(own)
            parallel = plan.pipeline * plan.expert
            pass_of = passes(
                model,
                rates=rates,
                width=group.width,
                group=np.maximum(decoding / parallel, 1.0),
                plan=plan,
                fabric=fabric_of([group.devices[one] for one in own], plan) if plan.gpu_count > 1 else None,
                chunks=chunks,
            )
            tokens = np.where(decoding > 0, np.maximum(decoding / parallel, 1.0), 0.0)
            counts = [*range(EXACT_PARTS + 1), plan.expert * most_parts]  # each copy that divides experts reads some
            pass_s = [pass_of(max(min(count, 1.0), count / plan.expert), tokens)[1] for count in counts]
            values: dict[str, Any] = {
                "pass_s": np.stack(pass_s, axis=1),
                "part_count": chunks,
                "part_tokens": part_tokens / verified,
                "most_parts": plan.expert * most_parts,
                "budget_tokens": plan.expert * budget / verified,
                "most_in_flight": -(-in_flight[at] * plan.expert // plan.data),
                "replica_count": plan.data // plan.expert,
                "serving_s": (rates.first_token_s + model.generation.prompt_tokens * rates.prompt_token_s)[:, 0],
            }
            for name, value in values.items():
                empty = np.zeros((len(devices), *np.shape(value)[1:]), dtype=np.asarray(value).dtype)
                found.setdefault(name, empty)[at] = value
    return EnginePasses(decoding=decoding, **found)


def _decoding(most: int) -> FloatArray:
    """Return the numbers of requests in a pass for which its time is computed; between them it is nearly a line."""
    powers = 1 << np.arange((most - 1).bit_length() + 1)
    return np.unique([0, *powers, *(3 * powers[:-2])]).astype(np.float64)
