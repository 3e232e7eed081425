"""Costs of serving engines' kernels that torch has no operator for: norms, rotary embeddings, gated activations.

Each reads its inputs once (vLLM: csrc/layernorm_kernels.cu, pos_encoding_kernels.cu, activation_kernels.cu).
"""

from advisor.ops.registry import streaming

# Inputs (states, weights...): square, sum, scale, weight.
streaming("engine.norm", family="rms_norm", fusable=True, flops=4)
# Inputs (queries, keys): two products and a sum; the sines and cosines stay in the cache and are not counted.
streaming("engine.rotary", family="rotary", flops=3)
# Inputs (gates, states): 1 for the activation, as for other pointwise operators, and 1 for the product.
streaming("engine.gate", family="gate", flops=2)
