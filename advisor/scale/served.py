"""Predicts the requests of a language model in service on every device, under the best plan over its GPUs.

An engine puts the tokens of all requests in flight into one pass: one token of each answer, and a chunk of a new prompt
(chunked prefill; Agrawal et al., Sarathi-Serve, 2024). A request therefore waits for the pass under way and for those
with its own prompt, and then shares every pass with the prompts of the others.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from advisor.errors import UsageError
from advisor.ops.matmul import CHOSEN_EXPERTS
from advisor.predict.blocks import is_of_experts
from advisor.predict.narrow_kernels import narrow_kernels
from advisor.predict.precision import Width, width_of
from advisor.predict.served_pass import (
    EngineRates,
    PassTimes,
    PassWork,
    costs_of,
    engine_rates,
    known_of,
    pass_times,
    pass_work,
)
from advisor.predict.step_memory import attribute, stored_bytes, usable_bytes
from advisor.predict.step_time import time_source
from advisor.records.answer import BOUNDS, Z_90
from advisor.records.device import Device, DeviceKind, Efficiency, Precision
from advisor.records.engine import BatchLimits, DirectKernels, Engine
from advisor.records.generation import Generation
from advisor.records.options import Options
from advisor.records.prediction import (
    EXACT_PARTS,
    USES,
    EnginePasses,
    FloatArray,
    IndexArray,
    PassesAt,
    Predictions,
    Scaling,
    TokenTimes,
)
from advisor.records.scale import Fabric, Link, Plan, Spreading
from advisor.records.workload import Blocks, Phase, Workload
from advisor.scale.collectives import all_reduce_s, all_to_all_s, rank_count, send_s, switched_s
from advisor.scale.links import expert_fabric, fabric_of, inner_fabric
from advisor.scale.plans import divides_heads, gpu_counts, machine_counts, served_plans
from advisor.scale.sharded_memory import memory_of_one
from advisor.scale.spread_out import precedes
from advisor.scale.traffic import traffic_of

Lateness = Callable[[FloatArray, TokenTimes, Sequence[int]], FloatArray]
"""Returns predicted over allowed time of steps, (members, batches), on the devices at these indices."""
_LARGEST = 4096
_COMPARED = np.array([1 << exponent for exponent in range(_LARGEST.bit_length())], dtype=np.float64)
"""The concurrencies at which decode is checked for being compute-bound."""
_ATTENTION = ("attention", "engine.latent_attention")
"""The operators whose work grows with the pairs of tokens."""
_PER_TOKEN = (
    "product_flops", "narrow_flops", "narrow_inputs", "attention_flops", "vector_flops", "inner_bytes", "outer_bytes"
)  # fmt: skip
"""The fields of `PassWork` that grow with the tokens of a prompt, but for the pairs in `attention_flops`."""
_TOKEN_TIMES = (
    "first_s", "between_s", "pass_s", "compute_bound_from", "kv_cache_bytes", "weight_bytes", "undrafted_between_s"
)  # fmt: skip
"""The arrays of `TokenTimes` that depend on the plan."""
_PAIR = 2
_DIRECT_WAYS = (2, 4, 6, 8)
"""Sizes of groups for which vLLM has kernels (custom_all_reduce.py, `_SUPPORTED_WORLD_SIZES`)."""
_DIVIDED = (
    "weight_bytes", "narrow_bytes", "narrow_weights", "product_flops", "narrow_flops", "attention_flops",
    "vector_flops", "inner_bytes",
)  # fmt: skip
"""The fields of which each GPU of a tensor-parallel group has its part."""
_ALL_REDUCES = 2
"""All-reduces per block: after attention and after feed-forward (Megatron-LM)."""


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


class ServedModel:
    """The work of a served language model, counted once for each width and each number of requests in a pass."""

    def __init__(self, workload: Workload, generation: Generation) -> None:
        if generation.engine is None:
            raise ValueError(f"{workload.name} is not served by an engine")
        self.workload, self.generation, self.engine = workload, generation, generation.engine
        self._parts = {phase: part_of_generation(workload, phase) for phase in ("prefill", "decode")}
        self._counted: dict[tuple[Phase, Width, int, tuple[float, ...]], PassWork] = {}

    def work(self, phase: Phase, width: Width, in_flight: FloatArray, *, expert: int = 1) -> PassWork:
        """Return the work of a whole prompt, or of one decode pass, at these numbers of requests.

        If `expert` copies of the attention layers divide the experts, it is that of one of them. All of them decode at
        the same time; a prompt is read by one, and all work on its experts. A pass that verifies drafts takes several
        tokens of each request through the model and reads its cache once.
        """
        key = (phase, width, expert, tuple(in_flight.tolist()))
        if key not in self._counted:
            generation = self.generation
            verified = 1 + generation.draft_tokens if phase == "decode" else 1
            counted = self._count(phase, width, in_flight * verified, expert=expert)
            if phase == "prefill":
                counted = self._at_context(counted, width, in_flight).scaled(**_new_shares(generation))
            elif verified > 1:
                counted = counted.scaled(cache_bytes=1 / verified, request_count=1 / verified)
            self._counted[key] = counted
        return self._counted[key]

    def _count(self, phase: Phase, width: Width, in_flight: FloatArray, *, expert: int) -> PassWork:
        generation, part = self.generation, self._parts[phase]
        tokens = generation.prefill_tokens if phase == "prefill" else 1
        if expert == 1:
            return pass_work(
                part, batches=in_flight, width=width, tokens=tokens, truncates=generation.truncates_sampling
            )
        own, divided = (
            replace(part, rows=tuple(row for row in part.rows if is_of_experts(row) == wanted))
            for wanted in (False, True)
        )
        alone = pass_work(own, batches=in_flight, width=width, tokens=tokens, truncates=generation.truncates_sampling)
        all_requests = in_flight * (1 if phase == "prefill" else expert)
        shared = pass_work(divided, batches=all_requests, width=width, tokens=tokens, truncates=False)
        names = {one.name for one in fields(PassWork)} - {"kernel_count", "narrow_kernels"}
        nobody = dict.fromkeys(("token_count", "request_count"), 0.0)  # they are counted already
        return alone.plus(shared.scaled(**dict.fromkeys(names, 1 / expert) | nobody))

    @cached_property
    def without_drafts(self) -> "ServedModel":
        """Return the model without speculative decoding."""
        if not self.generation.draft_tokens:
            return self
        return ServedModel(self.workload, replace(self.generation, draft_tokens=0))

    def _at_context(self, work: PassWork, width: Width, in_flight: FloatArray) -> PassWork:
        """Return the work of a prompt of another length than the trace's: all grows with the tokens but attention.

        Causal attention grows with the pairs of tokens inside the layers' windows; recurrent scans do not.
        """
        generation, ratio = self.generation, self._context_ratio
        if ratio == 1:
            return work
        rows = tuple(row for row in self._parts["prefill"].rows if row.op in _ATTENTION)
        part = replace(self._parts["prefill"], rows=rows)
        of_pairs = pass_work(part, batches=in_flight, width=width, tokens=1, truncates=False).attention_flops
        before, after = (
            sum(one.token_bytes * _pair_count(tokens, one.window_tokens) for one in generation.cached)
            for tokens in (generation.traced_tokens or generation.prompt_tokens, generation.prompt_tokens)
        )
        by_token = work.scaled(**dict.fromkeys(_PER_TOKEN, ratio))
        more_flops = of_pairs * (after / max(before, 1.0) - ratio)
        return replace(by_token, attention_flops=by_token.attention_flops + more_flops)

    @property
    def _context_ratio(self) -> float:
        """Return the tokens of a prompt relative to those of the trace."""
        return self.generation.prompt_tokens / (self.generation.traced_tokens or self.generation.prompt_tokens)

    @property
    def experts_per_token(self) -> int:
        """Return how many experts a token chooses; 0 in a model without experts."""
        rows = self._parts["prefill"].rows
        return max((int(attribute(row, CHOSEN_EXPERTS)) for row in rows if is_of_experts(row)), default=0)

    @property
    def expert_layer_count(self) -> int:
        """Return the layers with experts, each of which has two products: gate and up, and down."""
        return sum(row.count for row in self._parts["prefill"].rows if is_of_experts(row)) // 2

    def exchanged_bytes(self, phase: Phase, width: Width, in_flight: FloatArray) -> tuple[int, FloatArray]:
        """Return the number of blocks, and the bytes that one of them hands on in a pass."""
        traffic = traffic_of(self._parts[phase], batches=in_flight, width=width)
        ratio = self._context_ratio if phase == "prefill" else 1.0
        return traffic.block_count, traffic.result_bytes * ratio


def _pair_count(tokens: int, window: int | None) -> float:
    """Return the pairs of a token and one that it sees, itself included."""
    seen = tokens if window is None else min(tokens, window)
    return seen * (seen + 1) / 2 + (tokens - seen) * seen


def _new_shares(generation: Generation) -> dict[str, float]:
    """Return the shares of a prompt's work that a prefix cache does not save: its new tokens attend to all before."""
    share = generation.new_tokens / generation.prefill_tokens
    return {**dict.fromkeys((*_PER_TOKEN, "token_count"), share), "attention_flops": 1 - (1 - share) ** 2}


