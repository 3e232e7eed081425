"""Gives transformers' models the caches and attention of a serving engine.

An engine writes a token's keys and values in place and reads the cache as stored, with its own number of heads (Kwon et
al., PagedAttention, 2023). transformers' own caches are copied for each token, and repeated for all query heads.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from transformers import cache_utils

from advisor.errors import LoadError, TraceError
from advisor.records.generation import CachedLayers
from advisor.workload.recurrent_kernels import latent_attention

ENGINE_ATTENTION = "engine"
"""The name under which `attend` is registered with transformers."""
OMIT_TOKENS = "omit --prompt-tokens and --output-tokens to rank one forward pass over a prompt"
TRACED_BYTES = 4.0
"""Size of an element as traced, in float32: `StoredBytes.full`."""
_WINDOWS = ("DynamicSlidingWindowLayer", "LinearAttentionAndSlidingWindowAttentionLayer")
_LAYERS = (*_WINDOWS, "DynamicLayer", "DummyLayer", "LinearAttentionLayer", "LinearAttentionAndFullAttentionLayer")
"""The caches of transformers that an `EngineLayer` replaces; a dummy layer caches nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWindow:
    """The attention window of a layer."""

    token_count: int | None = None
    """The most tokens that the layer attends to; None means all."""
    is_chunked: bool = False
    """It attends to the chunk of `token_count` tokens that a token is in, not to the last ones (Llama 4)."""
    is_recurrent: bool = False
    """It keeps a state."""

    def seen(self, token_count: int) -> int:
        """Return how many of `token_count` tokens the last one attends to."""
        if self.token_count is None:
            return token_count
        return (token_count - 1) % self.token_count + 1 if self.is_chunked else min(token_count, self.token_count)

    def prompt_length(self, token_count: int) -> int:
        """Return the number of keys with which a top-left causal mask of `token_count` queries has as many pairs."""
        if self.token_count is None or not self.is_chunked:
            return self.seen(token_count)
        chunks, rest = divmod(token_count, self.token_count)
        pairs = (chunks * self.token_count * (self.token_count + 1) + rest * (rest + 1)) / 2
        middle = token_count + 0.5  # length (length + 1) / 2 + (token_count - length) length = pairs
        return round(middle - math.sqrt(middle**2 - 2 * pairs))


def layer_windows(config: Any, *, where: str) -> tuple[LayerWindow, ...]:
    """Return the windows of all decoder layers; raise `LoadError` if a layer has a cache of its own kind."""
    layers: Sequence[Any] = cache_utils.DynamicCache(config=config).layers
    named = [(type(layer).__name__, layer) for layer in layers]
    if others := sorted({name for name, _ in named} - {*_LAYERS}):
        raise LoadError(
            f"{where}: its layers cache in a way that is not counted: {', '.join(others)}", hint=OMIT_TOKENS
        )
    kinds = getattr(config.get_text_config(decoder=True), "layer_types", None) or [""] * len(named)
    return tuple(
        LayerWindow(
            token_count=layer.sliding_window if name in _WINDOWS else None,
            is_chunked=kind == "chunked_attention",
            is_recurrent=name.startswith("Linear"),
        )
        for (name, layer), kind in zip(named, kinds, strict=True)
    )


