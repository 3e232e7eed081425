"""Cycles of torch's CPU kernels that process one element at a time instead of a SIMD register of them.

Unless stated otherwise they were measured on an Emerald Rapids at 2.96 GHz (`scripts/measure_functions.py`, torch
2.13). Each is a rounded middle of fp32 and bf16, with one thread and with two.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from advisor.ops.registry import (
    ITEMSIZE_BYTES,
    WITHOUT_INDICES,
    Call,
    Number,
    aten,
    counted_as,
    formula_of,
    is_one,
)
from advisor.predict.products import fixed

_IMAGE_DIMS = 4
GRAIN_NUMEL = 32_768
"""Up to this number of elements torch uses one core (ATen/Parallel.h: GRAIN_SIZE)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Core cycles of a call: those divided among all cores, and those of a single core; and its shared additions."""

    shared_cycles: Number = 0.0
    serial_cycles: Number = 0.0
    shared_additions: Number = 0.0
    """Elements that all cores add at indices, as `Kernels.indexed_additions`."""


def loop_of(call: Call) -> Loop:
    """Return the cycles of a call whose operator is in `LOOPS`; a small call runs on one core.

    Pools and the like divide their images among the cores, whatever their size.
    """
    op = counted_as(call.op)
    cycles = LOOPS[op](call)
    if op in _ON_ONE_CORE:
        return Loop(serial_cycles=cycles)
    if op in _WRITES_AT_INDICES:
        # torch has no atomic addition of 16-bit elements.
        is_shared = np.asarray(call.inputs[-1].numel > GRAIN_NUMEL) & (call.inputs[0].dtype == "float32")
        additions = call.inputs[-1].numel * bool(call.attributes.get("accumulate"))
        return Loop(serial_cycles=cycles * ~is_shared, shared_additions=additions * is_shared)
    if op in _SHARES_IMAGES:
        return Loop(shared_cycles=cycles)
    is_shared = _iterated_numel(call) > GRAIN_NUMEL
    return Loop(shared_cycles=cycles * is_shared, serial_cycles=cycles * ~np.asarray(is_shared))


def _iterated_numel(call: Call) -> Number:
    """Return the number of elements that torch iterates over: of the larger of input and output, or those read."""
    if counted_as(call.op) in _READS_AT_INDICES:
        return call.outputs[0].numel
    return np.maximum(call.inputs[0].numel, call.outputs[0].numel)


def _counted_flops(call: Call) -> Number:
    """Return the FLOP that the operator's formula counts, 0 without one."""
    counted = formula_of(call.op)
    return counted.cost(call).flops if counted else 0.0


_Cycles = Callable[[Call], Number]

