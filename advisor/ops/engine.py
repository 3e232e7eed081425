"""Costs of serving engines' kernels that torch has no operator for: norms, rotary embeddings, gated activations.

Each reads its inputs once (vLLM: csrc/layernorm_kernels.cu, pos_encoding_kernels.cu, activation_kernels.cu).
"""

from advisor.ops.registry import Call, Cost, formula

_FLOPS_PER_NORMALISED = 4
"""Square, sum, scale, weight."""
_FLOPS_PER_ROTATED = 3
"""Two products and a sum."""
_FLOPS_PER_GATED = 2
"""1 for the activation, as for other pointwise operators, and 1 for the product."""


@formula("engine.norm", family="rms_norm", fusable=True)
def _norm(call: Call) -> Cost:
    """Inputs (states, weights...)."""
    return call.streamed(flops=_FLOPS_PER_NORMALISED * call.outputs[0].numel)


@formula("engine.rotary", family="rotary")
def _rotary(call: Call) -> Cost:
    """Inputs (queries, keys), outputs the same; the sines and cosines stay in the cache and are not counted."""
    return call.streamed(flops=_FLOPS_PER_ROTATED * call.output_numel)


@formula("engine.gate", family="gate")
def _gate(call: Call) -> Cost:
    """Inputs (gates, states)."""
    return call.streamed(flops=_FLOPS_PER_GATED * call.output_numel)
