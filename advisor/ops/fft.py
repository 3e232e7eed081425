"""Costs of Fourier transforms: 5 N log2 N FLOP for N complex points, half for real ones (the FFTW convention).

N is the number of points of one transform, the product of the transformed dimensions. Source: Frigo and Johnson, "The
Design and Implementation of FFTW3", Proceedings of the IEEE 93 (2005), section on benchmarks.
"""

import math

from advisor.ops.arithmetic import log2
from advisor.ops.registry import Call, Cost, Number, Tensor, aten, formula


def _transform_flops(call: Call, *, points: Tensor, flops_per_point: float) -> Number:
    """Return the FLOP; `points` is the operand with all N points of each transform, the longer one if it is real."""
    transform_numel = math.prod(points.shape[dim] for dim in call.attributes["dim"])
    return flops_per_point * points.numel * log2(transform_numel)


@formula(*aten("_fft_c2c"), family="fft", attributes=("dim",))
def _complex_to_complex(call: Call) -> Cost:
    return call.streamed(flops=_transform_flops(call, points=call.inputs[0], flops_per_point=5.0))


@formula(*aten("_fft_r2c"), family="fft", attributes=("dim",))
def _real_to_complex(call: Call) -> Cost:
    return call.streamed(flops=_transform_flops(call, points=call.inputs[0], flops_per_point=2.5))


@formula(*aten("_fft_c2r"), family="fft", attributes=("dim",))
def _complex_to_real(call: Call) -> Cost:
    return call.streamed(flops=_transform_flops(call, points=call.outputs[0], flops_per_point=2.5))


@formula(*aten("stft istft"), family="fft", attributes=("n_fft",))
def _short_time(call: Call) -> Cost:
    """A real transform of `n_fft` points per frame; the frames have about twice as many points as the spectrum."""
    spectrum = call.outputs[0] if call.outputs[0].dtype.startswith("complex") else call.inputs[0]
    return call.streamed(flops=2.5 * 2 * spectrum.numel * log2(float(call.attributes["n_fft"])))