_ADAPTIVE_AVERAGES = aten("_adaptive_avg_pool2d adaptive_avg_pool2d _adaptive_avg_pool2d_backward")
_ADAPTIVE_POOLS = aten("_adaptive_avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d")
_SHUFFLES = aten("pixel_shuffle pixel_unshuffle")
_READS_AT_INDICES = aten("index _unsafe_index gather take take_along_dim")
_WRITES_AT_INDICES = aten("index_put _index_put_impl _unsafe_index_put")
_NEAREST = aten(
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d"
)
_NEAREST_GRADIENTS = tuple(f"{op}_backward" for op in _NEAREST)
_INPUT_CYCLES: Mapping[str, float] = {
    # From `scripts/nets/operators.py` on a Granite Rapids, but for the loss and other operators of the case.
    **dict.fromkeys(aten("var std var_mean std_mean"), 20.0),  # Welford's update, with a division
    # Middles of that and of a Zen 4: 12, 27 and 85; 2 to 6, 13 and 64 to 72.
    **dict.fromkeys(_NEAREST_GRADIENTS, 6.0),
    **dict.fromkeys(aten("upsample_linear1d_backward upsample_bilinear2d_backward"), 18.0),
    "aten.upsample_trilinear3d_backward": 36.0,  # twice the taps
    "aten.upsample_bicubic2d_backward": 75.0,
    # On the Emerald Rapids.
    **dict.fromkeys(aten("median nanmedian kthvalue"), 47.0),
    **dict.fromkeys(aten("adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d"), 4.0),
    "aten.grid_sampler_2d_backward": 53.0,
    "aten.col2im": 6.0,
    # On a Zen 4. Masks take 2 if a row is all of one value, 5 to 9 if it is random.
    **dict.fromkeys(aten("any all"), 4.0),
    "aten.count_nonzero": 3.0,
    **dict.fromkeys(aten("logcumsumexp _logcumsumexp"), 95.0),
}
"""For each element of the first input."""
_SCALAR_FUNCTIONS: Mapping[str, float] = {
    "aten.trunc": 13.0,
    "aten.sinc": 32.0,
    "aten.special_xlog1py": 42.0,
    "aten.acosh": 56.0,
    "aten.asinh": 79.0,
}
"""Functions without SIMD, of a million random numbers on a Zen 4. The same 16,384 time and again, for which it learns
to predict the branches, take a third to all of that. Compiled code has SIMD for them."""
_OUTPUT_CYCLES: Mapping[str, float] = {
    # From `scripts/nets/operators.py` on a Granite Rapids.
    "aten.upsample_bicubic2d": 27.0,  # on a Zen 4 27 in fp32 and 35 in bf16
    **dict.fromkeys(aten("where masked_fill"), 15.0),  # masked_fill on the Emerald Rapids: 16
    # On the Emerald Rapids.
    **dict.fromkeys(_READS_AT_INDICES, 4.0),  # 2 in rows, 7 in columns
    **dict.fromkeys(_SHUFFLES, 7.0),
    "aten.im2col": 4.7,
    # Numbers of the CPU's generator, which is one for all threads (ATen's CPUGeneratorImpl).
    **dict.fromkeys(aten("bernoulli bernoulli_ native_dropout"), 20.0),
    **dict.fromkeys(aten("rand rand_like uniform randn randn_like normal normal_functional"), 10.0),
    **dict.fromkeys(aten("randint randint_like random"), 11.0),
    "aten.exponential": 65.0,
    # On a Zen 4.
    "aten.affine_grid_generator": 17.0,
    "aten.grid_sampler_3d": 44.0,
    "aten.i0": 99.0,
    **_SCALAR_FUNCTIONS,
}
"""For each element of the output."""
_INTERPOLATED_CYCLES: Mapping[str, tuple[float, float]] = {
    # On a Zen 4, rows of 64 to 8,192: 1.6 to 2.7, 2.3 to 3.3 (bf16), 3.4 and 7, 5 and 11, 17 to 19 and 24.
    **dict.fromkeys(_NEAREST, (2.1, 2.6)),
    "aten.upsample_linear1d": (3.4, 7.0),
    "aten.upsample_bilinear2d": (5.0, 11.0),
    "aten.upsample_trilinear3d": (18.0, 24.0),
}
"""For each element of the output, in fp32 and in 16 bits."""
_LARGE_IMAGE_SIZE = 128
"""Up to this height + width of the result, torch copies 2-D images to channels-last, interpolates them with SIMD, and
copies the result back (ATen's UpSampleKernel.cpp: `_use_vectorized_kernel_cond_2d`)."""
_IMAGE_COPY_CYCLES, _HALF_IMAGE_COPY_CYCLES = 5.5, 4.0
"""For each element that is then copied: 4.1 in fp32 and 2.9 in bf16 on a Zen 4 (results of 14 x 14 to 56 x 56, 32 to
128 channels), 6.9 to 8 in fp32 on the Granite Rapids (56 x 56, 64 channels)."""
_SAMPLED_CYCLES: Mapping[int, tuple[float, float]] = {0: (7.0, 19.0), 1: (2.4, 2.5), 2: (40.0, 140.0)}
"""For each element that `grid_sample` returns, by torch's `interpolation_mode`, in fp32 and in 16 bits: on a Zen 4 5 to
10 and 19 bilinear, 2 to 3 of the nearest, 29 to 53 and 140 bicubic."""
_ANTIALIASED_TAPS: Mapping[str, float] = {
    "aten._upsample_bilinear2d_aa": 2.0,
    "aten._upsample_bicubic2d_aa": 4.0,
    "aten._upsample_lanczos2d_aa": 6.0,
}
"""Taps along one dimension, where the result is not smaller."""
_ANTIALIASED_CYCLES, _TAP_CYCLES = 3.0, 1.2
"""For each element of the images that are resized along one dimension after the other, and each of its taps: within
10 % of what a Zen 4 takes in fp32 for bilinear and bicubic images of a quarter, half and twice their size."""
TRANSPOSED_CYCLES: Mapping[float, float] = {2.0: 3.0, 4.0: 3.5}
"""For each element of a result whose operands are `STRIDED` and transposed to each other, keyed by its bytes. In a
cache, copies take a Zen 4 2 to 3 in fp32 and 1 to 2.3 in bf16, 6 to 10 where rows are apart by a power of two, and
additions 2.4 to 4 and 4 to 4.5; from memory 3.2 to 4.3, 1.9 to 3.2, 4 to 5 and 4 to 5. A Granite Rapids takes
`STRIDED_COPY_CYCLES`."""
_WINDOW_CYCLES: Mapping[str, tuple[float, float]] = {
    # Zen 4 at 3.45 GHz and Emerald Rapids, windows of 1 x 2 to 5 x 5: 20 + 7 and 36 + 8.5 cycles, one thread, fp32.
    **dict.fromkeys(aten("max_pool2d max_pool2d_with_indices"), (28.0, 7.5)),
    # Zen 4: 18 + 1.4 in fp32 and 20 + 2.2 in bf16; gradients 18 + 1.3 and 25 + 4.5.
    "aten.avg_pool2d": (18.0, 2.0),
    "aten.avg_pool2d_backward": (20.0, 2.5),
    "aten.max_pool2d_with_indices_backward": (16.0, 0.0),
    # Zen 4, windows of 2 x 2 x 2 and 3 x 3 x 3: maximum 38 to 92 and 173 to 204, average 30 and 59, its gradient 40 to
    # 49 and 73 to 84 cycles. Emerald Rapids, 2 x 2 x 2: 112, 32 and 44, and 12 for each gradient of a maximum.
    **dict.fromkeys(aten("max_pool3d max_pool3d_with_indices"), (10.0, 8.0)),
    "aten.max_pool3d_with_indices_backward": (12.0, 0.0),
    "aten.avg_pool3d": (20.0, 1.4),
    "aten.avg_pool3d_backward": (33.0, 1.8),
}
"""For each window of a pool, or each gradient, and for each element of the window."""
_WITHOUT_INDICES_CYCLES, _HALF_WITHOUT_INDICES_CYCLES = 1.2, 4.5
"""For each element of a window without indices, in fp32 and in 16 bits: 0.3 to 1 in rows of 256 and more, 0.8 to 2.5 in
rows of 32, and 3.3 to 4.9 on a Zen 4 (windows of 2 to 8); 1 to 2 and 4 to 6 were measured before."""
_COMPARISON_CYCLES: Mapping[str, float] = {
    **dict.fromkeys(aten("sort argsort"), 13.5),
    **dict.fromkeys(aten("searchsorted bucketize isin"), 22.0),  # mispredicted branches
}
"""For each comparison, which the formulas count."""
_ON_ONE_CORE = frozenset(
    aten(
        "col2im bernoulli bernoulli_ native_dropout rand rand_like uniform randn randn_like normal "
        "normal_functional randint randint_like random exponential nll_loss2d_forward cummax cummin"
    )
)
"""Operators that torch runs on one thread."""
SORTED_CYCLES = _COMPARISON_CYCLES["aten.sort"]
_SCALAR_FUNCTION_CYCLES = 48.0
_SCALAR_GRADIENT_CYCLES = 22.0
"""An element of a softmax, and of its gradient, in rows shorter than a register, where torch calls the scalar
exponential: a row of 8 takes 460 cycles in fp32, one of 16 takes 56."""
_REGISTER_NUMEL = 16
"""Elements of fp32 in a register of AVX-512."""
_SCANNED_CYCLES = 6.0
_HEAP_LEVEL_CYCLES = 26.0
"""Selecting the largest k of n with a heap, per element and per level of the heap at each insertion: 7, 9 and 20 cycles
an element for 1, 8 and 64 of 4,096, and 25 for 500 of 32,768."""
_PARTITIONED_CYCLES = 30.0
"""An element of a partition around the k-th: 29 to 32 in rows of 64 to 32,768."""
_LEAST_PER_SELECTED = 64.0
"""torch uses a heap if a row has at least this many elements for each selected one (ATen's TopKImpl.h)."""
_EXTREME_CYCLES, _EXTREME_ROW_CYCLES = 4.0, 100.0
"""A maximum that also returns its index, per element and per row: 3.5 cycles an element in rows of 512, 8 to 14 in rows
of 16."""
_ARGMAX_CYCLES, _ARGMAX_ROW_CYCLES = 6.0, 110.0
_STRIDED_ARGMAX_ROW_CYCLES = 800.0
"""The index alone. Along another dimension than the last, such as the classes of pixels, a row takes 420 to 640 cycles
with one thread and 1,020 to 1,150 with two."""
_WINDOW_ELEMENT_CYCLES = 1.6
_ADAPTIVE_WINDOW_CYCLES = 28.0
"""An adaptive average pool, per element and per window: a window of 2 x 2 takes 34 cycles and one of 8 x 8 100 to 136,
forward and backward."""
_NORMED_CYCLES, _NORM_ROW_CYCLES = 3.0, 340.0
"""A vector norm along another dimension than the last, such as channels: 8.3 cycles an element of 64 in a row, 4.2 of
256 and 3.1 of 4,096 (Zen 4); 7 to 24 where rows are apart by a large power of two. Along the last it takes SIMD."""
_SCAN_CYCLES, _STRIDED_SCAN_CYCLES = 1.5, 10.0
"""An element of a cumulative sum or product along the last dimension, beside its bytes, and along another. Along the
last it takes a Zen 4 2.2 to 3.9 with them, and a Granite Rapids at most 1.7."""
_EXTREME_SCAN_CYCLES, _EXTREME_SCAN_ROW_CYCLES = 3.3, 250.0
"""A cumulative maximum, per element and per row of the last dimension: 7.5 cycles an element in rows of 64, 4.0 in rows
of 256 and 3.6 in rows of 2,048 (Zen 4). Along another dimension, which the trace does not tell, 8 to 33."""
_STACKED_CYCLES = 5.0
"""An element of tensors that are stacked along a new last dimension: 5.3 in fp32 and 4.7 in bf16 (Zen 4)."""
ADDED_CYCLES = 5.0
"""An element that a single thread adds at an index."""
_PICKED_CYCLES = 13.0
_PICKED_GRADIENT_CYCLES = 30.0
"""A pixel of `nll_loss2d`, and of its gradient."""


