"""A quote of a language model in service in, sentences out: its tokens, its memory, what is assumed of its requests."""

from collections.abc import Iterator, Mapping

from advisor import units
from advisor.records.answer import Job, Quote
from advisor.records.generation import WeightFormat
from advisor.records.price import ExchangeRate
from advisor.records.sample_words import batch_text
from advisor.report.interval_text import interval_text

_WEIGHTS: Mapping[WeightFormat, str] = {
    "auto": "weights in the precision of the rest",
    "bf16": "blocks' weights in bf16",
    "fp8": "blocks' weights in fp8",
    "int8": "blocks' weights in int8",
    "int4": "blocks' weights in int4, in groups of 128",
}
_PRECISIONS = {"half": "half (bf16 where native, else fp16, on CPUs fp32)"}


def service_settings(job: Job) -> str | None:
    """The job as understood; None: it is no language model in service."""
    generation = job.generation
    if generation is None:
        return None
    in_flight = f"{job.batch} requests in flight"
    if job.batch == "auto":
        in_flight = "the cheapest number of requests in flight"
    elif job.batch.isdecimal():
        in_flight = batch_text(int(job.batch), generation)
    return (
        f"a language model in service: prompts of {generation.prompt_tokens:,} tokens, answers of "
        f"{generation.output_tokens:,}, {in_flight} per instance, "
        f"{_PRECISIONS.get(job.precision, job.precision)}, {_WEIGHTS[generation.weights]}, continuous batching, fused "
        "kernels, on GPUs decode in a CUDA graph"
    )


def token_notes(best: Quote, job: Job, *, rate: ExchangeRate | None) -> Iterator[str]:
    """How long the tokens of the best take, what holds them up, and what lies in memory."""
    tokens = best.tokens
    if tokens is None or job.generation is None:
        return
    times = f"first token after {interval_text(tokens.ttft_s)}, then one every {interval_text(tokens.tpot_s)}"
    if tokens.tpot_s.mid > tokens.decode_s:
        alone = units.format_duration(tokens.decode_s)
        times += f"; a pass of decode by itself takes {alone}: prompts of other requests are read in between"
    yield f"{times}."
    yield (
        f"{units.format_money(tokens.usd_per_million_output_tokens, rate=rate, digits=3)} per million tokens of "
        f"answers, {units.format_money(tokens.usd_per_million_tokens, rate=rate, digits=3)} of prompts and answers "
        "together."
    )
    yield (
        f"the KV cache of {batch_text(best.batch, job.generation)} takes "
        f"{units.format_bytes(tokens.kv_cache_bytes)} at most; a copy of the weights "
        f"{units.format_bytes(tokens.weight_bytes)}."
    )
    if tokens.compute_bound_from is None:
        yield "decode is bound by memory however many requests there are: each brings a cache of its own to read."
    else:
        yield f"decode is bound by memory with fewer than {tokens.compute_bound_from:,} requests, then by computing."
