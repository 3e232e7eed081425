"""Counts the work of the prompts and of the decode passes of a served language model."""

from dataclasses import fields, replace
from functools import cached_property

from advisor.ops.attention import CACHED_ATTENTION
from advisor.ops.matmul import CHOSEN_EXPERTS
from advisor.predict.blocks import is_of_experts
from advisor.predict.precision import Width
from advisor.predict.served_pass import PassWork, pass_work
from advisor.predict.step_memory import attribute
from advisor.records.generation import Generation
from advisor.records.prediction import FloatArray
from advisor.records.workload import Blocks, Phase, Workload
from advisor.scale.traffic import traffic_of

PER_TOKEN = (
    "product_flops", "narrow_flops", "expert_flops", "narrow_inputs", "attention_flops", "vector_flops", "inner_bytes",
    "outer_bytes",
)  # fmt: skip
"""The fields of `PassWork` that grow with the tokens of a prompt, but for the pairs in `attention_flops`."""


class ServedModel:
    """The work of a served language model, counted once for each width and each number of requests in a pass."""

    def __init__(self, workload: Workload) -> None:
        generation = workload.generation
        if generation is None or generation.engine is None:
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
        return ServedModel(replace(self.workload, generation=replace(self.generation, draft_tokens=0)))

    def _at_context(self, work: PassWork, width: Width, in_flight: FloatArray) -> PassWork:
        """Return the work of a prompt of another length than the trace's: all grows with the tokens but attention.

        Causal attention grows with the pairs of tokens inside the layers' windows; recurrent scans do not.
        """
        generation, ratio = self.generation, self._context_ratio
        if ratio == 1:
            return work
        rows = tuple(row for row in self._parts["prefill"].rows if row.op in CACHED_ATTENTION)
        part = replace(self._parts["prefill"], rows=rows)
        of_pairs = pass_work(part, batches=in_flight, width=width, tokens=1, truncates=False).attention_flops
        before, after = (
            sum(one.token_bytes * _pair_count(tokens, one.window_tokens) for one in generation.cached)
            for tokens in (generation.traced_tokens or generation.prompt_tokens, generation.prompt_tokens)
        )
        by_token = work.scaled(**dict.fromkeys(PER_TOKEN, ratio))
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
    return {**dict.fromkeys((*PER_TOKEN, "token_count"), share), "attention_flops": 1 - (1 - share) ** 2}


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
    results = replace(blocks.results, full=tuple(size / count for size in blocks.results.full))
    return replace(blocks, count=blocks.count // count, results=results)
