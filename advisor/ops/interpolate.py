"""Costs of resampling: 2 FLOP per tap (a multiply-add) and output element; nearest neighbours are only copied.

Taps: 2 per dimension for linear, 4 for cubic, 6 for Lanczos. Every input is read once, because neighbours share taps.
"""

from advisor.ops.registry import Call, Number, aten, streaming

_TAPS = {
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d": 0,
    "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d": 0,
    "upsample_linear1d": 2,
    "upsample_bilinear2d _upsample_bilinear2d_aa": 4,
    "upsample_trilinear3d": 8,
    "upsample_bicubic2d _upsample_bicubic2d_aa": 16,
    "_upsample_lanczos2d_aa": 36,
}


for _names, _taps in _TAPS.items():
    _backwards = (f"{op}_backward" for op in aten(_names))
    _flops = max(1, 2 * _taps)  # every element of the gradient is added to its taps, at least one
    streaming(*aten(_names), family="interpolate", autocast="full on GPUs", fusable=True, flops=2 * _taps)
    streaming(*_backwards, family="interpolate", autocast="full on GPUs", fusable=True, flops=_flops, per=0)

_GRID_TAPS = {0: 2, 1: 0, 2: 4}
"""Taps per dimension by torch's `interpolation_mode`: bilinear, nearest, bicubic."""
_GRID_SAMPLERS = aten("grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback")


def _grid_flops(call: Call) -> Number:
    """Inputs (input (n, channels, ...), grid (n, ..., dims)); in backward (grad_output, input, grid).

    The gradients of input and grid each use all taps.
    """
    taps = int(_GRID_TAPS[call.attributes["interpolation_mode"]] ** (len(call.inputs[0].shape) - 2))
    return 2 * 2 * taps * call.inputs[0].numel if "_backward" in call.op else 2 * taps * call.outputs[0].numel


for _samplers in (_GRID_SAMPLERS, [f"{op}_backward" for op in _GRID_SAMPLERS]):
    streaming(*_samplers, family="interpolate", attributes=("interpolation_mode",), flops=_grid_flops)


def _affine_grid_flops(call: Call) -> Number:
    """Each grid coordinate is a dot product with (position, 1): dims + 1 multiply-adds."""
    return 2 * call.outputs[0].numel * (call.outputs[0].shape[-1] + 1)


def _roi_align_flops(call: Call) -> Number:
    """Inputs (features, boxes): each output element averages sampling_ratio^2 bilinear samples (2 x 2 if adaptive)."""
    ratio = call.attributes["sampling_ratio"]
    return (ratio**2 if ratio > 0 else 4) * 2 * 4 * call.outputs[0].numel


_ALIGNED, _POOLED = (("torchvision.roi_" + kind, "torchvision.ps_roi_" + kind) for kind in ("align", "pool"))
streaming(*aten("affine_grid_generator"), family="interpolate", flops=_affine_grid_flops)
streaming(*_ALIGNED, family="interpolate", autocast="full", attributes=("sampling_ratio",), flops=_roi_align_flops)
# Inputs (features, boxes): every feature is compared once, assuming that the boxes roughly tile the image.
streaming(*_POOLED, family="interpolate", autocast="full", flops=1, per=0)
