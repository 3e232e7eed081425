"""Costs of matrix products: 2 FLOP per multiply-add. A bias initializes the accumulator and adds none, as in torch."""

import math
from dataclasses import replace

from advisor.ops.registry import Call, Cost, Number, Tensor, aten, formula, streaming


def product_flops(a: Tensor, b: Tensor) -> Number:
    """Return the FLOP of (..., m, k) x (..., k, n): 2 x elements of `a` x n."""
    return 2 * a.numel * b.shape[-1]


@formula(*aten("mm bmm _int_mm _scaled_mm"), family="matmul", autocast="low")
def _product(call: Call) -> Cost:
    a, b = call.inputs[:2]
    return call.streamed(flops=product_flops(a, b))


@formula(*aten("addmm baddbmm addbmm _addmm_activation"), family="matmul", autocast="low")
def _add_product(call: Call) -> Cost:
    _, a, b = call.inputs[:3]
    return call.streamed(flops=product_flops(a, b))


streaming(*aten("mv"), family="matmul", autocast="low", flops=2, per=0)
streaming(*aten("dot vdot"), family="matmul", flops=2, per=0)
streaming(*aten("addmv"), family="matmul", autocast="low", flops=2, per=1)
streaming(*aten("addr"), family="matmul", autocast="low", flops=2, per="outputs")


@formula(
    *aten("matmul linear mkldnn_linear"),
    "mkldnn._linear_pointwise",
    "mkl._mkl_linear",
    family="matmul",
    autocast="low",
)
def _linear(call: Call) -> Cost:
    """Every output element is a dot product over the input's last dimension."""
    return call.streamed(flops=2 * call.outputs[0].numel * call.inputs[0].shape[-1])


@formula(*aten("linear_backward mkldnn_linear_backward"), family="matmul", autocast="low", attributes=("output_mask",))
def _linear_backward(call: Call) -> Cost:
    """Inputs (input, grad_output, weight): each of the two gradients costs as much as the forward product."""
    _, grad_output, weight = call.inputs[:3]
    wants_input, wants_weight, wants_bias = call.attributes["output_mask"]
    product = 2 * grad_output.numel * weight.shape[-1]
    return call.streamed(flops=(wants_input + wants_weight) * product + wants_bias * grad_output.numel)


@formula(*aten("matmul_backward"), family="matmul", autocast="low", attributes=("mask",))
def _matmul_backward(call: Call) -> Cost:
    """Inputs (grad, self (..., m, k), other): each of the two gradients costs as much as the forward product."""
    grad, source = call.inputs[:2]
    return call.streamed(flops=sum(call.attributes["mask"]) * 2 * grad.numel * source.shape[-1])


@formula(*aten("_euclidean_dist"), family="matmul", autocast="full")
def _distances_by_product(call: Call) -> Cost:
    """|x - y|^2 = |x|^2 - 2xy + |y|^2 as one product: k features and the two squared norms."""
    return call.streamed(flops=2 * call.outputs[0].numel * (call.inputs[0].shape[-1] + 2))


@formula(*aten("_grouped_mm _scaled_grouped_mm"), family="matmul", autocast="low")
def _grouped_product(call: Call) -> Cost:
    """Products of unequal groups of rows; a (groups, m, k) with b (k, columns) splits the columns among the groups.

    Only the experts that some token chose are read.
    """
    a, b = call.inputs[:2]
    if call.attributes.get("experts_per_token") is not None and len(b.shape) == 3:
        idle_bytes = b.size_bytes * (1 - chosen_expert_count(call) / b.shape[0])
        moved = call.streamed(flops=product_flops(a, b))
        return replace(moved, read_bytes=moved.read_bytes - idle_bytes)
    groups_share_columns = len(a.shape) == 3 and len(b.shape) == 2
    groups = a.shape[0] if groups_share_columns else 1
    return call.streamed(flops=product_flops(a, b) / groups)


def chosen_expert_count(call: Call) -> Number:
    """Return the expected number of experts that receive a token, for a (rows, k) and b (experts, k, n).

    It is e (1 - (1 - c / e)^tokens) for e experts if each token chooses c = `experts_per_token` of them evenly. Without
    that attribute it is e.
    """
    a, b = call.inputs[:2]
    chosen_each = call.attributes.get("experts_per_token")
    groups = b.shape[0]
    if chosen_each is None:
        return groups
    return groups * (1 - (1 - chosen_each / groups) ** (a.shape[0] / chosen_each))


@formula(*aten("bilinear"), family="matmul")
def _bilinear(call: Call) -> Cost:
    """y_o = x1 W_o x2 with W (out, in1, in2): x1 W_o, then the dot product with x2."""
    first, _, weight = call.inputs[:3]
    samples = math.prod(first.shape[:-1])
    out_features, _, in2_features = weight.shape
    return call.streamed(flops=2 * samples * (weight.numel + out_features * in2_features))


@formula(*aten("_trilinear"), family="matmul", attributes=("expand1", "expand2", "expand3", "sumdim"))
def _trilinear(call: Call) -> Cost:
    """Three tensors expanded to one shape, multiplied and summed: two multiplications and one addition per element.

    The length of each dimension is taken from an operand that is not expanded in it.
    """
    expands = [call.attributes[name] for name in ("expand1", "expand2", "expand3")]
    rank = len(call.inputs[0].shape) + len(expands[0])
    extents: dict[int, Number] = {}
    for tensor, expanded in zip(call.inputs[:3], expands, strict=True):
        kept = (position for position in range(rank) if position not in expanded)
        extents.update(zip(kept, tensor.shape, strict=True))
    return call.streamed(flops=3 * math.prod(extents.values()))
