"""Predicts the passes of an inference engine under one plan over GPUs, and the times of a request.

An engine puts the tokens of all requests in flight into one pass: one token of each answer, and a chunk of a new prompt
(chunked prefill; Agrawal et al., Sarathi-Serve, 2024). A request therefore waits for the pass under way and for those
with its own prompt, and then shares every pass with the prompts of the others.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from advisor.predict.precision import Width
from advisor.predict.served_pass import EngineRates, PassTimes, PassWork, pass_times
from advisor.records.generation import Generation
from advisor.records.prediction import FloatArray
from advisor.records.scale import Fabric, Plan
from advisor.scale.collectives import ALL_REDUCES, expert_exchange_s, send_s, tensor_all_reduce_s
from advisor.scale.links import expert_fabric, inner_fabric, stage_links
from advisor.scale.served_model import PER_TOKEN, ServedModel

_DIVIDED = (
    "weight_bytes", "narrow_bytes", "narrow_weights", "product_flops", "narrow_flops", "expert_flops",
    "attention_flops", "vector_flops", "inner_bytes",
)  # fmt: skip
"""The fields of which each GPU of a tensor-parallel group has its part."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestTimes:
    """The times of a request, (devices, batches), as in `TokenTimes`.

    `passed` is a decode pass. `round_parts_s` are the compute time, memory time and overhead in the time of `round_s`,
    in which each request gets the tokens of a pass, with its share of reading the prompts of the others.
    """

    first_s: FloatArray
    between_s: FloatArray
    passed: PassTimes
    round_s: FloatArray
    round_parts_s: tuple[FloatArray, ...]


def request_times(
    model: ServedModel,
    *,
    rates: EngineRates,
    width: Width,
    in_flight: FloatArray,
    plan: Plan,
    fabric: Fabric | None,
    chunk_tokens: int,
) -> RequestTimes:
    """Return the times of a request among `in_flight` of one replica, (batches,), which may be fractions.

    `fabric` links the GPUs of the plan. A pipeline of p stages runs p groups of the requests one behind the other, so
    that a group is a p-th of them, and the chunks of a prompt too (vLLM: v1/core/sched/scheduler.py schedules the next
    before the last has ended). Copies that divide experts wait for each other in every layer, so that prompts of all
    of them slow each down.
    """
    generation, group = model.generation, np.maximum(in_flight / plan.pipeline, 1.0)
    chunks = chunk_count(generation, chunk_tokens)
    pass_of = passes(model, rates=rates, width=width, group=group, plan=plan, fabric=fabric, chunks=chunks)
    others = np.maximum(group * plan.expert - 1, 0.0)
    passed, decode_s = pass_of(0, group)
    (mixed, mixed_s), own_s = pass_of(1, group), pass_of(1, np.maximum(group - 1, 0.0))[1]
    chunk_rate = others * generation.tokens_per_pass / generation.decode_count * chunks
    slowed = np.maximum(np.minimum(chunk_rate, 1.0), chunk_rate / plan.expert)  # copies read prompts at the same time
    round_s = decode_s + slowed * np.maximum(mixed_s - decode_s, 0.0)
    first_s = (
        rates.first_token_s
        + generation.prompt_tokens * rates.prompt_token_s
        + (chunks + plan.pipeline - 1) / plan.pipeline * own_s
        + np.where(others > 0, round_s / 2, 0.0)  # half of the pass under way
    )
    both = zip(_parts_s(passed), _parts_s(mixed), strict=True)
    return RequestTimes(
        first_s=first_s,
        between_s=round_s / generation.tokens_per_pass,
        passed=passed,
        round_s=round_s,
        round_parts_s=tuple(of_decode + slowed * np.maximum(of_mixed - of_decode, 0.0) for of_decode, of_mixed in both),
    )


def _parts_s(passed: PassTimes) -> tuple[FloatArray, ...]:
    return passed.compute_s, passed.memory_s, passed.overhead_s


def chunk_count(generation: Generation, chunk_tokens: int) -> int:
    """Return the passes in which an engine with this token budget reads a prompt."""
    # vLLM chunks no prompts of models with an encoder (`SchedulerConfig`, `is_encoder_decoder`).
    return 1 if generation.encoder_tokens else max(1, math.ceil(generation.new_tokens / chunk_tokens))


