"""Tells which convolutions CPUs compute by a matmul of the unfolded image.

Torch does so itself, without oneDNN, for some fp32 convolutions: `use_mkldnn` in ATen's Convolution.cpp chooses, and
ConvolutionMM2d.cpp and ConvolutionMM3d.cpp copy the elements under the kernel at each position into a column of a
matrix (im2col). OneDNN does so for depthwise convolutions that it has no kernel for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.ops.conv import weight_of
from advisor.ops.registry import ITEMSIZE_BYTES, Call, Number, Tensor, aten
from advisor.predict.products import fixed, is_dense, same_size
from advisor.records.prediction import FloatArray

_LARGE_IMAGE_NUMEL = 20_480
"""A single image with more elements is left to oneDNN, counted over its channels and first two dimensions."""
_SMALL_KERNEL = 3
"""A kernel that is larger in both of its last two dimensions is left to oneDNN."""
_FEW_IMAGES = 16
"""On one core, a batch of at least so many images is left to oneDNN if the kernel is 1 in its last two dimensions."""
_ROW_CYCLES, _STRIDED_CYCLES, _VOLUME_CYCLES = 18.0, 5.0, 3.0
"""Core cycles to copy a row of an image, an element with a stride, and an element of a volume: 19 to 21, 5 and 2.7 to
3.4 on a Zen 4 at 3.45 GHz (`scripts/measure_functions.py`). To add the gradient of an image back takes 17 to 40, 4 and
5; the model does not distinguish them."""
_IMAGE_DIMS, _VOLUME_DIMS = 4, 5
_WIDEST_WEIGHT_GRADIENT = 3
"""Width of a depthwise kernel up to which oneDNN has a kernel for the weight's gradient."""
_GENERIC_CYCLES, _GENERIC_STRIDED_CYCLES = 2.7, 13.0
"""Core cycles of a multiply-add in depthwise gradients that oneDNN unfolds (`x64:gemm:jit` with ONEDNN_VERBOSE), and in
those of a strided 16-bit convolution's input (`brgconv_strided`): 2.3 to 3.6, and 6 to 25, in 8 and 9 sizes on one and
two cores of a Zen 4 at 3.45 GHz, torch 2.13. With a kernel of its own oneDNN takes 0.1 to 0.8. Channels-last, some of
the former take 1.0 to 1.5."""
_MULTIPLIED_CYCLES, _MULTIPLIED_GRADIENT_CYCLES = 1.3, (1.8, 5.5)
"""The same of a depthwise convolution with several results per channel, and of the gradients of its input and weight:
0.6 to 1.7, 1.0 to 2.2, and 2.4 to 8.5 in three sizes."""
_BY_RULE = aten(
    "convolution _convolution conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "convolution_backward"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfolding:
    """The CPUs on which torch computes a convolution without oneDNN, at each batch size, and the cost of its copy."""

    most_cores: FloatArray
    """The largest number of cores of such a CPU: 0, 1 or infinity."""
    copied_bytes: Number = 0.0
    """Bytes of the unfolded image, written and read."""
    cycles: Number = 0.0
    """Cycles of the copy, shared by all cores."""


def unfolding_of(call: Call) -> Unfolding:
    """Return when a convolution of fp32 images is unfolded, forward or backward.

    Depthwise transposed convolutions, which torch computes in a loop over the channels, count as oneDNN's.
    """
    if call.op not in _BY_RULE or call.inputs[0].dtype != "float32":
        return Unfolding(most_cores=np.zeros(np.shape(call.inputs[0].shape[0])))
    is_backward = "backward" in call.op
    weight = weight_of(call.op, call.inputs)
    source, result = call.inputs[1 if is_backward else 0], (call.inputs if is_backward else call.outputs)[0]
    is_transposed = bool(call.attributes.get("transposed", "transpose" in call.op))
    small, large = (source, result) if is_transposed else (result, source)
    kernel = [fixed(size) for size in weight.shape[2:]]
    samples = np.asarray(source.shape[0])
    is_unit = is_dense(call.attributes) and not any(_strides(small, large, kernel))
    is_grouped = fixed(large.shape[1]) != fixed(weight.shape[1])
    is_wide = len(kernel) > 1 and min(kernel[-2:]) > _SMALL_KERNEL
    is_single = (samples == 1) & (np.asarray(math.prod(source.shape[:_IMAGE_DIMS])) <= _LARGE_IMAGE_NUMEL)
    is_on_any = is_single & (not is_grouped and not is_wide)
    is_on_one = (samples < _FEW_IMAGES) & (max(kernel[-2:]) == 1 and is_unit)
    found = Unfolding(most_cores=np.where(is_on_any, np.inf, np.where(is_on_one, 1.0, 0.0)))
    if max(kernel) == 1 and same_size(source, result):
        return found
    numel = math.prod(weight.shape[1:]) * small.shape[0] * math.prod(small.shape[2:])
    return replace(
        found,
        copied_bytes=2 * numel * ITEMSIZE_BYTES["float32"],
        cycles=_element_cycles(small, large, kernel) * numel,
    )


def depthwise_cycles(call: Call, *, of_weight: bool, is_half: bool) -> float:
    """Return the core cycles of a multiply-add of a depthwise convolution without a kernel of oneDNN's, or else 0.

    `of_weight`: of the gradient of the weight, not of the input; `is_half`: in 16 bits. Transposed convolutions are
    taken to have kernels.
    """
    is_backward = "backward" in call.op
    weight = weight_of(call.op, call.inputs)
    source, result = call.inputs[1 if is_backward else 0], (call.inputs if is_backward else call.outputs)[0]
    if call.attributes.get("transposed", "transpose" in call.op):
        return 0.0
    if fixed(result.shape[1]) != fixed(source.shape[1]):
        return _MULTIPLIED_GRADIENT_CYCLES[of_weight] if is_backward else _MULTIPLIED_CYCLES
    if not is_backward:
        return 0.0
    kernel = [fixed(size) for size in weight.shape[2:]]
    if len(weight.shape) == _VOLUME_DIMS or not is_dense(call.attributes):
        return _GENERIC_CYCLES
    if of_weight:
        return _GENERIC_CYCLES * (kernel[-1] > _WIDEST_WEIGHT_GRADIENT)
    return _GENERIC_STRIDED_CYCLES * (is_half and any(_strides(result, source, kernel)))


def _element_cycles(small: Tensor, large: Tensor, kernel: Sequence[float]) -> float:
    """Return the cycles of the copy for each element."""
    if len(small.shape) == _VOLUME_DIMS:
        return _VOLUME_CYCLES
    return _STRIDED_CYCLES if _strides(small, large, kernel)[-1] else _ROW_CYCLES / fixed(small.shape[-1])


def _strides(small: Tensor, large: Tensor, kernel: Sequence[float]) -> list[bool]:
    """Return for each dimension whether the images differ by more than a kernel of stride 1 without padding explains.

    A trace has no strides. A dilated kernel explains more, so its images may seem strided.
    """
    lengths = zip(small.shape[2:], large.shape[2:], kernel, strict=True)
    return [fixed(long) > fixed(short) + size - 1 for short, long, size in lengths]