class EngineLayer(cache_utils.LinearAttentionCacheLayerMixin, cache_utils.CacheLayerMixin):  # type: ignore[no-untyped-call, override]
    """The cache of one layer, without tensors: attention sees `length` tokens, after `past` tokens were cached.

    A prefill sets `token_numel`, the cached elements per token, `head_count`, the number of key/value heads, and
    `shapes`, what the layer holds, without the batch. Decode reads the shapes of the prefill's layer, `written`.
    """

    def __init__(self, *, past: int, length: int, batch: int, written: "EngineLayer | None" = None) -> None:
        super().__init__()
        self.past, self.length, self.batch = past, length, batch
        self.token_numel, self.head_count, self.is_initialized = 0, 1, True
        self.shapes: dict[str, tuple[int, ...]] = {} if written is None else written.shapes
        self.has_previous_state = {0: written is not None and not {"conv", "recurrent"}.isdisjoint(self.shapes)}

    def held(self, name: str) -> torch.Tensor | None:
        """Return a tensor of `shapes`, made in this pass; None in prefill."""
        return torch.empty((self.batch, *self.shapes[name])) if name in self.shapes and self.past else None

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing, because no tensors are held."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new tokens into the cache; return the keys and values that attention reads."""
        self.head_count = key_states.shape[1]
        self.token_numel = sum(states.shape[1] * states.shape[-1] for states in (key_states, value_states))
        self.shapes = {**self.shapes, "keys": tuple(key_states.shape[1:]), "values": tuple(value_states.shape[1:])}
        return self._written(key_states), self._written(value_states)

    def _written(self, states: torch.Tensor) -> torch.Tensor:
        """Return what attention reads, (batch, heads, tokens, width); a prompt is read directly, not from the cache."""
        if self.past == 0:
            states.clone()
            return states[..., : self.length, :]
        cached = states.new_empty((*states.shape[:-2], self.length, states.shape[-1]))
        cached[..., -states.shape[-2] :, :].copy_(states)
        return cached

    @property
    def keys(self) -> torch.Tensor | None:  # type: ignore[override]
        """The keys of the encoder's tokens, written in prefill."""
        return self.held("keys")

    @property
    def values(self) -> torch.Tensor | None:  # type: ignore[override]
        """The values of the encoder's tokens, written in prefill."""
        return self.held("values")

    def update_conv_state(
        self, conv_states: torch.Tensor, state_idx: int = 0, conv_kernel_size: int | None = None, **kwargs: Any
    ) -> torch.Tensor:
        """Return the prompt's states, whose last ones stay: one fewer than the kernel is wide (vLLM: `mamba_utils`)."""
        width = (conv_kernel_size or conv_states.shape[-1]) - 1
        self.shapes["conv"] = (conv_states.shape[1], width)
        return conv_states

    def update_recurrent_state(self, recurrent_states: torch.Tensor, state_idx: int = 0, **kwargs: Any) -> torch.Tensor:
        """Return the state, which its kernel wrote in place."""
        self.shapes["recurrent"] = tuple(recurrent_states.shape[1:])
        return recurrent_states

    @property
    def state_numel(self) -> int:
        """The elements of a request's states that do not grow with its tokens."""
        return sum(math.prod(self.shapes[name]) for name in ("conv", "recurrent") if name in self.shapes)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length of the keys, and their offset."""
        return self.length, 0

    def get_seq_length(self) -> int:
        """Return the number of tokens cached before this pass."""
        return self.past

    def get_max_length(self) -> int:
        """Return -1: there is no limit."""
        return -1


class EngineCache(cache_utils.Cache):
    """The caches of a pass after `past` tokens; `lengths` are the tokens that each layer attends to."""

    layers: list[EngineLayer]  # type: ignore[assignment]

    def __init__(self, lengths: Sequence[int], *, past: int, batch: int, written: "EngineCache | None" = None) -> None:
        before: Sequence[Any] = [None] * len(lengths) if written is None else written.layers
        super().__init__(
            layers=[
                EngineLayer(past=past, length=length, batch=batch, written=one)
                for length, one in zip(lengths, before, strict=True)
            ]
        )

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        """Return the inputs that the convolution of a recurrent layer still needs; None in prefill."""
        return self.layers[layer_idx].held("conv")

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        """Return the state of a recurrent layer; None in prefill."""
        return self.layers[layer_idx].held("recurrent")


def engine_cache(lengths: Sequence[int], *, past: int, batch: int, written: Any = None, encoder_tokens: int = 0) -> Any:
    """Return the caches of a pass, with those of the encoder's keys and values if there is an encoder."""
    if not encoder_tokens:
        return EngineCache(lengths, past=past, batch=batch, written=written)
    before = (None, None) if written is None else (written.self_attention_cache, written.cross_attention_cache)
    own = EngineCache(lengths, past=past, batch=batch, written=before[0])
    crossed = [encoder_tokens] * len(lengths)
    seen = 0 if written is None else encoder_tokens
    return cache_utils.EncoderDecoderCache(own, EngineCache(crossed, past=seen, batch=batch, written=before[1]))


def cached_layers(cache: Any, windows: Iterable[LayerWindow]) -> tuple[CachedLayers, ...]:
    """Return what the layers of a prefill's cache hold, those alike together."""
    grown: Counter[tuple[int | None, int]] = Counter()
    held: Counter[int] = Counter()
    own, crossed = getattr(cache, "self_attention_cache", cache), getattr(cache, "cross_attention_cache", None)
    for layer, window in zip(own.layers, windows, strict=True):
        if window.is_recurrent and not layer.state_numel:
            raise TraceError("its recurrent layers keep their states outside the cache", hint=OMIT_TOKENS)
        if layer.token_numel:
            grown[window.token_count, layer.head_count] += layer.token_numel
        if layer.state_numel:
            held[(layer.shapes.get("recurrent") or layer.shapes["conv"])[0]] += layer.state_numel
    for layer in () if crossed is None else crossed.layers:
        held[layer.head_count] += layer.token_numel * layer.length
    return (
        *(
            CachedLayers(token_bytes=TRACED_BYTES * numel, window_tokens=most, head_count=heads)
            for (most, heads), numel in grown.items()
        ),
        *(CachedLayers(request_bytes=TRACED_BYTES * numel, head_count=heads) for heads, numel in held.items()),
    )


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Run attention as one fused kernel, causal for prompts, with grouped queries if there are fewer key/value heads.

    For a prompt longer than the window, the keys have the window's length, and the top-left causal mask then counts the
    right number of pairs. Keys and values that were not expanded (`engine_kernels`) are attended to as latents.
    """
    if key.shape[-1] != query.shape[-1]:
        return _attend_to_latents(module, query, latents=value, rotated=key), None
    config = getattr(module, "config", None)
    is_decoder = getattr(module, "is_causal", True) or not getattr(config, "is_encoder_decoder", False)
    attended = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        is_causal=is_decoder and query.shape[-2] > 1,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return attended.transpose(1, 2).contiguous(), None


def _attend_to_latents(
    module: Any, query: torch.Tensor, *, latents: torch.Tensor, rotated: torch.Tensor
) -> torch.Tensor:
    """Attend to the cached latents as to one head of keys and values, (batch, tokens, heads, v_dim).

    The matrices that would expand them are absorbed: the keys' into the queries, the values' into the result
    (DeepSeek-AI, DeepSeek-V2, 2024, section 2.1; vLLM: `mla/common.py`, "data-movement friendly approach").
    """
    unrotated = query[:, :, 0, : -rotated.shape[-1]].transpose(0, 1)  # (heads, batch, key width)
    weights = module.kv_b_proj.weight.unflatten(0, (query.shape[1], -1))
    absorbed = torch.bmm(unrotated, weights[:, : unrotated.shape[-1]]).transpose(0, 1).unsqueeze(2)
    queries = torch.cat([absorbed, query[..., -rotated.shape[-1] :]], dim=-1)
    attended = latent_attention(queries, latents, rotated)
    result = torch.bmm(attended[:, :, 0].transpose(0, 1), weights[:, unrotated.shape[-1] :].transpose(1, 2))
    return result.transpose(0, 1).unsqueeze(1)
