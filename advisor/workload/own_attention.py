"""Replaces attention that old transformers models compute by themselves with that of an engine.

Falcon, Bloom and MPT have one product for queries, keys and values; GPT-J and CodeGen a method that attends. Engines
add ALiBi's slopes inside the attention kernel (vLLM: `alibi_slopes`).
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from advisor.workload.kv_cache import attend
from advisor.workload.patching import Patch

_FUSED = {
    "FalconAttention": ("query_key_value", "dense"),
    "BloomAttention": ("query_key_value", "dense"),
    "MptAttention": ("Wqkv", "out_proj"),
}
"""Attention with one product for queries, keys and values -> its name, and that of the output's."""
_ATTENDING = ("GPTJAttention", "CodeGenAttention")
"""Attention with a method `_attn` on queries, keys and values, (batch, heads, tokens, width)."""
_MODELS = ("Falcon", "Bloom", "Mpt", "GPTJ", "CodeGen")


def has_replacement(kind: type) -> bool:
    """Return whether the attention of a model of this class can be replaced."""
    return kind.__name__.removesuffix("ForCausalLM") in _MODELS


def own_attention(model: nn.Module) -> Iterator[Patch]:
    """Yield the patches that replace the model's own attention."""
    for module in model.modules():
        kind = type(module).__name__
        if kind in _FUSED:
            yield module, "forward", _forward_of(module, *_FUSED[kind])
        elif kind in _ATTENDING:
            yield module, "_attn", _attended_by(module)


def _forward_of(module: Any, fused: str, output: str) -> Callable[..., tuple[torch.Tensor, None]]:
    heads = getattr(module, "num_heads", None) or module.n_heads
    kv_heads = getattr(module, "num_kv_heads", heads)
    sizes = [count * module.head_dim for count in (heads, kv_heads, kv_heads)]

    def forward(
        states: torch.Tensor,
        residual: torch.Tensor | None = None,
        *,
        layer_past: Any = None,
        past_key_values: Any = None,
        alibi: Any = None,
        position_embeddings: Any = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        parts = getattr(module, fused)(states).split(sizes, dim=-1)
        if position_embeddings is not None and alibi is None:
            parts = (*torch.ops.engine.rotary(parts[0], parts[1]), parts[2])
        queries, keys, values = (part.unflatten(-1, (-1, module.head_dim)).transpose(1, 2) for part in parts)
        cache = layer_past if past_key_values is None else past_key_values
        keys, values = cache.update(keys, values, module.layer_idx)
        attended = attend(module, queries, keys, values, None)[0]
        result = getattr(module, output)(attended.flatten(-2))
        return (result if residual is None else result + residual), None

    return forward


def _attended_by(module: nn.Module) -> Callable[..., tuple[torch.Tensor, None]]:
    def attended(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any) -> tuple[torch.Tensor, None]:
        return attend(module, query, key, value, None)[0].transpose(1, 2), None

    return attended
