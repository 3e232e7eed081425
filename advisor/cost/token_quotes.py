"""Computes the time and the cost per token of LLM serving."""

import math

from advisor.cost.interval_arrays import intervals
from advisor.records.answer import Job, TokenQuote
from advisor.records.columns import from_columns
from advisor.records.prediction import FloatArray, IndexArray, Predictions


def token_quotes(
    predictions: Predictions,
    devices: IndexArray,
    batches: IndexArray,
    *,
    step_s: FloatArray,
    job_usd: FloatArray,
    job: Job,
) -> list[TokenQuote | None]:
    """Return the token quote of each step at these device and batch indices; None if the step generates no tokens.

    `step_s` is (3, steps): the middle and both ends. All times of a step have the same relative error.
    """

    tokens, generation = predictions.tokens, job.generation
    if tokens is None or generation is None:
        return [None] * len(devices)
    ends = step_s / step_s[0]
    at = (devices, batches)
    output_tokens = generation.output_tokens
    per_million = job_usd / job.samples * 1e6
    columns = {
        "ttft_s": intervals(ends * tokens.first_s[at]),
        "tpot_s": intervals(ends * tokens.between_s[at]),
        "decode_s": tokens.pass_s[at].tolist(),
        "output_tokens_per_s": (predictions.batches[batches] * output_tokens / step_s[0]).tolist(),
        "usd_per_million_output_tokens": (per_million / output_tokens).tolist(),
        "usd_per_million_tokens": (per_million / generation.token_count).tolist(),
        "kv_cache_bytes": tokens.kv_cache_bytes[at].tolist(),
        "weight_bytes": tokens.weight_bytes[at].tolist(),
        "compute_bound_from": [
            int(least) if math.isfinite(least) else None for least in tokens.compute_bound_from[at].tolist()
        ],
    }
    return list(from_columns(TokenQuote, columns, count=len(devices)))
