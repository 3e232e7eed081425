"""Costs of serving engines' kernels that torch has no operator for.

Norms, rotary embeddings and gated activations read their inputs once (vLLM: csrc/layernorm_kernels.cu,
pos_encoding_kernels.cu, activation_kernels.cu). Recurrent layers keep a state per request, (batch, heads, keys,
values): decode updates it (`state_update`), and prefill scans the prompt, in chunks of tokens.
"""

import math

from advisor.ops.attention import pair_count
from advisor.ops.registry import Call, Cost, Number, formula, smaller, streaming

# Inputs (states, weights...): square, sum, scale, weight.
streaming("engine.norm", family="rms_norm", fusable=True, flops=4)
# Inputs (queries, keys): two products and a sum; the sines and cosines stay in the cache and are not counted.
streaming("engine.rotary", family="rotary", flops=3)
# Inputs (gates, states): 1 for the activation, as for other pointwise operators, and 1 for the product.
streaming("engine.gate", family="gate", flops=2)


@formula("engine.latent_attention", family="attention", autocast="low")
def _latent_attention(call: Call) -> Cost:
    """Inputs (queries, latents, rotated keys): every head attends to the same latents with their rotated keys.

    The scores take both, the result the latents alone (DeepSeek-AI, DeepSeek-V2, 2024, section 2.1).
    """
    queries, latents = call.inputs[:2]
    pairs = math.prod(queries.shape[:-1]) * latents.shape[-2]
    return call.streamed(flops=2 * pairs * (queries.shape[-1] + latents.shape[-1]))


# Inputs (states (batch, channels, tokens), weight (channels, width)).
streaming("engine.convolution", family="pointwise", flops=lambda call: 2 * call.output_numel * call.inputs[1].shape[-1])


@formula("engine.convolution_update", family="pointwise")
def _convolution_update(call: Call) -> Cost:
    """Inputs (state (batch, channels, width - 1), new states, weight): the state is written back."""
    return _written_back(call, flops=2 * call.output_numel * call.inputs[2].shape[-1])


_PER_STATE = 8.0
"""FLOP per element of the state and token: the decay exp(dt A) and its product (3), dt B x and its sum (3), and the
product with C (2). The gated delta rule takes 7: the decay (1), products with key, correction and query (2 each)."""


@formula("engine.state_update", family="scan", autocast="low")
def _state_update(call: Call) -> Cost:
    """Inputs (state, values, keys, queries, gates...): one token of each request changes its state in place."""
    return _written_back(call, flops=_PER_STATE * call.inputs[0].numel)


def _written_back(call: Call, *, flops: Number) -> Cost:
    return Cost(flops=flops, read_bytes=call.read_bytes, write_bytes=call.write_bytes + call.inputs[0].size_bytes)


@formula("engine.selective_scan", family="scan", autocast="low")
def _selective_scan(call: Call) -> Cost:
    """Inputs (values (batch, channels, tokens), keys (batch, states, tokens), queries, gates...).

    The state stays on the chip (Gu and Dao, Mamba, 2023, section 3.3.2).
    """
    values, keys = call.inputs[:2]
    return call.streamed(flops=_PER_STATE * values.numel * keys.shape[-2])


@formula("engine.chunk_scan", family="attention", autocast="low", attributes=("chunk",))
def _chunk_scan(call: Call) -> Cost:
    """Inputs (values (batch, tokens, heads, width), keys (batch, tokens, groups, states), queries, gates...).

    Inside a chunk: the product of queries and keys of each group, in full, and its causal product with the values;
    between chunks: the product of keys and values, and of queries and state. The first product and the chunks' states
    are written and read again, the states twice (Dao and Gu, Mamba-2, 2024, section 6; mamba_ssm: `ssd_combined.py`).
    """
    values, keys = call.inputs[:2]
    tokens, (groups, states) = math.prod(values.shape[:2]), keys.shape[2:]
    size = smaller(float(call.attributes["chunk"]), values.shape[1])
    width = math.prod(values.shape[2:])
    seen = pair_count(q_len=size, kv_len=size, causal=True) / size
    flops = 2 * tokens * (groups * size * states + width * (seen + 2 * states))
    between = tokens * (groups * size + 2 * width * states / size)
    return call.streamed(flops=flops, between_bytes=between * values.itemsize_bytes)


@formula("engine.delta_rule", family="attention", autocast="low", attributes=("chunk",))
def _delta_rule(call: Call) -> Cost:
    """Inputs (values (batch, tokens, heads, v_dim), keys (batch, tokens, key heads, k_dim), queries, gates...).

    With chunks of c tokens, each head and token takes 2 c k_dim for each of keys x keys, queries x keys and the
    transformed keys, 2 c v_dim for each of the transformed values and the result inside the chunk, 2 k_dim v_dim for
    each of the correction, the result from the state and the state's update, and c^2 / 3 for the triangular inverse.
    Transformed keys and values, inverse and states are written and read again (Yang et al., Gated Delta Networks, 2024,
    section 3.3; flash-linear-attention: `chunk_gated_delta_rule`).
    """
    values, keys = call.inputs[:2]
    tokens, (heads, v_dim), k_dim = math.prod(values.shape[:2]), values.shape[2:], keys.shape[-1]
    size = smaller(float(call.attributes["chunk"]), values.shape[1])
    flops = heads * tokens * (size * (6 * k_dim + 4 * v_dim) + 6 * k_dim * v_dim + size * size / 3)
    between = heads * tokens * (k_dim + v_dim + size + k_dim * v_dim / size)
    return call.streamed(flops=flops, between_bytes=between * values.itemsize_bytes)
