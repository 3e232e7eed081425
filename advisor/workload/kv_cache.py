"""Gives transformers' models the KV cache and attention of a serving engine.

An engine writes a token's keys and values in place and reads the cache as stored, with its own number of heads (Kwon et
al., PagedAttention, 2023). transformers' own caches are copied for each token, and repeated for all query heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from advisor.errors import LoadError

ENGINE_ATTENTION = "engine"
"""The name under which `attend` is registered with transformers."""
_NO_LIMIT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWindow:
    """The attention window of a layer."""

    token_count: int | None = None
    """The most tokens that the layer attends to; None means all."""

    def seen(self, token_count: int) -> int:
        """Return how many of `token_count` tokens the layer attends to."""
        return token_count if self.token_count is None else min(token_count, self.token_count)


def layer_windows(config: Any, *, where: str) -> tuple[LayerWindow, ...]:
    """Return the windows of all layers; raise `LoadError` if a layer caches anything but keys and values per head."""
    kinds = {DynamicLayer, DynamicSlidingWindowLayer}
    layers = DynamicCache(config=config).layers
    others = sorted({type(layer).__name__ for layer in layers if type(layer) not in kinds})
    if others or getattr(config, "kv_lora_rank", None):
        what = ", ".join(others) or "compressed keys and values (MLA)"
        raise LoadError(
            f"{where}: its layers cache {what}, not keys and values per head",
            hint="omit --prompt-tokens and --output-tokens to rank one forward pass over a prompt",
        )
    return tuple(LayerWindow(token_count=getattr(layer, "sliding_window", None)) for layer in layers)


class EngineLayer(CacheLayerMixin):
    """The cache of one layer, without tensors: attention sees `length` tokens, after `past` tokens were cached.

    A pass sets `token_numel`, the cached elements per token, and `head_count`, the number of key/value heads.
    """

    def __init__(self, *, past: int, length: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.past, self.length = past, length
        self.token_numel, self.head_count = 0, 1

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing, because no tensors are held."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new tokens into the cache; return the keys and values that attention reads."""
        self.head_count = key_states.shape[1]
        self.token_numel = sum(states.shape[1] * states.shape[-1] for states in (key_states, value_states))
        return self._written(key_states), self._written(value_states)

    def _written(self, states: torch.Tensor) -> torch.Tensor:
        """Return what attention reads, (batch, heads, tokens, width); a prompt is read directly, not from the cache."""
        if self.past == 0:
            states.clone()
            return states[..., : self.length, :]
        cached = states.new_empty((*states.shape[:-2], self.length, states.shape[-1]))
        cached[..., -states.shape[-2] :, :].copy_(states)
        return cached

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length of the keys, and their offset."""
        return self.length, 0

    def get_seq_length(self) -> int:
        """Return the number of tokens cached before this pass."""
        return self.past

    def get_max_length(self) -> int:
        """Return -1: there is no limit."""
        return _NO_LIMIT


def engine_cache(lengths: Sequence[int], *, past: int) -> Cache:
    """Return a cache for a pass after `past` tokens; `lengths` are the tokens that each layer attends to."""
    return Cache(layers=[EngineLayer(past=past, length=length) for length in lengths])


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
    right number of pairs.
    """
    attended = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        is_causal=query.shape[-2] > 1,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return attended.transpose(1, 2).contiguous(), None
