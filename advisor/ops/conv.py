"""Costs of convolutions: 2 FLOP per multiply-add; every input is read once, whatever the stride."""

import math

from advisor.ops.registry import Call, Cost, Number, Tensor, aten, formula


def convolution_flops(*, source: Tensor, result: Tensor, weight: Tensor, transposed: bool) -> Number:
    """Return the FLOP for weight (out, in / groups, *kernel), or (in, out / groups, *kernel) if transposed.

    Every output element gathers `weight.numel / out` products; transposed, every input element scatters
    `weight.numel / in`. The bias is not counted, as in torch.
    """
    anchor = source if transposed else result
    return 2 * anchor.numel * math.prod(weight.shape[1:])


_TRANSPOSED = aten(
    "conv_transpose1d conv_transpose2d conv_transpose3d slow_conv_transpose2d slow_conv_transpose3d "
    "cudnn_convolution_transpose"
)


@formula(
    *aten("convolution _convolution convolution_overrideable"),
    family="conv",
    autocast="low",
    attributes=("transposed", "dilation"),
)
@formula(
    *aten("conv1d conv2d conv3d cudnn_convolution mkldnn_convolution"),
    *aten("_slow_conv2d_forward slow_conv3d_forward slow_conv3d thnn_conv2d _conv_depthwise2d conv_depthwise3d"),
    "mkldnn._convolution_pointwise",
    family="conv",
    autocast="low",
)
@formula(*_TRANSPOSED, family="conv", autocast="low")
def _convolution(call: Call) -> Cost:
    source, weight = call.inputs[:2]
    transposed = call.attributes.get("transposed", call.op in _TRANSPOSED)
    flops = convolution_flops(source=source, result=call.outputs[0], weight=weight, transposed=transposed)
    return call.streamed(flops=flops)


@formula(
    *aten("convolution_backward convolution_backward_overrideable"),
    family="conv",
    autocast="low",
    attributes=("transposed", "dilation", "output_mask"),
)
@formula(*aten("_slow_conv2d_backward"), family="conv", autocast="low", attributes=("output_mask",))
def _convolution_backward(call: Call) -> Cost:
    """Inputs (grad_output, input, weight): each requested gradient costs as much as the forward convolution."""
    grad_output, source, weight = call.inputs[:3]
    wants_input, wants_weight, wants_bias = call.attributes["output_mask"]
    transposed = call.attributes.get("transposed", False)
    forward_flops = convolution_flops(source=source, result=grad_output, weight=weight, transposed=transposed)
    return Cost(
        flops=(wants_input + wants_weight) * forward_flops + wants_bias * grad_output.numel,
        read_bytes=grad_output.size_bytes + wants_weight * source.size_bytes + wants_input * weight.size_bytes,
        write_bytes=call.write_bytes,
    )


@formula(*aten("conv_tbc"), family="conv", autocast="low")
def _convolution_over_time(call: Call) -> Cost:
    """Weight (kernel, in, out)."""
    weight = call.inputs[1]
    return call.streamed(flops=2 * call.outputs[0].numel * weight.shape[0] * weight.shape[1])


@formula(*aten("conv_tbc_backward"), family="conv", autocast="low")
def _convolution_over_time_backward(call: Call) -> Cost:
    """Inputs (grad_output, input, weight, bias): gradients of the input, the weight and the bias."""
    grad_output, _, weight = call.inputs[:3]
    gradient_flops = 2 * grad_output.numel * weight.shape[0] * weight.shape[1]
    return call.streamed(flops=2 * gradient_flops + grad_output.numel)


@formula("torchvision.deform_conv2d", family="conv", autocast="full")
def _deformable_convolution(call: Call) -> Cost:
    """Inputs (input, weight, offset, mask, bias): a convolution whose taps are bilinearly interpolated.

    Interpolation takes 4 multiply-adds per tap and input channel; an output position has weight.shape[2:] taps.
    """
    source, weight = call.inputs[:2]
    result = call.outputs[0]
    positions = result.shape[0] * math.prod(result.shape[2:])
    interpolated_flops = 8 * positions * source.shape[1] * math.prod(weight.shape[2:])
    return call.streamed(flops=interpolated_flops + 2 * result.numel * math.prod(weight.shape[1:]))
