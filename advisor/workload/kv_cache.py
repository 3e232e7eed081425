"""The KV cache and the attention of serving engines, in the form in which transformers' models call them.

An engine writes a token's keys and values into their place and reads the cache as it lies, with as many heads as it has
(Kwon et al., PagedAttention, 2023); transformers' own caches are copied with each token, and repeated for all heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from advisor.errors import LoadError

ENGINE_ATTENTION = "engine"
"""What transformers calls `attend`, once it is registered."""
_NO_LIMIT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWindow:
    """How many tokens a layer attends to at most; None: all."""

    token_count: int | None = None

    def seen(self, token_count: int) -> int:
        """Of so many tokens."""
        return token_count if self.token_count is None else min(token_count, self.token_count)


def layer_windows(config: Any, *, where: str) -> tuple[LayerWindow, ...]:
    """The windows of all layers; raise `LoadError` where one keeps something else than keys and values of tokens."""
    kinds = {DynamicLayer, DynamicSlidingWindowLayer}
    layers = DynamicCache(config=config).layers
    others = sorted({type(layer).__name__ for layer in layers if type(layer) not in kinds})
    if others or getattr(config, "kv_lora_rank", None):
        what = ", ".join(others) or "compressed keys and values (MLA)"
        raise LoadError(
            f"{where}: its layers keep {what}, not keys and values of every head",
            hint="leave --prompt-tokens and --output-tokens out to rank one forward pass over a prompt",
        )
    return tuple(LayerWindow(token_count=getattr(layer, "sliding_window", None)) for layer in layers)


class EngineLayer(CacheLayerMixin):
    """One layer, of which attention sees `length` tokens after `past` others were read. It holds no tensors.

    `token_numel`: the elements that a token has in it, `head_count` in how many heads, once a pass has gone through.
    """

    def __init__(self, *, past: int, length: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.past, self.length = past, length
        self.token_numel, self.head_count = 0, 1

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing is held."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new tokens into the cache; what attention then reads."""
        self.head_count = key_states.shape[1]
        self.token_numel = sum(states.shape[1] * states.shape[-1] for states in (key_states, value_states))
        return self._written(key_states), self._written(value_states)

    def _written(self, states: torch.Tensor) -> torch.Tensor:
        """(batch, heads, tokens, width); a prompt is written to the cache and attended to as it comes."""
        if self.past == 0:
            states.clone()
            return states[..., : self.length, :]
        cached = states.new_empty((*states.shape[:-2], self.length, states.shape[-1]))
        cached[..., -states.shape[-2] :, :].copy_(states)
        return cached

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """How long keys are, and where they begin."""
        return self.length, 0

    def get_seq_length(self) -> int:
        """The tokens read before."""
        return self.past

    def get_max_length(self) -> int:
        """As long as it takes."""
        return _NO_LIMIT


def engine_cache(lengths: Sequence[int], *, past: int) -> Cache:
    """A cache for a pass after `past` tokens, of which each layer sees its part."""
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
    """One fused kernel, whose heads share keys where they are fewer; prompts see what comes before each token.

    A prompt longer than the window comes with keys as long as that: the mask at the top left counts its pairs.
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
