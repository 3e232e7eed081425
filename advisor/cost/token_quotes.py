"""Computes the time and the cost per token of LLM serving."""

import math
from collections.abc import Mapping

from advisor.records.answer import Z_90, Interval, Job, TokenQuote
from advisor.records.prediction import FloatArray, Predictions


def token_quote(
    predictions: Predictions,
    device: int,
    batch: int,
    *,
    step_s: FloatArray,
    job_usd: float,
    job: Job,
    queued: Mapping[str, float],
) -> TokenQuote | None:
    """Return the token quote of the step at these indices of device and batch; None if it generates no tokens.

    `step_s` is (3,): the middle and both ends. All times of a step have the same relative error. `queued` are the
    percentiles under the load of a service.
    """
    tokens, generation = predictions.tokens, job.generation
    if tokens is None or generation is None:
        return None

    def interval(times_s: FloatArray) -> Interval:
        mid, low, high = (step_s / step_s[0] * times_s[device, batch]).tolist()
        return Interval(mid=mid, low=low, high=high)

    ttft_s = interval(tokens.first_s)
    if tokens.first_log_spread is not None:  # the time to first token has an error of its own
        time_ratio = predictions.devices[device].time_ratio
        factor = math.exp(Z_90 * float(tokens.first_log_spread[device, batch]))
        ttft_s = Interval(mid=ttft_s.mid, low=ttft_s.mid * time_ratio / factor, high=ttft_s.mid * factor)
    per_million = job_usd / job.samples * 1e6
    compute_bound_from = float(tokens.compute_bound_from[device, batch])
    return TokenQuote(
        ttft_s=ttft_s,
        tpot_s=interval(tokens.between_s),
        decode_s=float(tokens.pass_s[device, batch]),
        output_tokens_per_s=float(predictions.batches[batch] * generation.output_tokens / step_s[0]),
        usd_per_million_output_tokens=per_million / generation.output_tokens,
        usd_per_million_tokens=per_million / generation.token_count,
        kv_cache_bytes=float(tokens.kv_cache_bytes[device, batch]),
        weight_bytes=float(tokens.weight_bytes[device, batch]),
        compute_bound_from=int(compute_bound_from) if math.isfinite(compute_bound_from) else None,
        undrafted_tpot_s=None
        if tokens.undrafted_between_s is None
        else float(tokens.undrafted_between_s[device, batch]),
        kernels=tokens.kernels[device] if tokens.kernels else "",
        **queued,
    )
