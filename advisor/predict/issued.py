"""Cycles in which a GPU's core issues the instructions of eager kernels that compute addresses for each element.

Such kernels take their cycles whatever the memory's rate. A GeForce, with little bandwidth for its cores, hides them
behind memory accesses; a GPU with HBM waits for them. All were measured on an H200 with torch 2.11 and cuDNN 9.19, as
seconds of a kernel x 132 cores x 1.98 GHz / elements; torch.profiler's names tell which code ran
(`tests/data/measured/own/README.md`). Under torch.compile, Inductor generates other code.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from advisor.ops.norm import has_running_statistics
from advisor.ops.pooling import window_numel
from advisor.ops.registry import ITEMSIZE_BYTES, STRIDED, Call, Number, aten, formula_of
from advisor.predict.precision import FLOATS

BROADCAST_CYCLES = 0.8
"""For each element of a result to which an operand is broadcast, such as a convolution's bias: 0.785 in 16 bits, 0.81
in fp32 (20 nets). Torch's kernel for it, `elementwise_kernel`, computes the offset of each operand for each element."""
TRANSPOSED_CYCLES = 0.45
"""For each element of an image that cuDNN copies from NCHW to channels-last or back: 0.40 to 0.49 where the profiler
shows a copy for each convolution (10 nets)."""
_PADDED_CYCLES, _CUT_CYCLES = 2.3, 1.2
"""For each element of an image whose groups of channels cuDNN pads (`tensorTransformGeneric`), and of the result that
it cuts out of a padded one (`nhwcSliceCKernel`): one net compiled on an H100, where 15 us of each of the former's calls
are taken for the parameters. Images without groups are taken to be padded as fast as they are cut."""
_MIXED_CYCLES = 0.97
"""For each element of a result whose operands have different dtypes, such as a residual in fp32 to which autocast adds
one in 16 bits: 0.94 to 1.03 (9 nets)."""
_STRIDED_CYCLES: Mapping[float, float] = {2.0: 0.72, 4.0: 1.0}
"""For each element of a copy that is `STRIDED`, keyed by its bytes: 0.64 to 0.83 in 16 bits, 0.93 to 1.2 in fp32
(6 nets)."""
TRANSPOSED_ELEMENT_CYCLES: Mapping[float, float] = {2.0: 1.5, 4.0: 1.8}
"""For each element of a result whose operands are transposed to each other, keyed by its bytes: 1.5 to 1.6 in 16 bits,
1.8 to 2.2 in fp32 (additions of LeViT, Mixer and Whisper); the copies of such images before a layer norm take 1.7 to
1.9. Neighbouring threads read memory that is not adjacent."""
_JOINED_CYCLES = 1.0
"""For each element that is joined to others, where one of them is `STRIDED`: 0.98 to 1.2 in 16 bits and fp32
(5 nets)."""
_ROLLED_CYCLES = 1.24
"""For each element that is rolled and each dimension that it is rolled by (Swin)."""
_FUNCTION_CYCLES: Mapping[str, float] = {"aten.gelu": 0.33, "aten.gelu_backward": 0.455}
"""For each element of a function in 16 bits (10 and 9 nets). A ReLU takes 0.26, which is the time
of its memory accesses."""
_ROW_CYCLES, _NORMED_CYCLES = 344.0, 0.52
"""For each row of a layer norm and each element in it: 3.0 an element on average in ConvNeXt, whose rows have 96 to 768
elements, 0.95 to 1.03 in rows of 768 and 1,024 (10 nets)."""
_ROW_GRADIENT_CYCLES, _NORMED_GRADIENT_CYCLES = 133.0, 2.1
"""The same for its gradients: 0.57 for that of the input, 1.3 to 1.6 for those of weight and bias (12 nets)."""
_LEAST_PLANE_CYCLES, _PLANE_CYCLES = 160.0, 75.0
_PLANE_ELEMENT_CYCLES: Mapping[float, float] = {2.0: 0.53, 4.0: 0.66}
"""For each plane of a channel, and each element of it keyed by its bytes, in a batch norm with running statistics in
NCHW. A plane takes 160 cycles in sizes of 7 x 7 and 14 x 14, 499 in 28 x 28 and 1,824 in 56 x 56 in 16 bits (13 nets).
cuDNN takes one plane after the other."""
_POOLED_CYCLES, _WINDOW_CYCLES = 2.3, 0.21
"""For each result of a max pool in NCHW and each element of its window: 3.1 for 2 x 2, 4.2 for 3 x 3 (10 nets)."""
_POOL_GRADIENT_CYCLES = 2.7
"""For each element of a max pool's input in its gradient: 2.5 for 2 x 2 and 2.9 for 3 x 3 (7 nets)."""
_DEPTHWISE_CYCLES, _TAP_CYCLES = 1.6, 0.11
"""For each result of a depthwise convolution in fp32 and each element of its kernel: 2.6 for 3 x 3, 4.3 for 5 x 5
(5 nets)."""
_INDEXED_CYCLES, _ADDED_CYCLES, _BAGGED_CYCLES = 1.1, 2.0, 0.56
"""For each element read at an index, added at an index, and summed in an embedding bag (one net each)."""
_SUM_CYCLES, _SUMMED_CYCLES = 50.0, 0.2
"""For each sum or mean over the last dimensions and each of its elements: 1.29 an element in planes of 7 x 7 (14
nets)."""
LEAST_IMAGE_DIMS = 3
"""Dimensions from which on torch calls cuDNN's spatial batch norm: samples, channels and a length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """Cycles in which cores issue the instructions of a call, shared by all cores.

    `nchw_cycles` are added if images are in NCHW.
    """

    cycles: Number = 0.0
    nchw_cycles: Number = 0.0


def issued_of(call: Call) -> Issued | None:
    """Return the cycles in which a GPU's cores issue instructions in an eager call; None if memory is always slower."""
    if not call.outputs:
        return None
    cycles_of = _BY_OP.get(call.op)
    if cycles_of is not None:
        return cycles_of(call)
    formula = formula_of(call.op)
    if formula is None or not call.op.startswith("aten.") or "_foreach_" in call.op:
        return None
    if formula.family == "copy" and STRIDED in call.attributes:
        return _strided_copy(call)
    return _pointwise(call) if formula.family == "pointwise" else None


