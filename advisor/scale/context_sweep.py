"""Finds how many users a machine serves at other lengths of context, without tracing the model again.

The cost of a prompt grows in known ways: products, norms and activations of prefill grow with its tokens, causal
attention with the pairs of tokens inside each layer's window, and the cache and decode attention with the tokens kept.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.cost.batch_choice import choose_batches
from advisor.cost.quotes import busy_usd_per_hour, quoted_fields
from advisor.cost.service import SECONDS_PER_HOUR
from advisor.predict.batches import concurrencies
from advisor.predict.step_memory import scaled
from advisor.records.answer import ContextPoint, ContextSweep, Job, JobLimits, Quote
from advisor.records.device import Device, Efficiency
from advisor.records.generation import CachedLayers, Generation
from advisor.records.options import Options
from advisor.records.prediction import Predictions
from advisor.records.workload import Operand, Row, Workload
from advisor.scale.predict_on_all import spreading_of
from advisor.scale.served import predict_served

CONTEXTS = (1024, 4096, 16384, 65536, 131072)
"""Tokens of prompt and answer together."""


def at_context(workload: Workload, prompt_tokens: int) -> Workload:
    """Return the served model with prompts of another length; its answers stay as long."""
    before = workload.generation
    if before is None or before.engine is None:
        raise ValueError(f"{workload.name} is not served by an engine")
    after = replace(
        before,
        prompt_tokens=prompt_tokens,
        traced_tokens=before.traced_tokens or before.prompt_tokens,
        prefix_cached_tokens=min(before.prefix_cached_tokens, prompt_tokens - 1),
    )
    held, needed = (one.cache_bytes(before.engine.reserved_tokens(one.token_count)) for one in (before, after))
    return replace(
        workload,
        generation=after,
        memory=tuple(replace(line, kv_cache=scaled(line.kv_cache, needed / held)) for line in workload.memory),
        rows=tuple(_at_context(row, before, after) for row in workload.rows),
    )


def _at_context(row: Row, before: Generation, after: Generation) -> Row:
    """Return a row whose attention reads the keys and values of the other context."""
    if row.phase != "decode" or row.family != "attention":
        return row

    def kept(operand: Operand) -> Operand:
        place = len(operand.shape) - 2  # (..., tokens, width)
        layers = [one for one in before.cached if one.token_bytes and seen_tokens(one, before) == operand.shape[place]]
        if not operand.kept or not layers:
            return operand
        weights = [one.token_bytes for one in layers]
        tokens = float(np.average([seen_tokens(one, after) for one in layers], weights=weights))
        shape = (*operand.shape[:place], (tokens, 0.0), *operand.shape[place + 1 :])
        return replace(operand, shape=shape)

    return replace(row, inputs=tuple(map(kept, row.inputs)))


def seen_tokens(layers: CachedLayers, generation: Generation) -> int:
    """Return the tokens that attention of a decode pass sees on average, the new one included."""
    seen = np.arange(generation.decode_count, dtype=np.float64) + generation.decoder_tokens + 1
    if layers.window_tokens is not None:
        seen = np.minimum(seen, layers.window_tokens)
    return round(float(seen.mean()))


def sweep_contexts(
    workload: Workload,
    quotes: Sequence[Quote],
    devices: Sequence[Device],
    *,
    efficiencies: Sequence[Efficiency],
    options: Options,
    job: Job,
) -> tuple[ContextSweep, ...]:
    """Return what these quotes' machines, with these devices, give at each of `CONTEXTS` that the model takes.

    The model's own limit ends them. Limits on times, and a load, do not count. Nothing is returned for a model with an
    encoder, whose context is not its prompt, and for one whose cache is not known (a workload saved by an old version).
    """
    generation = workload.generation
    if generation is None or not generation.cached or generation.encoder_tokens or not quotes:
        return ()
    most = generation.most_tokens or CONTEXTS[-1]
    contexts = [one for one in sorted({min(one, most) for one in CONTEXTS}) if one > generation.output_tokens]
    points: list[list[ContextPoint]] = [[] for _ in quotes]
    for context in contexts:
        served = at_context(workload, context - generation.output_tokens)
        busy = replace(job, generation=served.generation, requests_per_day=None, limits=JobLimits(), objective="cost")
        sizes = concurrencies()

        def predicted(batches: Sequence[int], some: Sequence[Device], served: Workload = served) -> Predictions:
            return predict_served(
                served,
                devices=some,
                efficiencies=efficiencies,
                batches=np.array(batches, dtype=np.intp),
                options=options,
                asked=spreading_of(options, is_served=True),
            )

        found = predicted(sizes.tolist(), devices)
        choice = choose_batches(found, job=busy)
        for place, quote in enumerate(quotes):
            fits = np.flatnonzero(found.fits[place])
            if not len(fits):
                points[place].append(ContextPoint(context_tokens=context))
                continue
            largest = int(sizes[fits[-1]])
            if fits[-1] + 1 < len(sizes):  # between two of them
                more = np.arange(largest, int(sizes[fits[-1] + 1]))
                largest = int(more[predicted(more.tolist(), [devices[place]]).fits[0]].max())
            at = place, int(choice.index[place])
            output_tokens = generation.output_tokens
            points[place].append(
                _point(found, at, context, output_tokens, most=largest, usd_per_hour=busy_usd_per_hour(quote))
            )
    return tuple(
        ContextSweep(points=tuple(of), **quoted_fields(quote, ContextSweep))
        for quote, of in zip(quotes, points, strict=True)
    )


def _point(
    predictions: Predictions,
    at: tuple[int, int],
    context: int,
    output_tokens: int,
    *,
    most: int,
    usd_per_hour: float,
) -> ContextPoint:
    tokens, batch = predictions.tokens, int(predictions.batches[at[1]])
    if tokens is None:
        raise ValueError("only a served language model has a context")
    answers_per_s = batch / float(predictions.step_s[at])
    machines = 1
    if predictions.scaling is not None:
        machines = predictions.scaling.plans[predictions.scaling.plan[at]].machines
    return ContextPoint(
        context_tokens=context,
        most_in_flight=most,
        in_flight=batch,
        machine_count=machines,
        output_tokens_per_s=answers_per_s * output_tokens,
        usd_per_million_tokens=machines * usd_per_hour / SECONDS_PER_HOUR / (answers_per_s * context) * 1e6,
        ttft_s=float(tokens.first_s[at]),
        tpot_s=float(tokens.between_s[at]),
    )