def _interpolation(call: Call) -> Number:
    source, result = call.inputs[0], call.outputs[0]
    is_half = source.itemsize_bytes < ITEMSIZE_BYTES["float32"]
    cycles = _INTERPOLATED_CYCLES[counted_as(call.op)][is_half] * result.numel
    if len(result.shape) != _IMAGE_DIMS:
        return cycles
    copied = (_HALF_IMAGE_COPY_CYCLES if is_half else _IMAGE_COPY_CYCLES) * (source.numel + result.numel)
    return np.where(result.shape[-2] + result.shape[-1] <= _LARGE_IMAGE_SIZE, copied, cycles)


def _antialiased(call: Call) -> Number:
    """Return what it takes to resize the width, then the height (`separable_upsample_generic_Nd_kernel_impl`)."""
    source, result = call.inputs[0], call.outputs[0]
    cycles: Number = 0.0
    numel = source.numel
    for dim in (-1, -2):
        ratio = result.shape[dim] / source.shape[dim]
        numel = numel * ratio
        taps = _ANTIALIASED_TAPS[call.op] * np.maximum(1 / ratio, 1.0)
        cycles = cycles + numel * (_ANTIALIASED_CYCLES + _TAP_CYCLES * taps)
    return cycles


def _grid_sample(call: Call) -> Number:
    is_half = call.inputs[0].itemsize_bytes < ITEMSIZE_BYTES["float32"]
    return _SAMPLED_CYCLES[call.attributes["interpolation_mode"]][is_half] * call.outputs[0].numel


