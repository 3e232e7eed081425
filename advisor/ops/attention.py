"""Costs of scaled dot product attention in all its forms, and of torch's fused encoder layers.

The FLOP are those of the matrix products, without the softmax, as in `sdpa_flop` of torch/utils/flop_counter.py. The
bytes are those of a fused kernel, which never writes the scores to memory. Pairs hidden by a causal mask are not
counted, because a fused kernel skips them (torch's counter counts them).
"""

import math

from advisor.ops.arithmetic import smaller
from advisor.ops.registry import Call, Cost, Number, Tensor, aten, formula

_BACKWARD_PER_FORWARD = 2.5
"""Backward recomputes the scores and computes four gradients: 5 products against 2 (`sdpa_backward_flop_count`)."""

_COMPOSITE_ATTRIBUTES = ("causal", "is_causal", "dropout_ratio")
"""Attributes of composite rows. A row made from torch's fused operator has `is_causal` instead of `causal`. The cost
ignores dropout, but the device needs it to choose a kernel."""


def pair_count(*, q_len: Number, kv_len: Number, causal: bool) -> Number:
    """Return the number of unmasked (query, key) pairs. Causal: query i sees keys 0 to i (top-left alignment).

    With m = min(q_len, kv_len), the first m queries see 1 + 2 + ... + m keys, and the others see all.
    """
    if not causal:
        return q_len * kv_len
    diagonal = smaller(q_len, kv_len)
    return diagonal * (diagonal + 1) / 2 + (q_len - diagonal) * kv_len


def attention_flops(*, query: Tensor, key: Tensor, result: Tensor, length_axis: int, causal: bool) -> Number:
    """Return 2 x pairs x (head_dim + v_dim) for every head and sample of `result`, which has the query's heads.

    Grouped-query attention shares keys among heads, which saves bytes but no FLOP.
    """
    q_len, kv_len = query.shape[length_axis], key.shape[length_axis]
    heads_and_samples = math.prod(result.shape[:length_axis]) * math.prod(result.shape[length_axis + 1 : -1])
    pairs = pair_count(q_len=q_len, kv_len=kv_len, causal=causal)
    return 2 * heads_and_samples * pairs * (query.shape[-1] + result.shape[-1])


_LENGTH_FIRST = aten("_flash_attention_forward _cudnn_attention_forward")
_LENGTH_FIRST_BACKWARD = aten("_flash_attention_backward _cudnn_attention_backward")
"""Operators on (batch, length, heads, head_dim); all others are on (..., heads, length, head_dim)."""


@formula("attention", family="attention", autocast="low", attributes=_COMPOSITE_ATTRIBUTES)
@formula(
    *aten("scaled_dot_product_attention _scaled_dot_product_attention_math"),
    *aten("_scaled_dot_product_fused_attention_overrideable"),
    *aten("_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu"),
    *aten("_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"),
    *_LENGTH_FIRST,
    family="attention",
    autocast="low",
    attributes=("is_causal",),
)
def _attention(call: Call) -> Cost:
    """Inputs (query, key, value[, mask])."""
    query, key = call.inputs[:2]
    return call.streamed(flops=_forward_flops(call, query, key, result=call.outputs[0]))


@formula("attention_backward", family="attention", autocast="low", attributes=_COMPOSITE_ATTRIBUTES)
@formula(
    *aten("_scaled_dot_product_fused_attention_overrideable_backward"),
    *aten("_scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu_backward"),
    *aten("_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward"),
    *_LENGTH_FIRST_BACKWARD,
    family="attention",
    autocast="low",
    attributes=("is_causal",),
)
def _attention_backward(call: Call) -> Cost:
    """Inputs (grad_out, query, key, value, ...)."""
    grad_out, query, key = call.inputs[:3]
    return call.streamed(flops=_BACKWARD_PER_FORWARD * _forward_flops(call, query, key, result=grad_out))


def _forward_flops(call: Call, query: Tensor, key: Tensor, *, result: Tensor) -> Number:
    """Return the forward FLOP; the causal flag is `causal` in composites, and `is_causal` in torch's operators."""
    causal = bool(call.attributes.get("causal", call.attributes.get("is_causal", False)))
    length_axis = -3 if call.op in (*_LENGTH_FIRST, *_LENGTH_FIRST_BACKWARD) else -2
    return attention_flops(query=query, key=key, result=result, length_axis=length_axis, causal=causal)


@formula("encoder_layer", *aten("_transformer_encoder_layer_fwd"), family="attention", autocast="low")
def _encoder_layer(call: Call) -> Cost:
    """Inputs (source, qkv weight and bias, output weight and bias, two norms, two feed-forward layers, ...).

    The FLOP are the products with the four weight matrices, and full attention. The intermediate results are written
    and read once: queries, keys and values (3 x width); the attention output, its projection, the first norm's result
    and the second feed-forward layer's result (1 x width each); and the hidden layer.
    """
    source, qkv_weight, _, out_weight, _, _, _, _, _, up_weight, _, down_weight = call.inputs[:12]
    width = source.shape[-1]
    tokens = math.prod(source.shape[:-1])
    weights = qkv_weight.numel + out_weight.numel + up_weight.numel + down_weight.numel
    hidden = up_weight.shape[0]
    between_bytes = tokens * (7 * width + hidden) * source.itemsize_bytes
    return Cost(
        flops=2 * tokens * weights + 4 * tokens * source.shape[-2] * width,
        read_bytes=call.read_bytes + between_bytes,
        write_bytes=call.write_bytes + between_bytes,
    )


@formula("native_multi_head_attention", *aten("_native_multi_head_attention"), family="attention", autocast="low")
def _multi_head_attention(call: Call) -> Cost:
    """Inputs (query, key, value, qkv weight (3 x width, width) and bias, output weight and bias[, mask]).

    Queries, keys, values (3 x width) and the attention output are written and read once between the kernels.
    """
    query, key, _, _, _, out_weight = call.inputs[:6]
    width = query.shape[-1]
    q_tokens, kv_tokens = math.prod(query.shape[:-1]), math.prod(key.shape[:-1])
    projections = 2 * (2 * q_tokens + 2 * kv_tokens) * out_weight.numel
    between_bytes = (2 * q_tokens + 2 * kv_tokens) * width * query.itemsize_bytes
    return Cost(
        flops=projections + 4 * q_tokens * key.shape[-2] * width,
        read_bytes=call.read_bytes + between_bytes,
        write_bytes=call.write_bytes + between_bytes,
    )
