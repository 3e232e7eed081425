"""Costs of Fourier transforms: 5 N log2 N FLOP for N complex points, half for real ones (the FFTW convention).

N is the number of points of one transform, the product of the transformed dimensions. Source: Frigo and Johnson, "The
Design and Implementation of FFTW3", Proceedings of the IEEE 93 (2005), section on benchmarks.
"""

import math

from advisor.ops.registry import Call, Number, aten, log2, streaming


def _transform_flops(call: Call) -> Number:
    """Count the operand with all N points of each transform, the longer one if it is real."""
    points = call.outputs[0] if call.op == "aten._fft_c2r" else call.inputs[0]
    transform_numel = math.prod(points.shape[dim] for dim in call.attributes["dim"])
    return (5.0 if call.op == "aten._fft_c2c" else 2.5) * points.numel * log2(transform_numel)


def _short_time_flops(call: Call) -> Number:
    """Count a real transform of `n_fft` points per frame; the frames have about twice the spectrum's points."""
    spectrum = call.outputs[0] if call.outputs[0].dtype.startswith("complex") else call.inputs[0]
    return 2.5 * 2 * spectrum.numel * log2(float(call.attributes["n_fft"]))


streaming(*aten("_fft_c2c _fft_r2c _fft_c2r"), family="fft", attributes=("dim",), flops=_transform_flops)
streaming(*aten("stft istft"), family="fft", attributes=("n_fft",), flops=_short_time_flops)
