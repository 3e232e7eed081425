"""Writes the sentences about LLM serving: the settings, the token times, the memory and the bound of decode."""

from collections.abc import Iterator, Mapping

from advisor import units
from advisor.records.answer import Job, Quote
from advisor.records.generation import WeightFormat
from advisor.records.price import ExchangeRate
from advisor.records.sample_words import batch_text
from advisor.report.interval_text import interval_text

_WEIGHTS: Mapping[WeightFormat, str] = {
    "auto": "weights in the same precision",
    "bf16": "block weights in bf16",
    "fp8": "block weights in fp8",
    "int8": "block weights in int8",
    "int4": "block weights in int4 with groups of 128",
}
_PRECISIONS = {"half": "half (bf16 if native, else fp16, or fp32 on CPUs)"}


def service_settings(job: Job) -> str | None:
    """Return the settings of the job, or None if it is not LLM serving."""
    generation = job.generation
    if generation is None:
        return None
    in_flight = f"{job.batch} requests in flight"
    if job.batch == "auto":
        in_flight = "the cheapest number of requests in flight"
    elif job.batch.isdecimal():
        in_flight = batch_text(int(job.batch), generation)
    return (
        f"LLM serving: prompts of {generation.prompt_tokens:,} tokens, answers of "
        f"{generation.output_tokens:,}, {in_flight} per instance, "
        f"{_PRECISIONS.get(job.precision, job.precision)}, {_WEIGHTS[generation.weights]}, continuous batching, fused "
        "kernels, decode in a CUDA graph on GPUs"
    )


def token_notes(best: Quote, job: Job, *, rate: ExchangeRate | None) -> Iterator[str]:
    """Yield the token times of the best offer, its price per token, its memory, and the bound of decode."""
    tokens = best.tokens
    if tokens is None or job.generation is None:
        return
    times = f"first token after {interval_text(tokens.ttft_s)}, then one every {interval_text(tokens.tpot_s)}"
    if tokens.tpot_s.mid > tokens.decode_s:
        alone = units.format_duration(tokens.decode_s)
        times += f"; a decode step alone takes {alone}, and prefill of other requests runs in between"
    yield f"{times}."
    yield (
        f"{units.format_money(tokens.usd_per_million_output_tokens, rate=rate, digits=3)} per million output "
        f"tokens, {units.format_money(tokens.usd_per_million_tokens, rate=rate, digits=3)} per million input and "
        "output tokens."
    )
    yield (
        f"the KV cache of {batch_text(best.batch, job.generation)} takes at "
        f"most {units.format_bytes(tokens.kv_cache_bytes)}; one copy of the weights takes "
        f"{units.format_bytes(tokens.weight_bytes)}."
    )
    if tokens.compute_bound_from is None:
        yield "decode is bandwidth-bound at any number of requests, because each one has its own KV cache to read."
    else:
        yield f"decode is bandwidth-bound below {tokens.compute_bound_from:,} requests, and compute-bound above."