def depthwise_issue_cycles(call: Call) -> Number:
    """Return the cycles of a depthwise convolution of NCHW images in fp32, for which torch has a kernel of its own."""
    taps = math.prod(call.inputs[1].shape[2:])
    return (_DEPTHWISE_CYCLES + _TAP_CYCLES * taps) * call.outputs[0].numel


def padding_of(call: Call, *, inputs_ratio: float, outputs_ratio: float, is_grouped: bool) -> tuple[Number, Number]:
    """Return (elements that are copied, cycles) to pad the channels of a convolution's image and to cut its result.

    The ratios are the padded channels, relative to their number; a copy of n elements reads and writes n.
    """
    source, result = call.inputs[0], call.outputs[0]
    padded, cut = source.numel * (inputs_ratio > 1), result.numel * (outputs_ratio > 1)
    copied = (padded * (1 + inputs_ratio) + cut * (1 + outputs_ratio)) / 2
    return copied, (_PADDED_CYCLES if is_grouped else _CUT_CYCLES) * padded + _CUT_CYCLES * cut


def _pointwise(call: Call) -> Issued | None:
    numel = call.outputs[0].numel
    strided = call.attributes.get(STRIDED)
    is_broadcast = (sum(operand.numel < numel for operand in call.inputs) > 0) | (strided is not None)
    is_mixed = len({operand.dtype for operand in call.inputs} & FLOATS) > 1
    is_half = call.outputs[0].itemsize_bytes == ITEMSIZE_BYTES["float16"]
    other_cycles = _MIXED_CYCLES if is_mixed else _FUNCTION_CYCLES.get(call.op, 0.0) * is_half
    if strided == "transposed":
        other_cycles = max(other_cycles, TRANSPOSED_ELEMENT_CYCLES.get(call.outputs[0].itemsize_bytes, 0.0))
    if not other_cycles and not np.any(is_broadcast):
        return None
    return Issued(cycles=np.maximum(BROADCAST_CYCLES * is_broadcast, other_cycles) * numel)


