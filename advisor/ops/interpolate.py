"""Costs of resampling: 2 FLOP per tap (a multiply-add) and output element; nearest neighbours are only copied.

Taps: 2 per dimension for linear, 4 for cubic, 6 for Lanczos. Every input is read once, because neighbours share taps.
"""

from advisor.ops.registry import Call, Cost, aten, formula, streaming

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
    streaming(*aten(_names), family="interpolate", autocast="full", fusable=True, flops=2 * _taps, per="outputs")
    streaming(*_backwards, family="interpolate", autocast="full", fusable=True, flops=_flops, per=0)

_GRID_TAPS = {0: 2, 1: 0, 2: 4}
"""Taps per dimension by torch's `interpolation_mode`: bilinear, nearest, bicubic."""


@formula(
    *aten("grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback"),
    family="interpolate",
    attributes=("interpolation_mode",),
)
def _grid_sample(call: Call) -> Cost:
    """Inputs (input (n, channels, ...), grid (n, ..., dims))."""
    taps = _grid_taps(call, dims=len(call.inputs[0].shape) - 2)
    return call.streamed(flops=2 * taps * call.outputs[0].numel)


@formula(
    *aten("grid_sampler_2d_backward grid_sampler_3d_backward _grid_sampler_2d_cpu_fallback_backward"),
    family="interpolate",
    attributes=("interpolation_mode",),
)
def _grid_sample_backward(call: Call) -> Cost:
    """Inputs (grad_output, input, grid): the gradients of input and grid each use all taps."""
    grad_output = call.inputs[0]
    taps = _grid_taps(call, dims=len(grad_output.shape) - 2)
    return call.streamed(flops=2 * 2 * taps * grad_output.numel)


def _grid_taps(call: Call, *, dims: int) -> int:
    mode: int = call.attributes["interpolation_mode"]
    return int(_GRID_TAPS[mode] ** dims)


@formula(*aten("affine_grid_generator"), family="interpolate")
def _affine_grid(call: Call) -> Cost:
    """Each grid coordinate is a dot product with (position, 1): dims + 1 multiply-adds."""
    grid = call.outputs[0]
    return call.streamed(flops=2 * grid.numel * (grid.shape[-1] + 1))


@formula(
    *("torchvision.roi_align", "torchvision.ps_roi_align"),
    family="interpolate",
    autocast="full",
    attributes=("sampling_ratio",),
)
def _roi_align(call: Call) -> Cost:
    """Inputs (features, boxes): each output element averages sampling_ratio^2 bilinear samples (2 x 2 if adaptive)."""
    ratio = call.attributes["sampling_ratio"]
    samples = ratio**2 if ratio > 0 else 4
    return call.streamed(flops=samples * 2 * 4 * call.outputs[0].numel)


# Inputs (features, boxes): every feature is compared once, assuming that the boxes roughly tile the image.
streaming("torchvision.roi_pool", "torchvision.ps_roi_pool", family="interpolate", autocast="full", flops=1, per=0)
