"""Tells which fp32 convolutions torch computes on CPUs by a matmul of the unfolded image, without oneDNN.

Sources: `use_mkldnn` in ATen's Convolution.cpp, which chooses, and ConvolutionMM2d.cpp and ConvolutionMM3d.cpp, which
copy the elements under the kernel at each position into a column of a matrix (im2col).
"""

import math
from dataclasses import dataclass

import numpy as np

from advisor.ops.registry import ITEMSIZE_BYTES, Call, Number, Tensor, aten
from advisor.predict.products import fixed, is_dense, same_size
from advisor.records.prediction import BoolArray

_LARGE_IMAGE_NUMEL = 20_480
"""A single image with more elements in its first two dimensions, or in the only one, is left to oneDNN."""
_SMALL_KERNEL = 3
"""A kernel that is wider and higher is left to oneDNN, too."""
_FEW_IMAGES = 16
"""On one core, so many images or more with kernels of 1 x 1 are."""
_ROW_CYCLES, _STRIDED_CYCLES, _VOLUME_CYCLES = 18.0, 5.0, 3.0
"""Core cycles to copy a row of an image, an element with a stride, and an element of a volume: 19 to 21, 5 and 2.7 to
3.4 on a Zen 4 at 3.45 GHz. To add the gradient of an image back takes as long (17 to 40, 4, 5)."""
_IMAGE_DIMS, _VOLUME_DIMS = 4, 5
_BY_RULE = aten(
    "convolution _convolution conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "convolution_backward"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfolding:
    """How torch computes a convolution on CPUs: by oneDNN unless one of the first two holds, at each batch size."""

    is_on_any: BoolArray
    """Whether any number of cores unfolds the image."""
    is_on_one: BoolArray
    """Whether a single core multiplies the image as it is."""
    copied_bytes: Number = 0.0
    """Bytes of the unfolded image, written and read."""
    cycles: Number = 0.0
    """Cycles of the copy, shared by all cores."""


def unfolding_of(call: Call) -> Unfolding:
    """Return how a convolution of fp32 images is computed, forward or backward.

    Depthwise transposed convolutions, which torch computes in a loop over the channels, count as oneDNN's.
    """
    never = np.zeros(np.shape(call.inputs[0].shape[0]), dtype=np.bool_)
    if call.op not in _BY_RULE or call.inputs[0].dtype != "float32":
        return Unfolding(is_on_any=never, is_on_one=never)
    is_backward = "backward" in call.op
    weight = call.inputs[2 if is_backward else 1]
    source, result = call.inputs[1 if is_backward else 0], (call.inputs if is_backward else call.outputs)[0]
    is_transposed = bool(call.attributes.get("transposed", "transpose" in call.op))
    small, large = (source, result) if is_transposed else (result, source)
    kernel = [fixed(size) for size in weight.shape[2:]]
    samples = np.asarray(source.shape[0])
    is_plain = max(kernel) == 1 and same_size(source, result)
    is_grouped = fixed(large.shape[1]) != fixed(weight.shape[1])
    is_wide = len(kernel) > 1 and min(kernel[-2:]) > _SMALL_KERNEL
    is_single = (samples == 1) & (np.asarray(math.prod(source.shape[:_IMAGE_DIMS])) <= _LARGE_IMAGE_NUMEL)
    is_on_any = never if is_grouped or is_wide else is_single
    is_on_one = (samples < _FEW_IMAGES) & (is_plain and is_dense(call.attributes))
    if is_plain:
        return Unfolding(is_on_any=is_on_any, is_on_one=is_on_one)
    numel = math.prod(weight.shape[1:]) * small.shape[0] * math.prod(small.shape[2:])
    return Unfolding(
        is_on_any=is_on_any,
        is_on_one=is_on_one,
        copied_bytes=2 * numel * ITEMSIZE_BYTES["float32"] * is_on_any,
        cycles=_element_cycles(small, large) * numel * is_on_any,
    )


def _element_cycles(small: Tensor, large: Tensor) -> float:
    """Return the cycles of the copy for each element; between the images of a stride of 2 lies a factor of 2."""
    if len(small.shape) == _VOLUME_DIMS:
        return _VOLUME_CYCLES
    columns = fixed(small.shape[-1])
    is_strided = fixed(large.shape[-1]) > 1.5 * columns
    return _STRIDED_CYCLES if is_strided else _ROW_CYCLES / columns