def _indexed_writes(call: Call) -> Number:
    """Return 0 unless the call accumulates: then an index may occur twice, and each addition is a step of its own."""
    return ADDED_CYCLES * call.inputs[-1].numel * bool(call.attributes.get("accumulate"))


def _selection(call: Call) -> Number:
    """Return what the largest k of n elements cost in the rows of the last dimension.

    A heap takes in k (1 + ln(n / k)) elements on average; with more of the largest, torch partitions and sorts them.
    """
    numel, n = call.inputs[0].numel, call.inputs[0].shape[-1] if call.inputs[0].shape else 1.0
    k = np.maximum(call.outputs[0].shape[-1], 1.0) if call.outputs[0].shape else 1.0
    replaced = k * (1 + np.log(np.maximum(n / k, 1.0)))
    by_heap = _SCANNED_CYCLES * n + _HEAP_LEVEL_CYCLES * replaced * np.log2(2 * k)
    by_partition = _PARTITIONED_CYCLES * n + SORTED_CYCLES * k * np.log2(k)
    return numel / np.maximum(n, 1.0) * np.where(n >= _LEAST_PER_SELECTED * k, by_heap, by_partition)


def _is_of_last(call: Call) -> bool:
    """Return whether a reduction is along the last dimensions, kept or not."""
    kept = list(call.outputs[0].shape)
    while kept and is_one(kept[-1]):
        kept.pop()
    return all(map(np.array_equal, kept, call.inputs[0].shape))


