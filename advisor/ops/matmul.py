"""Costs of matrix products: 2 FLOP per multiply-add. A bias initializes the accumulator and adds none, as in torch.

The packed weights of quantised layers do not appear in the trace and are sized from inputs and outputs.
"""

import math
from dataclasses import replace

from advisor.ops.registry import Call, Cost, Number, Tensor, aten, formula, streaming


def product_flops(a: Tensor, b: Tensor) -> Number:
    """Return the FLOP of (..., m, k) x (..., k, n): 2 x elements of `a` x n; raise `ValueError` for a vector `b`."""
    _, n = b.shape[-2:]
    return 2 * a.numel * n


def _dot_flops(call: Call) -> Number:
    """Every output element is a dot product over the input's last dimension."""
    return 2 * call.outputs[0].numel * call.inputs[0].shape[-1]


LINEAR = (*aten("linear mkldnn_linear"), "mkldnn._linear_pointwise", "mkl._mkl_linear")
_PRODUCTS, ADDED_PRODUCTS = aten("mm bmm _int_mm _scaled_mm"), aten("addmm baddbmm addbmm _addmm_activation")
streaming(*_PRODUCTS, family="matmul", autocast="low", flops=lambda call: product_flops(*call.inputs[:2]))
streaming(*ADDED_PRODUCTS, family="matmul", autocast="low", flops=lambda call: product_flops(*call.inputs[1:3]))
streaming("aten.matmul", *LINEAR, family="matmul", autocast="low", flops=_dot_flops)
streaming(*aten("mv"), family="matmul", autocast="low", flops=2, per=0)
streaming(*aten("dot vdot"), family="matmul", flops=2, per=0)
streaming(*aten("addmv"), family="matmul", autocast="low", flops=2, per=1)
streaming(*aten("addr"), family="matmul", autocast="low", flops=2)


def _linear_backward_flops(call: Call) -> Number:
    """Inputs (input, grad_output, weight): each of the two gradients costs as much as the forward product."""
    _, grad_output, weight = call.inputs[:3]
    wants_input, wants_weight, wants_bias = call.attributes["output_mask"]
    product = 2 * grad_output.numel * weight.shape[-1]
    return (wants_input + wants_weight) * product + wants_bias * grad_output.numel


def _matmul_backward_flops(call: Call) -> Number:
    """Inputs (grad, self (..., m, k), other): each of the two gradients costs as much as the forward product."""
    return sum(call.attributes["mask"]) * 2 * call.inputs[0].numel * call.inputs[1].shape[-1]


def _distance_by_product_flops(call: Call) -> Number:
    """|x - y|^2 = |x|^2 - 2xy + |y|^2 as one product: k features and the two squared norms."""
    return 2 * call.outputs[0].numel * (call.inputs[0].shape[-1] + 2)


CHOSEN_EXPERTS = "experts_per_token"
"""The attribute of a grouped product that says how many of its groups a token chooses."""
_BACKWARD = aten("linear_backward mkldnn_linear_backward")
_MASKED = aten("matmul_backward")
streaming(*_BACKWARD, family="matmul", autocast="low", attributes=("output_mask",), flops=_linear_backward_flops)
streaming(*_MASKED, family="matmul", autocast="low", attributes=("mask",), flops=_matmul_backward_flops)
streaming(*aten("_euclidean_dist"), family="matmul", autocast="full", flops=_distance_by_product_flops)


@formula(*aten("_grouped_mm _scaled_grouped_mm"), family="matmul", autocast="low")
def _grouped_product(call: Call) -> Cost:
    """Products of unequal groups of rows; a (groups, m, k) with b (k, columns) splits the columns among the groups.

    Only the experts that some token chose are read.
    """
    a, b = call.inputs[:2]
    moved = call.streamed(flops=product_flops(a, b))
    if call.attributes.get(CHOSEN_EXPERTS) is not None and len(b.shape) == 3:
        idle_bytes = b.size_bytes * (1 - chosen_expert_count(call) / b.shape[0])
        return replace(moved, read_bytes=moved.read_bytes - idle_bytes)
    groups_share_columns = len(a.shape) == 3 and len(b.shape) == 2
    return replace(moved, flops=moved.flops / a.shape[0]) if groups_share_columns else moved


def chosen_expert_count(call: Call) -> Number:
    """Return the expected number of experts that receive a token, for a (rows, k) and b (experts, k, n).

    It is e (1 - (1 - c / e)^tokens) for e experts if each token chooses c = `experts_per_token` of them evenly. Without
    that attribute it is e.
    """
    a, b = call.inputs[:2]
    chosen_each = call.attributes.get(CHOSEN_EXPERTS)
    groups = b.shape[0]
    if chosen_each is None:
        return groups
    return groups * (1 - (1 - chosen_each / groups) ** (a.shape[0] / chosen_each))


def _bilinear_flops(call: Call) -> Number:
    """y_o = x1 W_o x2 with W (out, in1, in2): x1 W_o, then the dot product with x2."""
    first, _, weight = call.inputs[:3]
    return 2 * math.prod(first.shape[:-1]) * (weight.numel + weight.shape[0] * weight.shape[2])


def _trilinear_flops(call: Call) -> Number:
    """Three tensors expanded to one shape, multiplied and summed: two multiplications and one addition per element.

    The length of each dimension is taken from an operand that is not expanded in it.
    """
    expands = [call.attributes[name] for name in ("expand1", "expand2", "expand3")]
    rank = len(call.inputs[0].shape) + len(expands[0])
    extents: dict[int, Number] = {}
    for tensor, expanded in zip(call.inputs[:3], expands, strict=True):
        kept = (position for position in range(rank) if position not in expanded)
        extents.update(zip(kept, tensor.shape, strict=True))
    return 3 * math.prod(extents.values())


_EXPANDS = ("expand1", "expand2", "expand3", "sumdim")
streaming(*aten("bilinear"), family="matmul", flops=_bilinear_flops)
streaming(*aten("_trilinear"), family="matmul", attributes=_EXPANDS, flops=_trilinear_flops)

_WEIGHT_BYTES = {
    **dict.fromkeys(("quantized.linear", "quantized.linear_relu"), 1),
    **dict.fromkeys(("quantized.linear_dynamic", "quantized.linear_relu_dynamic"), 1),
    **dict.fromkeys(("quantized.linear_dynamic_fp16", "quantized.linear_relu_dynamic_fp16"), 2),
}
"""Operator -> bytes per weight."""


@formula(*_WEIGHT_BYTES, family="quantized")
def _packed_linear(call: Call) -> Cost:
    """Inputs (input (..., in)), outputs (output (..., out)); reads the packed weight and a bias of 4 bytes too."""
    in_features, out_features = call.inputs[0].shape[-1], call.outputs[0].shape[-1]
    packed_bytes = _WEIGHT_BYTES[call.op] * in_features * out_features + 4 * out_features
    return call.reading(*call.inputs, read_bytes=packed_bytes, flops=_dot_flops(call))


# Inputs (input (m, k), packed weight, scales, ...).
_PACKED = aten("_weight_int8pack_mm _weight_int4pack_mm _weight_int4pack_mm_for_cpu")
streaming(*_PACKED, family="quantized", flops=_dot_flops)
