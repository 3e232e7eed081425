"""Costs of pooling: 1 FLOP (an addition or a comparison) per element of each window; every input is read once."""

import math
from collections.abc import Mapping
from typing import Any

from advisor.ops.registry import Call, Cost, Number, aten, formula, streaming


def window_numel(attributes: Mapping[str, Any], *, spatial_dim_count: int) -> Number:
    """Return the number of elements in a window; a single length applies to all spatial dimensions."""
    kernel_size = attributes["kernel_size"]
    if isinstance(kernel_size, int | float):
        kernel_size = (kernel_size,)
    if len(kernel_size) == 1:
        return kernel_size[0] ** spatial_dim_count
    return math.prod(kernel_size)


def _spatial_dim_count(op: str) -> int:
    """Return the digit in the operator's name: 2 for "aten.max_pool2d_with_indices"."""
    return next(int(character) for character in op if character in "123")


@formula(
    *aten("max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices max_pool1d_with_indices"),
    *aten("avg_pool1d avg_pool2d avg_pool3d mkldnn_max_pool2d mkldnn_max_pool3d fractional_max_pool2d"),
    *aten("fractional_max_pool3d quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d"),
    family="pool",
    attributes=("kernel_size",),
    fusable=True,
)
def _pool(call: Call) -> Cost:
    window = window_numel(call.attributes, spatial_dim_count=_spatial_dim_count(call.op))
    return call.streamed(flops=window * call.outputs[0].numel)


# Adaptive windows tile the input; they overlap slightly if its size is not a multiple of the output's.
_ADAPTIVE = """
    adaptive_avg_pool1d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool2d adaptive_avg_pool3d
    mkldnn_adaptive_avg_pool2d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
"""
streaming(*aten(_ADAPTIVE), family="pool", fusable=True, flops=1, per=0)
streaming(*aten("max_unpool2d max_unpool3d"), family="pool", fusable=True, flops=0, per="outputs")


@formula(
    *aten("avg_pool2d_backward avg_pool3d_backward"),
    family="pool",
    attributes=("kernel_size",),
    fusable=True,
)
def _avg_pool_backward(call: Call) -> Cost:
    """Inputs (grad_output, input): each gradient is added to its whole window; the input is not read."""
    grad_output = call.inputs[0]
    window = window_numel(call.attributes, spatial_dim_count=_spatial_dim_count(call.op))
    return Cost(flops=window * grad_output.numel, read_bytes=grad_output.size_bytes, write_bytes=call.write_bytes)


@formula(
    *aten("_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward mkldnn_adaptive_avg_pool2d_backward"),
    *aten("adaptive_avg_pool3d_backward"),
    family="pool",
    fusable=True,
)
def _adaptive_avg_pool_backward(call: Call) -> Cost:
    """Inputs (grad_output, input): every element of the result is written once."""
    grad_output = call.inputs[0]
    return Cost(flops=call.output_numel, read_bytes=grad_output.size_bytes, write_bytes=call.write_bytes)


@formula(
    *aten("max_pool2d_with_indices_backward max_pool3d_with_indices_backward max_pool2d_backward"),
    *aten("adaptive_max_pool2d_backward adaptive_max_pool3d_backward"),
    *aten("fractional_max_pool2d_backward fractional_max_pool3d_backward"),
    *aten("mkldnn_max_pool2d_backward mkldnn_max_pool3d_backward"),
    family="pool",
    fusable=True,
)
def _max_pool_backward(call: Call) -> Cost:
    """Inputs (grad_output, input, indices): 1 addition per gradient element; the input is not read.

    oneDNN's take (grad_output, output, input), and find the indices in the input.
    """
    grad_output, _, *indices = call.inputs
    return Cost(
        flops=grad_output.numel,
        read_bytes=grad_output.size_bytes + sum(tensor.size_bytes for tensor in indices),
        write_bytes=call.write_bytes,
    )