def _argmax(call: Call) -> Number:
    row_cycles = _ARGMAX_ROW_CYCLES if _is_of_last(call) else _STRIDED_ARGMAX_ROW_CYCLES
    return _ARGMAX_CYCLES * call.inputs[0].numel + row_cycles * call.outputs[0].numel


def _vector_norm(call: Call) -> Number:
    if _is_of_last(call):
        return 0.0
    return _NORMED_CYCLES * call.inputs[0].numel + _NORM_ROW_CYCLES * call.outputs[0].numel


def _extreme(call: Call) -> Number:
    """Return 0 for a maximum without its index, which takes SIMD."""
    if len(call.outputs) == 1:
        return 0.0
    return _EXTREME_CYCLES * call.inputs[0].numel + _EXTREME_ROW_CYCLES * call.outputs[0].numel


def _adaptive_average(call: Call) -> Number:
    large, small = sorted((call.inputs[0], call.outputs[0]), key=lambda one: -np.max(one.numel))
    return _WINDOW_ELEMENT_CYCLES * large.numel + _ADAPTIVE_WINDOW_CYCLES * small.numel


def _softmax(call: Call, *, cycles: float) -> Number:
    result = call.outputs[0]
    is_last = call.attributes.get("dim", -1) in (-1, len(result.shape) - 1)
    if not is_last or not result.shape:
        return 0.0
    return cycles * result.numel * (np.asarray(result.shape[-1]) < _REGISTER_NUMEL)


def _scan(call: Call) -> Number:
    shape = call.inputs[0].shape
    is_last = call.attributes.get("dim", -1) in (-1, len(shape) - 1)
    return (_SCAN_CYCLES if is_last else _STRIDED_SCAN_CYCLES) * call.inputs[0].numel


def _extreme_scan(call: Call) -> Number:
    source = call.inputs[0]
    rows = source.numel / np.maximum(source.shape[-1], 1.0) if source.shape else 1.0
    return _EXTREME_SCAN_CYCLES * source.numel + _EXTREME_SCAN_ROW_CYCLES * rows


def _stack(call: Call) -> Number:
    source, result = call.inputs[0], call.outputs[0]
    is_last = all(map(np.array_equal, result.shape, (*source.shape, len(call.inputs))))
    return _STACKED_CYCLES * result.numel * is_last


def _per_input(cycles: float) -> _Cycles:
    return lambda call: cycles * call.inputs[0].numel


def _per_output(cycles: float) -> _Cycles:
    return lambda call: cycles * call.outputs[0].numel


def _per_window(cycles: float, element_cycles: float) -> _Cycles:
    """Return cycles by window and by element. A window gives an element of the result, a gradient's first input."""

    def of_windows(call: Call) -> Number:
        if WITHOUT_INDICES in call.attributes:
            is_half = call.inputs[0].itemsize_bytes < ITEMSIZE_BYTES["float32"]
            return (_HALF_WITHOUT_INDICES_CYCLES if is_half else _WITHOUT_INDICES_CYCLES) * _counted_flops(call)
        windows = (call.inputs if call.op.endswith("backward") else call.outputs)[0]
        return cycles * windows.numel + element_cycles * _counted_flops(call)

    return of_windows