def part_of_generation(workload: Workload, phase: Phase) -> Workload:
    """Return the whole prefill, or one decode pass, as a workload of its own."""
    if workload.generation is None:
        raise ValueError(f"{workload.name} generates nothing")
    count = workload.generation.decode_count if phase == "decode" else 1
    return replace(
        workload,
        generation=None,
        inputs=workload.inputs if phase == "prefill" else (),
        rows=tuple(replace(row, count=row.count // count) for row in workload.rows if row.phase == phase),
        blocks=tuple(_blocks_of_pass(blocks, count) for blocks in workload.blocks if blocks.phase == phase),
    )


def _blocks_of_pass(blocks: Blocks, count: int) -> Blocks:
    start, slope = blocks.results.full
    results = replace(blocks.results, full=(start / count, slope / count))
    return replace(blocks, count=blocks.count // count, results=results)


def batch_limits(device: Device, engine: Engine) -> BatchLimits:
    """Return the engine's default limits on this device."""
    if device.kind == "cpu":
        return engine.limits["cpu"]
    is_large = device.memory_bytes >= engine.large_gpu_bytes and not any(one in device.id for one in engine.not_large)
    return engine.limits["large_gpu" if is_large else "gpu"]


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
    pass_of = _passes(model, rates=rates, width=width, group=group, plan=plan, fabric=fabric, chunks=chunks)
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


def _passes(
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

    It gives the times of the pass, and its whole time with what GPUs tell each other.
    """
    generation, engine, one = model.generation, model.engine, np.ones(1)
    decode = _divided(model.work("decode", width, group, expert=plan.expert), plan, generation)
    prompt = _divided(model.work("prefill", width, one, expert=plan.expert), plan, generation)
    scaled = (*_PER_TOKEN, "cache_bytes", "token_count", "request_count", "logit_count")
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
                * _ALL_REDUCES
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
        for link, sends in _stage_links(fabric, plan):
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


def tensor_all_reduce_s(sent_bytes: Any, fabric: Fabric, *, kernels: DirectKernels, waiting_s: Any) -> FloatArray:
    """Return the time of an engine's all-reduce: with its own kernels where they apply, or with NCCL if that is faster.

    In one shot each GPU reads all bytes of all others; in two each adds up a part and then reads the parts of the
    others (vLLM: csrc/custom_all_reduce.cuh). In a third kernel the switch adds. They are for 2, 4, 6 or 8 GPUs of a
    machine with links to each other, or for 2 on PCIe. `waiting_s` is added.
    """
    link, ways = fabric.inside, fabric.gpu_count
    fastest_s: FloatArray = all_reduce_s(sent_bytes, fabric)
    if fabric.machines == 1 and ways in _DIRECT_WAYS:
        rate = np.minimum(link.bytes_per_s, (ways - 1) * link.peer_bytes_per_s) * kernels.direct_ratio
        one_shot_s = kernels.direct_s + (ways - 1) * sent_bytes / rate
        two_shot_s = 2 * kernels.direct_s + 2 * (ways - 1) / ways * sent_bytes / rate
        applies = (sent_bytes < kernels.direct_most_bytes) & (np.isinf(link.shared_bytes_per_s) | (ways == _PAIR))
        fastest_s = np.where(applies, np.minimum(fastest_s, np.minimum(one_shot_s, two_shot_s)), fastest_s)
        if ways > _PAIR:
            in_switch_s = kernels.switch_s + switched_s(sent_bytes, link, share=kernels.switch_ratio)
            applies = sent_bytes <= kernels.switch_most_bytes
            fastest_s = np.where(applies, np.minimum(fastest_s, in_switch_s), fastest_s)
    total_s: FloatArray = waiting_s + fastest_s
    return total_s


def expert_exchange_s(sent_bytes: Any, fabric: Fabric, *, chosen: int) -> FloatArray:
    """Return the time to send tokens, each to `chosen` experts, from the GPU that has them to those with the experts.

    A token goes once to each machine and once to each GPU on which it has an expert (deepseek-ai/DeepEP, normal
    kernels); of n places, k choices reach n (1 - (1 - 1/n)^k).
    """

    def reached(places: int) -> float:
        return places * (1 - (1 - 1 / places) ** chosen)

    network_bytes = sent_bytes * reached(fabric.machines) * (1 - 1 / fabric.machines)
    seconds: FloatArray = all_to_all_s(sent_bytes * reached(rank_count(fabric)), fabric, network_bytes=network_bytes)
    return seconds


def _stage_links(fabric: Fabric, plan: Plan) -> Iterator[tuple[Link, int]]:
    """Yield the links between the stages of a pipeline, each with the number of times that a pass goes over it."""
    machines = max(1, plan.tensor * plan.pipeline // fabric.gpu_count)
    between = 0 if fabric.between is None else min(plan.pipeline, machines) - 1
    if fabric.between is not None and between:
        yield fabric.between, between
    if plan.pipeline - 1 - between:
        yield fabric.inside, plan.pipeline - 1 - between


def _divided(work: PassWork, plan: Plan, generation: Generation) -> PassWork:
    """Return the work of one GPU of a tensor-parallel group.

    Each GPU reads whole heads of the KV cache; with fewer heads than GPUs, several GPUs read the same head (vLLM's
    `QKVParallelLinear`). Latents of MLA are on each GPU.
    """
    ways = plan.tensor
    return work.scaled(**dict.fromkeys(_DIVIDED, 1 / ways), cache_bytes=generation.cache_share(ways))


def predict_served(
    workload: Workload,
    *,
    devices: Sequence[Device],
    efficiencies: Sequence[Efficiency],
    batches: IndexArray,
    options: Options,
    asked: Spreading,
    lateness: Lateness | None = None,
    family_of: Callable[[Plan], tuple[int, ...]] = lambda plan: (),
) -> Predictions:
    """Predict the requests in flight on each device at each concurrency, under the plan that answers most of them.

    Plans that fit and keep the time limits come first. Plans of different families, which `family_of` orders, are not
    compared: the result has all batches once for each family. Raises `UsageError` if no machine can run what was asked.
    """
    generation = workload.generation
    if generation is None or generation.engine is None:
        raise ValueError(f"{workload.name} is not served by an engine")
    model, engine = ServedModel(workload, generation), generation.engine
    if asked.expert and not model.experts_per_token:
        raise UsageError(f"--expert-parallel: {workload.name} has no experts", hint="leave out --expert-parallel")
    precisions = [_precision_of(device, engine, generation, options) for device in devices]
    groups: dict[tuple[DeviceKind, Width, tuple[int, bool, bool], BatchLimits], list[int]] = {}
    for index, (device, precision) in enumerate(zip(devices, precisions, strict=True)):
        if precision is None:
            continue
        may_join = asked.max_machines > 1 and device.kind == "gpu" and device.network_bytes_per_s is not None
        is_linked = device.gpu_count == 1 or bool(device.nvlink_bytes_per_s or device.peer_link_bytes_per_s)
        machine = (device.gpu_count, may_join, is_linked)
        key = (device.kind, width_of(precision), machine, batch_limits(device, engine))
        groups.setdefault(key, []).append(index)
    plans_of = {
        machine: list(_plans(workload, machine[0], may_join=machine[1], is_linked=machine[2], asked=asked))
        for machine in {key[2] for key in groups}
    }
    families = sorted({family_of(plan) for plans in plans_of.values() for plan in plans})
    best, replicas = _Best(devices, batches, family_count=len(families)), []
    for (kind, width, machine, limits), members in groups.items():
        some = [devices[index] for index in members]
        rates = engine_rates(
            some,
            [one for one in (precisions[index] for index in members) if one is not None],
            engine=engine,
            efficiencies=efficiencies,
            weights=generation.weights,
            kv_cache=generation.kv_cache,
        )
        replicas.append(_Replicas(members=members, width=width, limits=limits, rates=rates))
        compute_from = _compute_bound_from(model, rates, width)
        for plan in plans_of[machine]:
            best.take(
                members,
                families.index(family_of(plan)),
                _offered(
                    model, plan, some, kind=kind, width=width, rates=rates, limits=limits,
                    batches=batches, compute_from=compute_from, members=members, lateness=lateness,
                ),
            )  # fmt: skip
    if groups and not best.plans:
        raise _no_plan(workload, [device.gpu_count for device in devices], asked)
    return best.predictions(
        precisions,
        engine=engine,
        generation=generation,
        options=options,
        passes_at=lambda *at: _passes_at(model, best, replicas, *at),
    )


def exchange_ratio(
    workload: Workload,
    device: Device,
    *,
    precision: Precision,
    plan: Plan,
    batch: int,
    efficiencies: Sequence[Efficiency],
) -> float:
    """Return the share of a request's time in which the GPUs of the plan exchange results or wait for each other."""
    generation = workload.generation
    if generation is None or generation.engine is None:
        raise ValueError(f"{workload.name} is not served by an engine")
    engine = generation.engine
    rates = engine_rates(
        [device],
        [precision],
        engine=engine,
        efficiencies=efficiencies,
        weights=generation.weights,
        kv_cache=generation.kv_cache,
    )

    def request_s(fabric: Fabric | None) -> float:
        times = request_times(
            ServedModel(workload, generation),
            rates=rates,
            width=width_of(precision),
            in_flight=np.ceil(np.array([batch / plan.data])),
            plan=plan,
            fabric=fabric,
            chunk_tokens=batch_limits(device, engine).max_num_batched_tokens,
        )
        return float((times.first_s + generation.decode_count * times.between_s).item())

    return 1 - request_s(None) / request_s(fabric_of([device], plan)) if plan.gpu_count > 1 else 0.0


def _precision_of(device: Device, engine: Engine, generation: Generation, options: Options) -> Precision | None:
    """Return the precision of a device; None if the engine has no kernels there for the formats that were asked for."""
    return (
        None
        if device.stack is not None or generation.missing_kernels(device)
        else engine_precision(device, engine, options)
    )


def _plans(workload: Workload, gpu_count: int, *, may_join: bool, is_linked: bool, asked: Spreading) -> Iterator[Plan]:
    """Yield the plans to compare on machines with so many GPUs.

    `may_join`: several machines may serve together; `is_linked`: their GPUs have links to each other.
    """
    for machines in machine_counts(has_network=may_join, asked=asked):
        for used in gpu_counts(gpu_count, asked=asked):
            if machines == 1 or used == gpu_count:
                yield from served_plans(workload, gpu_count=used, asked=asked, machines=machines, is_linked=is_linked)


def _no_plan(workload: Workload, gpu_counts: Sequence[int], asked: Spreading) -> UsageError:
    """Return the error that says why no machine can run what was asked."""
    heads, kv_heads = (
        (workload.generation.head_count, workload.generation.kv_head_count) if workload.generation else (0, 0)
    )
    ways, most = asked.tensor or 1, max(gpu_counts)
    if not divides_heads(workload, ways):
        possible = [str(one) for one in range(1, most + 1) if divides_heads(workload, one)]
        return UsageError(
            f"--tensor-parallel {ways}: {ways} GPUs cannot share {heads} query heads and {kv_heads} heads of keys and "
            "values, since each GPU holds whole heads",
            hint=f"choose one of {', '.join(possible)}, with --pipeline-parallel for the other GPUs",
        )
    needed = ways * (asked.pipeline or 1) * (asked.expert or 1)
    return UsageError(
        f"the plan needs groups of {needed} GPUs, but no machine in the ranking can be divided into such groups; the "
        f"largest has {most}",
        hint="choose a smaller plan, or allow more machines of a known network: --max-machines 2",
    )


def engine_precision(device: Device, engine: Engine, options: Options) -> Precision:
    """Return the precision of the weights: 16 bits also where a CPU has no unit for them."""
    if options.precision == "fp32":
        return "fp32"
    if options.precision in ("bf16", "fp16"):
        return options.precision
    if device.kind == "cpu":
        return "fp16" if device.isa in engine.fp16_isas else "bf16"
    return "bf16" if "bf16" in device.peak_flops_per_s else "fp16"


def _compute_bound_from(model: ServedModel, rates: EngineRates, width: Width) -> FloatArray:
    """Return the fewest requests of those compared at which decode is compute-bound, (devices, 1), or infinity."""
    times = pass_times(model.work("decode", width, _COMPARED), rates)
    is_bound = times.compute_s > np.maximum(times.memory_s, times.overhead_s)
    first = _COMPARED[is_bound.argmax(axis=1)]
    found: FloatArray = np.where(is_bound.any(axis=1), first, np.inf)[:, np.newaxis]
    return found


def _offered(
    model: ServedModel,
    plan: Plan,
    devices: Sequence[Device],
    *,
    kind: DeviceKind,
    width: Width,
    rates: EngineRates,
    limits: BatchLimits,
    batches: IndexArray,
    compute_from: FloatArray,
    members: Sequence[int],
    lateness: Lateness | None,
) -> tuple[Plan, dict[str, FloatArray]]:
    """Return the plan, and what it gives on these devices, arrays (devices, batches)."""
    generation, workload = model.generation, model.workload
    in_flight = np.ceil(batches / plan.data)

    def under(plan: Plan, model: ServedModel = model) -> RequestTimes:
        return request_times(
            model,
            rates=rates,
            width=width,
            in_flight=in_flight,
            plan=plan,
            fabric=fabric_of(devices, plan) if plan.gpu_count > 1 else None,
            chunk_tokens=limits.max_num_batched_tokens,
        )

    times = under(plan)
    memory = memory_of_one(workload, plan, batches=in_flight, width=width, kind=kind).total
    usable = np.array([usable_bytes(device, workload) for device in devices])[:, np.newaxis]
    is_possible = (batches >= plan.data) & (in_flight <= limits.max_num_seqs) & np.isfinite(times.first_s)
    shape = is_possible.shape
    first_s, between_s = np.broadcast_to(times.first_s, shape), np.broadcast_to(times.between_s, shape)
    step_s = first_s + generation.decode_count * between_s
    efficiency_ratio = np.ones(shape)
    if (shares := plan.tensor * plan.pipeline) > 1:
        alone = under(Plan())
        efficiency_ratio = (alone.first_s + generation.decode_count * alone.between_s) / shares / step_s
    held = plan.tensor * generation.cache_share(plan.tensor)
    memory_line = workload.memory[0]
    flight = batches.astype(np.float64)
    tokens: dict[str, Any] = {
        "first_s": first_s,
        "between_s": between_s,
        "pass_s": np.broadcast_to(times.passed.total_s, shape),
        "compute_bound_from": np.broadcast_to(compute_from * plan.data, shape),
        "kv_cache_bytes": np.broadcast_to(
            held * stored_bytes(memory_line.kv_cache, batches=flight, width=width), shape
        ),
        "weight_bytes": np.broadcast_to(stored_bytes(memory_line.parameters, batches=0 * flight, width=width), shape),
    }
    if generation.draft_tokens:
        tokens["undrafted_between_s"] = np.broadcast_to(under(plan, model.without_drafts).between_s, shape)
    passed = times.passed
    # Communication is the larger part of it with several GPUs.
    waiting_s = times.between_s * generation.tokens_per_pass - passed.total_s
    parts = {"compute": passed.compute_s, "memory": passed.memory_s, "launch": passed.overhead_s}
    if plan.tensor > 1 or plan.expert > 1:
        parts["communication"] = waiting_s
    names = np.array([BOUNDS.index(name) for name in parts])
    bound = names[np.argmax([np.broadcast_to(part, shape) for part in parts.values()], axis=0)]
    fits = is_possible & (memory.mid <= usable)
    late = np.ones(shape)
    if lateness is not None:
        late = np.maximum(1.0, lateness(step_s, TokenTimes(**tokens), members))
    return plan, {
        "step_s": np.where(is_possible, step_s, np.inf),
        "peak_bytes": np.where(is_possible, memory.mid, np.inf),
        "fits": fits,
        "is_tight": is_possible & (memory.low <= usable) & (memory.high > usable),
        "bound": bound,
        "efficiency_ratio": efficiency_ratio,
        **{
            name: np.broadcast_to(part_s / times.round_s, shape)
            for name, part_s in zip(USES, times.round_parts_s, strict=True)
        },
        "rank": np.stack(
            [np.where(fits, 0.0, 2.0), np.where(fits, late, 1.0), np.where(fits, step_s * plan.machines, memory.mid)]
        ),
        **tokens,
    }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Replicas:
    """Devices, by index, whose replicas share the width, limits and rates from which their passes are computed."""

    members: Sequence[int]
    width: Width
    limits: BatchLimits
    rates: EngineRates


def _passes_at(
    model: ServedModel, best: "_Best", replicas: Sequence[_Replicas], devices: IndexArray, batches: IndexArray
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
        place = np.full(len(best.devices), -1)
        place[list(group.members)] = range(len(group.members))
        for number in np.unique(plans[place[devices] >= 0]):
            at = np.flatnonzero((place[devices] >= 0) & (plans == number))
            plan, rates = best.plans[number], group.rates.of(place[devices[at]])
            parallel = plan.pipeline * plan.expert
            pass_of = _passes(
                model,
                rates=rates,
                width=group.width,
                group=np.maximum(decoding / parallel, 1.0),
                plan=plan,
                fabric=fabric_of([best.devices[one] for one in devices[at]], plan) if plan.gpu_count > 1 else None,
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


class _Best:
    """The best plan so far for each device and batch, and its numbers; the batches of each family one after another."""

    def __init__(self, devices: Sequence[Device], batches: IndexArray, *, family_count: int) -> None:
        self.devices, self.batches = devices, np.tile(batches, max(1, family_count))
        self.batch_count, self.family_count = len(batches), family_count
        self.shape = (len(devices), len(self.batches))
        self.plans: list[Plan] = []
        self.plan = np.zeros(self.shape, dtype=np.intp)
        self.rank = np.full((3, *self.shape), np.inf)
        self.held: dict[str, Any] = {
            **{name: np.full(self.shape, np.inf) for name in ("step_s", "peak_bytes", *_TOKEN_TIMES[:-1])},
            **{name: np.zeros(self.shape, dtype=np.bool_) for name in ("fits", "is_tight")},
            "bound": np.zeros(self.shape, dtype=np.intp),
            "efficiency_ratio": np.ones(self.shape),
            **{name: np.zeros(self.shape) for name in USES},
        }

    def take(self, members: Sequence[int], family: int, offered: tuple[Plan, Mapping[str, Any]]) -> None:
        """Replace the entries of the family for which the offered plan is better."""
        plan, values = offered
        columns = slice(family * self.batch_count, (family + 1) * self.batch_count)
        if plan not in self.plans:
            self.plans.append(plan)
        rank, held = values["rank"], self.rank[:, members, columns]
        is_better = precedes(rank, held)
        is_better &= np.isfinite(values["step_s"]) | ~np.isfinite(held[0])
        self.rank[:, members, columns] = np.where(is_better, rank, held)
        self.plan[members, columns] = np.where(is_better, self.plans.index(plan), self.plan[members, columns])
        for name, value in values.items():
            if name != "rank":
                mine = self.held.setdefault(name, np.full(self.shape, np.inf))
                mine[members, columns] = np.where(is_better, value, mine[members, columns])

    def predictions(
        self,
        precisions: Sequence[Precision | None],
        *,
        engine: Engine,
        generation: Generation,
        options: Options,
        passes_at: PassesAt,
    ) -> Predictions:
        """Return the predictions under the best plans, with the spreads of the engine."""
        held, shape = self.held, self.shape
        is_alone = self.batches == 1
        spreads = np.zeros((3, *shape))
        sources, runs = [], []
        for index, device in enumerate(self.devices):
            costs = costs_of(device, engine)
            known = known_of(device, engine)
            kernels = narrow_kernels(device, engine, generation)
            of_kernels = math.hypot(engine.vendor_log_spread(device), *(one.log_spread for one in kernels))
            alone = costs.known_log_spread if known == "device" else costs.tpot_log_spread
            spreads[0, index] = np.hypot(np.where(is_alone, alone, max(costs.load_log_spread, alone)), of_kernels)
            spreads[1, index] = math.hypot(costs.ttft_log_spread, of_kernels)
            spreads[2, index] = math.hypot(
                math.sqrt(max(costs.tpot_log_spread**2 - costs.known_log_spread**2 / 2, 1e-4)),
                engine.vendor_log_spread(device),
            )
            runs.append("; ".join(one.runs for one in kernels))
            sources.append(time_source(device, is_fitted=known != "vendor"))
        step_s = held["step_s"]
        time_ratio = np.array([device.time_ratio for device in self.devices])[:, np.newaxis]
        is_possible = np.isfinite(step_s)
        tokens = TokenTimes(
            **{name: np.where(is_possible, held[name], np.inf) for name in _TOKEN_TIMES if name in held},
            first_log_spread=spreads[1],
            passes_at=passes_at,
            kernels=tuple(runs),
        )
        plans = tuple(self.plans) or (Plan(),)
        return Predictions(
            devices=tuple(self.devices),
            precisions=np.repeat(np.array(precisions, dtype=np.object_)[:, np.newaxis], shape[1], axis=1),
            time_sources=np.repeat(np.array(sources, dtype=np.object_)[:, np.newaxis], shape[1], axis=1),
            compile=options.compile,
            batches=self.batches,
            step_s=step_s,
            step_low_s=step_s * time_ratio * np.exp(-Z_90 * spreads[0]),
            step_high_s=step_s * np.exp(Z_90 * spreads[0]),
            log_spread=spreads[0],
            own_log_spread=np.minimum(spreads[2], spreads[0]),
            bound=held["bound"],
            **{name: held[name] for name in USES},
            peak_memory_bytes=held["peak_bytes"],
            fits=held["fits"],
            is_tight=held["is_tight"],
            scaling=None
            if plans == (Plan(),)
            else Scaling(
                plans=plans,
                plan=self.plan,
                efficiency_ratio=held["efficiency_ratio"],
                family=np.repeat(np.arange(self.family_count), self.batch_count) if self.family_count > 1 else None,
            ),
            tokens=tokens,
        )
