"""Costs of convolutions: 2 FLOP per multiply-add; every input is read once, whatever the stride."""

import math
from collections.abc import Sequence
from typing import TypeVar

from advisor.ops.registry import Call, Cost, Number, Tensor, aten, formula, streaming

_T = TypeVar("_T")

TRANSPOSED_CONVOLUTIONS = aten(
    "conv_transpose1d conv_transpose2d conv_transpose3d slow_conv_transpose2d slow_conv_transpose3d "
    "cudnn_convolution_transpose"
)
PLAIN_CONVOLUTIONS = (
    "mkldnn._convolution_pointwise",
    *aten(
        "conv1d conv2d conv3d cudnn_convolution mkldnn_convolution _slow_conv2d_forward slow_conv3d_forward "
        "slow_conv3d thnn_conv2d _conv_depthwise2d conv_depthwise3d"
    ),
)
GENERAL_CONVOLUTIONS = aten("convolution _convolution convolution_overrideable")
_TRAITS = ("transposed", "dilation")


def weight_of(op: str, inputs: Sequence[_T]) -> _T:
    """Return the weight among the inputs of a convolution or of its gradient."""
    return inputs[2 if "backward" in op else 1]


def _convolution_flops(call: Call, *, source: Tensor, result: Tensor, weight: Tensor) -> Number:
    """Return the FLOP for weight (out, in / groups, *kernel), or (in, out / groups, *kernel) if transposed.

    Every output element gathers `weight.numel / out` products; transposed, every input element scatters
    `weight.numel / in`. The bias is not counted, as in torch.
    """
    transposed = call.attributes.get("transposed", call.op in TRANSPOSED_CONVOLUTIONS)
    return 2 * (source if transposed else result).numel * math.prod(weight.shape[1:])


def _forward_flops(call: Call) -> Number:
    return _convolution_flops(call, source=call.inputs[0], result=call.outputs[0], weight=call.inputs[1])


streaming(*GENERAL_CONVOLUTIONS, family="conv", autocast="low", attributes=_TRAITS, flops=_forward_flops)
streaming(*PLAIN_CONVOLUTIONS, *TRANSPOSED_CONVOLUTIONS, family="conv", autocast="low", flops=_forward_flops)


@formula(
    *aten("convolution_backward convolution_backward_overrideable"),
    family="conv",
    autocast="low",
    attributes=(*_TRAITS, "output_mask"),
)
@formula(*aten("_slow_conv2d_backward"), family="conv", autocast="low", attributes=("output_mask",))
def _convolution_backward(call: Call) -> Cost:
    """Inputs (grad_output, input, weight): each requested gradient costs as much as the forward convolution."""
    grad_output, source, weight = call.inputs[:3]
    wants_input, wants_weight, wants_bias = call.attributes["output_mask"]
    forward_flops = _convolution_flops(call, source=source, result=grad_output, weight=weight)
    return Cost(
        flops=(wants_input + wants_weight) * forward_flops + wants_bias * grad_output.numel,
        read_bytes=grad_output.size_bytes + wants_weight * source.size_bytes + wants_input * weight.size_bytes,
        write_bytes=call.write_bytes,
    )


def _over_time_flops(call: Call) -> Number:
    """Return the FLOP for weight (kernel, in, out); `call.inputs[0]` of backward is the result's gradient."""
    weight = weight_of(call.op, call.inputs)
    result = call.outputs[0] if call.op == "aten.conv_tbc" else call.inputs[0]
    products = 2 * result.numel * weight.shape[0] * weight.shape[1]
    return products if call.op == "aten.conv_tbc" else 2 * products + result.numel  # two gradients, and the bias's


streaming(*aten("conv_tbc conv_tbc_backward"), family="conv", autocast="low", flops=_over_time_flops)


def _deformable_flops(call: Call) -> Number:
    """Inputs (input, weight, offset, mask, bias): a convolution whose taps are bilinearly interpolated.

    Interpolation takes 4 multiply-adds per tap and input channel; an output position has weight.shape[2:] taps.
    """
    (source, weight), result = call.inputs[:2], call.outputs[0]
    positions = result.shape[0] * math.prod(result.shape[2:])
    interpolated_flops = 8 * positions * source.shape[1] * math.prod(weight.shape[2:])
    return interpolated_flops + 2 * result.numel * math.prod(weight.shape[1:])


streaming("torchvision.deform_conv2d", family="conv", autocast="full", flops=_deformable_flops)
