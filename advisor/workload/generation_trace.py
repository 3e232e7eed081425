"""Traces how a language model answers a request, prefill and decode, as a Workload.

A step serves every request in flight once: one pass reads all prompts, and one pass per further token decodes all
answers. This is the average of continuous batching, which interleaves the passes of different requests (Yu et al.,
Orca, 2022; Kwon et al., PagedAttention, 2023).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import torch

from advisor.errors import TraceError
from advisor.records.generation import Generation
from advisor.records.workload import Blocks, MemoryLine, Phase, Row, StoredBytes, Workload
from advisor.workload.engine_kernels import (
    MERGED_FAMILIES,
    EngineLayers,
    engine_kernels,
    engine_layers,
    engine_rows,
    following_inputs,
)
from advisor.workload.kv_cache import engine_cache
from advisor.workload.loaded import Inputs, LoadedModel
from advisor.workload.sources.language_model import LanguageModel
from advisor.workload.trace import trace

CHUNK_TOKENS = 8192
"""Prompt tokens that an engine processes in one pass (vLLM's default of `max_num_batched_tokens`)."""
_TRACED_BYTES = 4.0
"""Size of an element as traced, in float32: `StoredBytes.full`."""


def trace_generation(model: LanguageModel, generation: Generation, *, isolated: bool = False) -> Workload:
    """Trace prefill and an average pass of decode, and combine them into one Workload."""
    prompt_tokens, windows = generation.prompt_tokens, model.windows
    read = _Pass(model, token_count=prompt_tokens, past=0, lengths=[one.seen(prompt_tokens) for one in windows])
    mean = prompt_tokens + generation.output_tokens // 2
    # Tokens seen by a decode pass, the new one included, on average; attention's cost is affine in them.
    passes = range(prompt_tokens + 1, prompt_tokens + 1 + generation.decode_count)
    seen = [round(sum(map(window.seen, passes)) / len(passes)) for window in windows]
    written = _Pass(model, token_count=1, past=mean - 1, lengths=seen)
    prefill, decode = read.traced(isolated=isolated), written.traced(isolated=isolated)
    if not (prefill.batch_is_affine and decode.batch_is_affine):
        raise TraceError(
            f"{model.name}: its sizes do not grow linearly with the requests in flight",
            hint="omit --prompt-tokens and --output-tokens to rank one forward pass over a prompt",
        )
    count, experts_per_token = generation.decode_count, model.experts_per_token
    return replace(
        prefill,
        generation=replace(generation, head_count=model.head_count, kv_head_count=read.kv_head_count),
        rows=(
            *_rows(prefill, "prefill", layers=read.layers, experts_per_token=experts_per_token),
            *_rows(decode, "decode", layers=written.layers, experts_per_token=experts_per_token, count=count),
        ),
        unknown_ops=Counter(prefill.unknown_ops) + Counter(decode.unknown_ops),
        memory=tuple(_line(line, generation, kv_bytes=read.kv_bytes(generation)) for line in prefill.memory),
        blocks=(
            *(replace(blocks, phase="prefill", results=read.results(blocks)) for blocks in prefill.blocks),
            *(_passed(blocks, written.results(blocks), count=count) for blocks in decode.blocks),
        ),
        assumptions=tuple(dict.fromkeys((*prefill.assumptions, *decode.assumptions))),
    )


class _Pass:
    """One pass through the model over `token_count` tokens per request, after `past` earlier tokens.

    `layers` is set by `traced`.
    """

    def __init__(self, model: LanguageModel, *, token_count: int, past: int, lengths: Sequence[int]) -> None:
        self._model, self._token_count, self._past, self._lengths = model, token_count, past, lengths
        self._cache: Any = None
        self.layers = EngineLayers()

    def traced(self, *, isolated: bool) -> Workload:
        """Return the pass, traced as an inference step."""
        loaded = LoadedModel(
            name=self._model.name,
            model=self._model.model,
            make_inputs=self._inputs,
            batch=1,
            notes=self._model.notes,
        )
        seen: set[int] = set()
        with following_inputs(seen), engine_kernels(self._model.model):
            workload = trace(loaded, mode="inference", batch=None, isolated=isolated)
        self.layers = engine_layers(self._model.model, same_input=seen)
        return workload

    def _inputs(self, batch: int) -> Inputs:
        self._cache = engine_cache(self._lengths, past=self._past)
        tokens = torch.zeros((batch, self._token_count), dtype=torch.long)
        return (), {"input_ids": tokens, "past_key_values": self._cache, "use_cache": True, "logits_to_keep": 1}

    def results(self, blocks: Blocks) -> StoredBytes:
        """Return the bytes that these blocks pass to each other, as traced."""
        return StoredBytes(full=(0.0, _TRACED_BYTES * blocks.count * self._token_count * self._model.width))

    @property
    def kv_head_count(self) -> int:
        """The number of key/value heads in the layer that has the fewest."""
        fewest: int = min(layer.head_count for layer in self._cache.layers)
        return fewest

    def kv_bytes(self, generation: Generation) -> float:
        """Return the size of one request's KV cache when its last token is written, as traced."""
        layers = zip(self._cache.layers, self._model.windows, strict=True)
        elements: int = sum(layer.token_numel * window.seen(generation.token_count) for layer, window in layers)
        return _TRACED_BYTES * elements


def _rows(
    traced: Workload, phase: Phase, *, layers: EngineLayers, experts_per_token: int, count: int = 1
) -> Iterator[Row]:
    """Mark the KV cache as kept in decode's attention, and rows that are merged into another kernel as joined."""
    for traced_row in engine_rows(traced.rows, layers):
        row = replace(traced_row, phase=phase, count=traced_row.count * count)
        if row.op == "attention" and phase == "decode":
            query, *cached = row.inputs
            row = replace(row, inputs=(query, *(replace(one, kept=True) for one in cached)))
        elif row.op == "aten._grouped_mm":
            row = replace(row, attributes={**row.attributes, "experts_per_token": experts_per_token})
        elif row.family in MERGED_FAMILIES and row.module in layers.merged:
            row = replace(row, outputs=tuple(replace(one, joined=True) for one in row.outputs))
        yield row


def _line(line: MemoryLine, generation: Generation, *, kv_bytes: float) -> MemoryLine:
    """Return the memory with activations of one chunk of prompt tokens, at any batch, and the KV cache per request."""
    prompts = CHUNK_TOKENS / generation.prompt_tokens

    def of_chunk(stored: StoredBytes) -> StoredBytes:
        parts = {field.name: getattr(stored, field.name) for field in fields(StoredBytes)}
        return StoredBytes(**{name: (max(0.0, start + prompts * slope), 0.0) for name, (start, slope) in parts.items()})

    return replace(
        line,
        phase="prefill",
        activations=of_chunk(line.activations),
        temporaries=of_chunk(line.temporaries),
        kv_cache=StoredBytes(full=(0.0, kv_bytes)),
    )


def _passed(blocks: Blocks, results: StoredBytes, *, count: int) -> Blocks:
    """Return the blocks as decode runs them, `count` times, without parameters, which prefill already counts."""
    return replace(
        blocks,
        phase="decode",
        count=blocks.count * count,
        parameter_bytes=0,
        largest_parameter_bytes=0,
        results=StoredBytes(full=(0.0, count * results.full[1])),
    )
