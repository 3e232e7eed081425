"""Traces how a language model answers a request, prefill and decode, as a Workload.

A step serves every request in flight once: one pass reads all prompts, and one pass per further token decodes all
answers. This is the average of continuous batching, which interleaves the passes of different requests (Yu et al.,
Orca, 2022; Kwon et al., PagedAttention, 2023).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutput

from advisor.errors import TraceError
from advisor.ops.evaluate import bytes_at
from advisor.ops.matmul import CHOSEN_EXPERTS
from advisor.records.generation import Generation
from advisor.records.workload import Blocks, MemoryLine, Phase, Row, StoredBytes, Workload
from advisor.workload.engine_kernels import (
    MERGED_FAMILIES,
    EngineLayers,
    engine_kernels,
    engine_layers,
    engine_rows,
    following_inputs,
    grows,
)
from advisor.workload.kv_cache import OMIT_TOKENS, TRACED_BYTES, cached_layers, engine_cache
from advisor.workload.loaded import Inputs, LoadedModel
from advisor.workload.sources.language_model import LanguageModel
from advisor.workload.trace import trace
from advisor.workload.user_error import is_of_user

CHUNK_TOKENS = 8192
"""Prompt tokens that an engine processes in one pass (vLLM's default of `max_num_batched_tokens`)."""
_CACHED = {
    "attention": (1, 2),
    "engine.latent_attention": (1, 2),
    "engine.state_update": (0,),
    "engine.convolution_update": (0,),
}
"""Operators that read a cache in decode -> the indices of its tensors among their inputs."""


def trace_generation(model: LanguageModel, *, isolated: bool = False) -> Workload:
    """Trace prefill and an average pass of decode, and combine them into one Workload."""
    generation, windows = model.generation, model.windows
    first_tokens = generation.decoder_tokens
    read = _Pass(model=model, token_count=first_tokens, lengths=[one.prompt_length(first_tokens) for one in windows])
    mean = first_tokens + generation.output_tokens // 2
    # Tokens seen by a decode pass, the new one included, on average; attention's cost is affine in them.
    passes = range(first_tokens + 1, first_tokens + 1 + generation.decode_count)
    seen = [round(sum(map(window.seen, passes)) / len(passes)) for window in windows]
    prefill = read.traced(isolated=isolated)
    written = replace(read, token_count=1, past=mean - 1, lengths=seen, after=read)
    decode = written.traced(isolated=isolated)
    if not (prefill.batch_is_affine and decode.batch_is_affine):
        raise TraceError(
            f"{model.name}: its sizes do not grow linearly with the requests in flight",
            hint="omit --prompt-tokens and --output-tokens to rank one forward pass over a prompt",
        )
    if looped := {row.module for row in decode.rows if row.family == "matmul" and not grows(row)}:
        raise TraceError(
            f"{model.name}: {', '.join(sorted(looped))} run in a loop over experts, of which the tokens are not known",
            hint=OMIT_TOKENS,
        )
    count, experts_per_token = generation.decode_count, model.experts_per_token
    cached = cached_layers(read.cache, windows)
    generation = replace(generation, kv_head_count=min(one.head_count for one in cached), cached=cached)
    kv_bytes = generation.cache_bytes(generation.decoder_tokens + generation.output_tokens)
    return replace(
        prefill,
        generation=generation,
        rows=(
            *_rows(prefill, "prefill", layers=read.layers, experts_per_token=experts_per_token),
            *_rows(decode, "decode", layers=written.layers, experts_per_token=experts_per_token, count=count),
        ),
        unknown_ops=Counter(prefill.unknown_ops) + Counter(decode.unknown_ops),
        memory=tuple(_line(line, generation, kv_bytes=kv_bytes) for line in prefill.memory),
        blocks=(
            *(replace(blocks, phase="prefill", results=read.results(blocks)) for blocks in prefill.blocks),
            *(_decoded(blocks, written, count=count) for blocks in decode.blocks),
        ),
        assumptions=tuple(dict.fromkeys((*prefill.assumptions, *decode.assumptions))),
    )


@dataclass(slots=True, kw_only=True)
class _Pass:
    """One pass through the model over `token_count` tokens per request, after `past` earlier tokens."""

    model: LanguageModel
    token_count: int
    lengths: Sequence[int]
    """Tokens that each layer attends to."""
    past: int = 0
    after: "_Pass | None" = None
    """The prefill before a decode pass."""
    cache: Any = field(init=False, default=None)
    """The cache of the latest trace."""
    layers: EngineLayers = field(init=False)
    """Set by `traced`."""

    def traced(self, *, isolated: bool) -> Workload:
        """Return the pass, traced as an inference step."""
        loaded = LoadedModel(
            name=self.model.name,
            model=self.model.model,
            make_inputs=self._inputs,
            batch=1,
            notes=self.model.notes,
        )
        seen: set[int] = set()
        with following_inputs(seen), engine_kernels(self.model.model, is_decode=self.after is not None):
            try:
                workload = trace(loaded, mode="inference", batch=None, isolated=isolated)
            except Exception as error:  # the model's code, which may need another cache
                if not is_of_user(error) and not isinstance(error, TraceError):
                    raise
                cause = error.__cause__ or error
                reason = f"{type(cause).__name__}: {cause}".partition("\n")[0]
                raise TraceError(f"{loaded.name} fails with an engine's cache: {reason}", hint=OMIT_TOKENS) from error
        self.layers = engine_layers(self.model.model, same_input=seen)
        return workload

    def _inputs(self, batch: int) -> Inputs:
        model, encoded = self.model, self.model.generation.encoder_tokens
        before = None if self.after is None else self.after.cache
        self.cache = engine_cache(self.lengths, past=self.past, batch=batch, written=before, encoder_tokens=encoded)
        tokens = torch.zeros((batch, self.token_count), dtype=torch.long)
        arguments: dict[str, Any] = {model.cache_argument: self.cache, "use_cache": True, **model.settings}
        if not encoded:
            return (), {"input_ids": tokens, **arguments}
        arguments["decoder_input_ids"] = tokens
        if self.after is None:
            return (), {**arguments, **model.encoder_inputs(batch, encoded)}
        output = BaseModelOutput(last_hidden_state=torch.zeros((batch, encoded, model.width)))
        return (), {**arguments, "encoder_outputs": output}

    def results(self, blocks: Blocks) -> StoredBytes:
        """Return the bytes that these blocks pass to each other, as traced."""
        tokens = self.model.generation.encoder_tokens if "encoder" in blocks.path.split(".")[-3:-1] else 0
        passed = blocks.count * (tokens or self.token_count) * self.model.width
        return StoredBytes(full=(0.0, TRACED_BYTES * passed))


def _rows(
    traced: Workload, phase: Phase, *, layers: EngineLayers, experts_per_token: int, count: int = 1
) -> Iterator[Row]:
    """Mark the KV cache as kept in decode's attention, and rows that are merged into another kernel as joined."""
    for traced_row in engine_rows(traced.rows, layers):
        row = replace(traced_row, phase=phase, count=traced_row.count * count)
        if row.op in _CACHED and phase == "decode":
            cached = _CACHED[row.op]
            row = replace(row, inputs=tuple(replace(one, kept=index in cached) for index, one in enumerate(row.inputs)))
        elif row.op == "aten._grouped_mm":
            row = replace(row, attributes={**row.attributes, CHOSEN_EXPERTS: experts_per_token})
        elif (row.family in MERGED_FAMILIES and row.module in layers.merged) or (
            row.module in layers.routers and row.family not in ("matmul", "sort")
        ):
            row = replace(row, outputs=tuple(replace(one, joined=True) for one in row.outputs))
        yield row


def _line(line: MemoryLine, generation: Generation, *, kv_bytes: float) -> MemoryLine:
    """Return the memory with activations of one chunk of prompt tokens, at any batch, and the KV cache per request."""
    prompts = CHUNK_TOKENS / generation.prefill_tokens

    def of_chunk(stored: StoredBytes) -> StoredBytes:
        sizes = {name: float(bytes_at(growth, batch=prompts)) for name, growth in asdict(stored).items()}
        return StoredBytes(**{name: (max(0.0, size), 0.0) for name, size in sizes.items()})

    return replace(
        line,
        phase="prefill",
        activations=of_chunk(line.activations),
        temporaries=of_chunk(line.temporaries),
        kv_cache=StoredBytes(full=(0.0, kv_bytes)),
    )


def _decoded(blocks: Blocks, written: _Pass, *, count: int) -> Blocks:
    """Return the blocks as decode runs them, `count` times, without parameters, which prefill already counts."""
    repeated = replace(blocks, phase="decode", count=blocks.count * count, parameter_bytes=0, largest_parameter_bytes=0)
    return replace(repeated, results=written.results(repeated))
