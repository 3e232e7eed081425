"""Costs of the kernels of fine-tuning libraries that torch has no operator for."""

from advisor.ops.registry import streaming

# Inputs (packed weights, scales): a table look-up and a product (bitsandbytes: `kDequantizeBlockwise`).
streaming("finetune.dequantize", family="pointwise", flops=2)
# Inputs (parameter, gradient, two moments in 8 bits, scales): AdamW's 16 FLOP per parameter, and two dequantizations
# and quantizations with a maximum (Dettmers et al., 8-bit Optimizers via Block-wise Quantization, 2022).
streaming("finetune.adamw_8bit", family="optimizer", flops=22, per=0)
# Inputs (states, weight), in backward (gradients, states, weight): square, sum, scale, weight; two sums in backward.
streaming("finetune.norm", family="norm", flops=4)
streaming("finetune.norm_backward", family="norm", flops=8)
# Inputs (queries, keys), or their gradients: two products and a sum.
streaming("finetune.rotary", family="pointwise", flops=3)
# Inputs (logits, labels): an exponential, a sum and a difference; the gradients overwrite the logits.
streaming("finetune.cross_entropy", family="loss", flops=4)
