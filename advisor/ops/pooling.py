"""Costs of pooling: 1 FLOP (an addition or a comparison) per element of each window; every input is read once."""

import math

from advisor.ops.registry import Call, Cost, Number, aten, formula, streaming

_POOLS = aten(
    "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices max_pool1d_with_indices "
    "avg_pool1d avg_pool2d avg_pool3d mkldnn_max_pool2d mkldnn_max_pool3d fractional_max_pool2d "
    "fractional_max_pool3d quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d"
)
_ADAPTIVE = aten(
    "adaptive_avg_pool1d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool2d adaptive_avg_pool3d "
    "mkldnn_adaptive_avg_pool2d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d"
)
_ADAPTIVE_BACKWARDS = aten(
    "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward mkldnn_adaptive_avg_pool2d_backward "
    "adaptive_avg_pool3d_backward"
)
_MAX_BACKWARDS = aten(
    "max_pool2d_with_indices_backward max_pool3d_with_indices_backward max_pool2d_backward "
    "adaptive_max_pool2d_backward adaptive_max_pool3d_backward fractional_max_pool2d_backward "
    "fractional_max_pool3d_backward mkldnn_max_pool2d_backward mkldnn_max_pool3d_backward"
)


def window_numel(call: Call) -> Number:
    """Return the elements of a window; a single length applies to all dimensions, whose number is in the name."""
    kernel_size = call.attributes["kernel_size"]
    lengths = (kernel_size,) if isinstance(kernel_size, int | float) else kernel_size
    if len(lengths) > 1:
        return math.prod(lengths)
    return lengths[0] ** next(int(character) for character in call.op if character in "123")


def _pool_flops(call: Call) -> Number:
    return window_numel(call) * call.outputs[0].numel


streaming(*_POOLS, family="pool", attributes=("kernel_size",), fusable=True, flops=_pool_flops)
# Adaptive windows tile the input; they overlap slightly if its size is not a multiple of the output's.
streaming(*_ADAPTIVE, family="pool", fusable=True, flops=1, per=0)
streaming(*aten("max_unpool2d max_unpool3d"), family="pool", fusable=True, flops=0)


# Inputs of all gradients (grad_output, input, ...): the input is not read.
@formula(*aten("avg_pool2d_backward avg_pool3d_backward"), family="pool", attributes=("kernel_size",), fusable=True)
def _avg_pool_backward(call: Call) -> Cost:
    """Each gradient is added to its whole window."""
    return call.reading(call.inputs[0], flops=window_numel(call) * call.inputs[0].numel)


@formula(*_ADAPTIVE_BACKWARDS, family="pool", fusable=True)
def _adaptive_avg_pool_backward(call: Call) -> Cost:
    """Every element of the result is written once."""
    return call.reading(call.inputs[0], flops=call.output_numel)


@formula(*_MAX_BACKWARDS, family="pool", fusable=True)
def _max_pool_backward(call: Call) -> Cost:
    """Inputs (grad_output, input, indices): 1 addition per gradient element.

    oneDNN's take (grad_output, output, input), and find the indices in the input.
    """
    grad_output, _, *indices = call.inputs
    return call.reading(grad_output, *indices, flops=grad_output.numel)
