"""Costs of scaled dot product attention in all its forms, and of torch's fused encoder layers.

The FLOP are those of the matrix products, without the softmax, as in `sdpa_flop` of torch/utils/flop_counter.py. The
bytes are those of a fused kernel, which never writes the scores to memory. Pairs hidden by a causal mask are not
counted, because a fused kernel skips them (torch's counter counts them).
"""

import math

from advisor.ops.registry import Call, Cost, Number, aten, formula, number_of, smaller, streaming

_BACKWARD_PER_FORWARD = 2.5
"""Backward recomputes the scores and computes four gradients: 5 products against 2 (`sdpa_backward_flop_count`)."""

_LENGTH_FIRST = aten(
    "_flash_attention_forward _cudnn_attention_forward _flash_attention_backward _cudnn_attention_backward"
)
"""Operators on (batch, length, heads, head_dim); all others are on (..., heads, length, head_dim)."""

CACHED_ATTENTION = ("attention", "engine.latent_attention")
"""Composites of a forward pass whose work grows with the pairs of tokens; they may read a KV cache."""
ENCODER_LAYERS = ("encoder_layer", *aten("_transformer_encoder_layer_fwd"))
MULTI_HEAD_ATTENTION = ("native_multi_head_attention", *aten("_native_multi_head_attention"))
FAST_PATHS = frozenset({*ENCODER_LAYERS, *MULTI_HEAD_ATTENTION})
"""Operators that torch calls in inference instead of a module's own, with several matrix products each."""


def pair_count(*, q_len: Number, kv_len: Number, causal: bool) -> Number:
    """Return the number of unmasked (query, key) pairs. Causal: query i sees keys 0 to i (top-left alignment).

    With m = min(q_len, kv_len), the first m queries see 1 + 2 + ... + m keys, and the others see all.
    """
    if not causal:
        return q_len * kv_len
    diagonal = smaller(q_len, kv_len)
    return diagonal * (diagonal + 1) / 2 + (q_len - diagonal) * kv_len


def block_ratio(call: Call) -> float:
    """Return the share of the blocks of scores that a mask leaves to compute; 1.0 without a mask of blocks."""
    return number_of({"block_ratio": 1.0, **call.attributes}, "block_ratio")


def _flops(call: Call) -> Number:
    """Return 2 x pairs x (head_dim + v_dim) for every head and sample of the result, which has the query's heads.

    Inputs (query, key, value[, mask]), in backward (grad_out, query, key, value, ...). Grouped-query attention shares
    keys among heads, which saves bytes but no FLOP. The causal flag is `causal` in composites, and `is_causal` in
    torch's operators. With a block mask, `block_ratio` is the share of blocks computed.
    """
    is_backward = "_backward" in call.op
    result, query, key = call.inputs[:3] if is_backward else (call.outputs[0], *call.inputs[:2])
    axis = -3 if call.op in _LENGTH_FIRST else -2
    causal = bool(call.attributes.get("causal", call.attributes.get("is_causal", False)))
    pairs = pair_count(q_len=query.shape[axis], kv_len=key.shape[axis], causal=causal) * block_ratio(call)
    heads_and_samples = math.prod(result.shape[:axis]) * math.prod(result.shape[axis + 1 : -1])
    forward = 2 * heads_and_samples * pairs * (query.shape[-1] + result.shape[-1])
    return _BACKWARD_PER_FORWARD * forward if is_backward else forward


_ATTENTION = (
    "attention",
    "attention_backward",
    *aten("scaled_dot_product_attention _scaled_dot_product_attention_math"),
    *aten("_scaled_dot_product_fused_attention_overrideable"),
    *aten("_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu"),
    *aten("_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"),
    *aten("_scaled_dot_product_fused_attention_overrideable_backward"),
    *aten("_scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu_backward"),
    *aten("_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward"),
    *_LENGTH_FIRST,
)
streaming(*_ATTENTION, family="attention", autocast="low", attributes=("is_causal",), flops=_flops)
# The gradient of a tensor from which flex_attention changes scores: zeros, to which its kernel adds.
streaming("flex_lib.zeros_and_scatter", family="creation", flops=0)


@formula(*ENCODER_LAYERS, family="attention", autocast="low", attributes=("num_heads",))
def _encoder_layer(call: Call) -> Cost:
    """Inputs (source, qkv weight and bias, output weight and bias, two norms, two feed-forward layers, ...).

    The FLOP are the products with the four weight matrices, and full attention. The intermediate results are written
    and read once: queries, keys and values (3 x width); the attention output, its projection, the first norm's result
    and the second feed-forward layer's result (1 x width each); and the hidden layer.
    """
    source, qkv_weight, _, out_weight, _, _, _, _, _, up_weight, _, down_weight = call.inputs[:12]
    width, tokens = source.shape[-1], math.prod(source.shape[:-1])
    weights = qkv_weight.numel + out_weight.numel + up_weight.numel + down_weight.numel
    return call.streamed(
        flops=2 * tokens * weights + 4 * tokens * source.shape[-2] * width,
        between_bytes=tokens * (7 * width + up_weight.shape[0]) * source.itemsize_bytes,
    )


@formula(*MULTI_HEAD_ATTENTION, family="attention", autocast="low", attributes=("num_head",))
def _multi_head_attention(call: Call) -> Cost:
    """Inputs (query, key, value, qkv weight (3 x width, width) and bias, output weight and bias[, mask]).

    Queries, keys, values (3 x width) and the attention output are written and read once between the kernels.
    """
    query, key, _, _, _, out_weight = call.inputs[:6]
    width, q_tokens, kv_tokens = query.shape[-1], math.prod(query.shape[:-1]), math.prod(key.shape[:-1])
    return call.streamed(
        flops=2 * (2 * q_tokens + 2 * kv_tokens) * out_weight.numel + 4 * q_tokens * key.shape[-2] * width,
        between_bytes=(2 * q_tokens + 2 * kv_tokens) * width * query.itemsize_bytes,
    )