def _strided_copy(call: Call) -> Issued:
    result = call.outputs[0]
    return Issued(cycles=_STRIDED_CYCLES.get(result.itemsize_bytes, 0.0) * result.numel)


def _join(call: Call) -> Issued | None:
    return Issued(cycles=_JOINED_CYCLES * call.outputs[0].numel) if STRIDED in call.attributes else None


def _roll(call: Call) -> Issued:
    return Issued(cycles=_ROLLED_CYCLES * rolled_dimensions(call) * call.outputs[0].numel)


def rolled_dimensions(call: Call) -> int:
    """Return how many dimensions a call of `roll` rolls by, each in a kernel of its own; all at once count as one."""
    dims = call.attributes.get("dims", ())
    return max(1, len(dims)) if isinstance(dims, tuple) else 1


def _layer_norm(call: Call) -> Issued:
    rows = call.outputs[1].numel if len(call.outputs) > 1 else 0.0  # one mean for each
    return Issued(cycles=_ROW_CYCLES * rows + _NORMED_CYCLES * call.inputs[0].numel)


def _layer_norm_gradient(call: Call) -> Issued:
    source, mean = call.inputs[1:3]
    return Issued(cycles=_ROW_GRADIENT_CYCLES * mean.numel + _NORMED_GRADIENT_CYCLES * source.numel)


def _batch_norm(call: Call) -> Issued | None:
    images = call.inputs[0]
    if not has_running_statistics(call.op, call.attributes) or len(images.shape) < LEAST_IMAGE_DIMS:
        return None
    planes = images.shape[0] * images.shape[1]
    element_cycles = _PLANE_ELEMENT_CYCLES.get(images.itemsize_bytes, 0.0)
    cycles = np.maximum(_LEAST_PLANE_CYCLES * planes, _PLANE_CYCLES * planes + element_cycles * images.numel)
    return Issued(nchw_cycles=cycles)


def _max_pool(call: Call) -> Issued:
    return Issued(nchw_cycles=(_POOLED_CYCLES + _WINDOW_CYCLES * window_numel(call)) * call.outputs[0].numel)


def _max_pool_gradient(call: Call) -> Issued:
    return Issued(nchw_cycles=_POOL_GRADIENT_CYCLES * call.outputs[0].numel)


def _index(call: Call) -> Issued:
    return Issued(cycles=_INDEXED_CYCLES * call.outputs[0].numel)


def _index_add(call: Call) -> Issued:
    return Issued(cycles=_ADDED_CYCLES * call.inputs[-1].numel)


def _embedding_bag(call: Call) -> Issued:
    table, indices = call.inputs[:2]
    return Issued(cycles=_BAGGED_CYCLES * indices.numel * table.shape[-1])


def _sum_of_rows(call: Call) -> Issued | None:
    source, result = call.inputs[0], call.outputs[0]
    is_summed: Number = np.True_
    is_of_rows: Number = np.True_
    for kept, length in reversed([*zip(result.shape, source.shape, strict=False)]):
        is_summed = is_summed & (kept == 1)
        is_of_rows = is_of_rows & (is_summed | (kept == length))
    is_of_rows = is_of_rows & ~is_summed
    if not is_of_rows.any():
        return None
    return Issued(cycles=is_of_rows * (_SUM_CYCLES * result.numel + _SUMMED_CYCLES * source.numel))


_BY_OP: Mapping[str, Callable[[Call], Issued | None]] = {
    **dict.fromkeys(aten("cat stack"), _join),
    "aten.roll": _roll,
    "aten.pixel_shuffle": _strided_copy,
    "aten.native_layer_norm": _layer_norm,
    "aten.native_layer_norm_backward": _layer_norm_gradient,
    **dict.fromkeys(
        aten(
            "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_no_update "
            "_native_batch_norm_legit_functional _batch_norm_impl_index"
        ),
        _batch_norm,
    ),
    "aten.max_pool2d_with_indices": _max_pool,
    "aten.max_pool2d_with_indices_backward": _max_pool_gradient,
    "aten.index": _index,
    "aten.index_add": _index_add,
    **dict.fromkeys(aten("_embedding_bag _embedding_bag_forward_only"), _embedding_bag),
    **dict.fromkeys(aten("mean sum"), _sum_of_rows),
}