def passes(
    model: ServedModel,
    *,
    rates: EngineRates,
    width: Width,
    group: FloatArray,
    plan: Plan,
    fabric: Fabric | None,
    chunks: int,
) -> Callable[[float, FloatArray], tuple[PassTimes, FloatArray]]:
    """Return a function of the chunks of prompts in a pass and of the requests that decode in it, about `group`.

    It takes the requests as (batches,), and gives the times of the pass, and its whole time with what GPUs tell each
    other, (devices, batches).
    """
    generation, engine, one = model.generation, model.engine, np.ones(1)
    decode = _divided(model.work("decode", width, group, expert=plan.expert), plan, generation)
    prompt = _divided(model.work("prefill", width, one, expert=plan.expert), plan, generation)
    scaled = (*PER_TOKEN, "cache_bytes", "token_count", "request_count", "logit_count")
    verified, draft_cost_ratio = 1 + generation.draft_tokens, generation.draft_cost_ratio
    plain = decode
    if draft_cost_ratio:
        plain = _divided(model.without_drafts.work("decode", width, group, expert=plan.expert), plan, generation)

    def exchange_s(parts: float, tokens: FloatArray) -> FloatArray:
        """Return the time that GPUs take to tell each other the results of a pass."""
        if fabric is None:
            return np.zeros((1, 1))
        count, of_prompt = model.exchanged_bytes("prefill", width, one)
        of_token = of_prompt / generation.prefill_tokens
        sent = of_token * (parts * generation.new_tokens / chunks + tokens)
        total = np.zeros((1, 1))
        if plan.tensor > 1:
            total = (
                count
                * ALL_REDUCES
                * tensor_all_reduce_s(
                    sent,
                    inner_fabric(fabric, ways=plan.tensor),
                    kernels=engine.all_reduce,
                    waiting_s=rates.all_reduce_s,
                )
            )
        if plan.expert > 1:
            dispatch_s = expert_exchange_s(sent, expert_fabric(fabric, plan), chosen=model.experts_per_token)
            total = total + model.expert_layer_count * 2 * (rates.all_reduce_s + dispatch_s)  # combine takes as long
        for link, sends in stage_links(fabric, plan):
            total = total + sends * send_s(sent, link)
        return total

    def joined(parts: float, decoding: FloatArray, of_group: PassWork) -> PassWork:
        work = of_group.scaled(**dict.fromkeys(scaled, decoding / group))
        # All but the last chunk give no token.
        return prompt.scaled(**dict.fromkeys(scaled, parts / chunks)).joined(work) if parts else work

    def undrafted_s(parts: float, decoding: FloatArray) -> FloatArray:
        return pass_times(joined(parts, decoding, plain), rates).total_s + exchange_s(parts, decoding)

    def pass_of(parts: float, decoding: FloatArray) -> tuple[PassTimes, FloatArray]:
        passed = pass_times(joined(parts, decoding, decode), rates)
        total_s = passed.total_s + exchange_s(parts, decoding * verified)
        if draft_cost_ratio:  # the drafter reads the prompts with its first drafts (vLLM: v1/spec_decode/eagle.py)
            later_s = (generation.draft_tokens - 1) * undrafted_s(0, decoding)
            drafting_s = undrafted_s(parts, decoding) * ((decoding > 0) | (parts > 0)) + (decoding > 0) * later_s
            total_s = total_s + draft_cost_ratio * drafting_s
        return passed, total_s

    return pass_of


def _divided(work: PassWork, plan: Plan, generation: Generation) -> PassWork:
    """Return the work of one GPU of a tensor-parallel group.

    Each GPU reads whole heads of the KV cache; with fewer heads than GPUs, several GPUs read the same head (vLLM's
    `QKVParallelLinear`). Latents of MLA are on each GPU.
    """
    ways = plan.tensor
    return work.scaled(**dict.fromkeys(_DIVIDED, 1 / ways), cache_bytes=generation.cache_share(ways))