def _per_flop(cycles: float) -> _Cycles:
    return lambda call: cycles * _counted_flops(call)


LOOPS: Mapping[str, _Cycles] = {
    **{op: _per_input(cycles) for op, cycles in _INPUT_CYCLES.items()},
    **{op: _per_output(cycles) for op, cycles in _OUTPUT_CYCLES.items()},
    **dict.fromkeys(_INTERPOLATED_CYCLES, _interpolation),
    **{op: _per_window(cycles, element_cycles) for op, (cycles, element_cycles) in _WINDOW_CYCLES.items()},
    **{op: _per_flop(cycles) for op, cycles in _COMPARISON_CYCLES.items()},
    **dict.fromkeys(_WRITES_AT_INDICES, _indexed_writes),
    "aten.topk": _selection,
    **dict.fromkeys(aten("max min"), _extreme),
    **dict.fromkeys(aten("argmax argmin"), _argmax),
    **dict.fromkeys(_ADAPTIVE_AVERAGES, _adaptive_average),
    **dict.fromkeys(
        aten("_softmax _log_softmax softmax log_softmax"), partial(_softmax, cycles=_SCALAR_FUNCTION_CYCLES)
    ),
    **dict.fromkeys(
        aten("_softmax_backward_data _log_softmax_backward_data"), partial(_softmax, cycles=_SCALAR_GRADIENT_CYCLES)
    ),
    **dict.fromkeys(aten("cumsum cumprod"), _scan),
    **dict.fromkeys(aten("cummax cummin"), _extreme_scan),
    **dict.fromkeys(aten("norm linalg_vector_norm"), _vector_norm),
    **dict.fromkeys(_ANTIALIASED_TAPS, _antialiased),
    "aten.grid_sampler_2d": _grid_sample,
    "aten.stack": _stack,
    "aten.nll_loss2d_forward": lambda call: _PICKED_CYCLES * call.inputs[1].numel,
    "aten.nll_loss2d_backward": lambda call: _PICKED_GRADIENT_CYCLES * call.inputs[2].numel,
}
"""Returns the cycles of a call, by operator."""
_SHARES_IMAGES = frozenset({*_WINDOW_CYCLES, *_ADAPTIVE_AVERAGES, *_SHUFFLES})
INTERPOLATIONS = frozenset(op for op in LOOPS if "upsample" in op or "grid_sampler" in op)
VECTORS_NHWC = _SHARES_IMAGES | {
    op
    for op in (
        *_INTERPOLATED_CYCLES,
        *_NEAREST_GRADIENTS,
        *aten("upsample_bilinear2d_backward upsample_trilinear3d_backward"),
    )
    if "1d" not in op
}
"""Operators that take SIMD if images are channels-last."""
_VECTORS_COMPILED = frozenset(
    {
        *_WINDOW_CYCLES,
        *_SHUFFLES,
        *_WRITES_AT_INDICES,
        *(op for op in _INTERPOLATED_CYCLES if "1d" not in op),
        *_SCALAR_FUNCTIONS,
        *aten("where masked_fill var std var_mean std_mean im2col nll_loss2d_forward nll_loss2d_backward"),
        *aten("norm linalg_vector_norm count_nonzero stack"),
        *aten("_softmax _log_softmax softmax log_softmax _softmax_backward_data _log_softmax_backward_data"),
    }
)
"""Operators that take 0.02 to 0.5 of their eager time in the code that torch.compile generates; interpolations take 1.2
to 1.6 of that of channels-last images, as compiled ones are. Others that it generates take as long as in eager mode or
longer: reads at indices 0.7 to 1.0, maxima with their index 0.6 to 0.7, dropout 1.5 (one core of a Zen 4, torch
2.13)."""


def has_vectors_compiled(call: Call) -> bool:
    """Return whether the code that torch.compile generates for the call takes SIMD.

    An adaptive pool does if its windows have one size (0.2 of the eager time); others are left to torch.
    """
    op = counted_as(call.op)
    if op not in _ADAPTIVE_POOLS:
        return op in _VECTORS_COMPILED
    lengths = zip(call.inputs[0].shape[-2:], call.outputs[0].shape[-2:], strict=True)
    return all(fixed(source) % fixed(result) == 0 for source, result in lengths)
