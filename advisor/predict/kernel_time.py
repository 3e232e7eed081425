"""What kernels do and what devices sustain in, the seconds of one call of each out.

Everything broadcasts: kernels (kernels, batches) against devices (devices, 1, 1), or flat arrays of one kernel on one
device each, as a fit has them.
"""

from dataclasses import dataclass

import numpy as np

from advisor.predict.lowering import Kernels
from advisor.records.prediction import BoolArray, FloatArray

LOAD_S = 2.6e-7
"""What a thread of a GPU that has few of them waits for what it loads. EfficientFormer's second version, four nets that
wait for 2 to 6 million loads in turn, tells 236 to 239 ns on an RTX 4090 and 277 to 283 ns on an RTX 3090."""
NHWC_COPY_RATIO = 2.0
"""A copy of halves that transposes takes as long as two that do not: 14 nets with group norms, channels-last on an RTX
3090. That of floats for layer norms in NCHW takes as long as others: XCiT and ConvNeXt on two GPUs."""
NEAR_CACHE_SPEEDUP = 2.0
"""Of what a CPU's cores hold in caches of their own, beside what `Device.cache_bytes_per_s` takes for both."""
_SMALL_PIECE_COST = 1.2
"""A product cut into smaller pieces fills the last wave better and computes this much slower."""
_SPLIT_DEPTH = 512.0
"""Pieces are tiles of a quarter of the size, or one that deep of a tile (cuBLAS: split-K)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rates:
    """What a device sustains for a kernel: `Efficiency` and `Device` as arrays that broadcast against the kernels.

    `flops_per_s` and `memory_bytes_per_s` are sustained by the kernel's family, `narrow_bytes_per_s` is that of the
    parameters of narrow products. `core_bytes_per_s` is what a core of `REFERENCE_RESIDENT_THREADS` moves at most,
    `full_core_count` what all cores are worth of such, and `lone_block_ratio` what one with a single block of threads
    is. `direct_flops_per_s` is what direct kernels reach, without end on CPUs; `reread_ratio` is the share of
    `Kernels.reread_bytes` that are read again. `is_nchw`: whether the step's images come so, not
    channels-last. The rest is named as there.
    """

    is_nchw: BoolArray
    flops_per_s: FloatArray
    memory_bytes_per_s: FloatArray
    narrow_bytes_per_s: FloatArray
    cache_bytes: FloatArray
    cache_bytes_per_s: FloatArray
    near_cache_bytes: FloatArray
    core_count: FloatArray
    full_core_count: FloatArray
    lone_block_ratio: FloatArray
    core_bytes_per_s: FloatArray
    launch_s: FloatArray
    join_s: FloatArray
    library_s: FloatArray
    overlap_ratio: FloatArray
    edge_ramp: FloatArray
    depth_ramp: FloatArray
    tile_rows: FloatArray
    tile_columns: FloatArray
    wave_ratio: FloatArray
    winograd_speedup: FloatArray
    direct_flops_per_s: FloatArray
    reread_ratio: FloatArray
    transposed_ratio: FloatArray
    bias_pass_ratio: FloatArray
    repack_ratio: FloatArray
    cast_ratio: FloatArray
    cache_kept_ratio: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelTimes:
    """Seconds of one call: of its FLOP, of its bytes, of its launches, and of all together."""

    compute_s: FloatArray
    memory_s: FloatArray
    launch_s: FloatArray
    total_s: FloatArray


def kernel_times(kernels: Kernels, rates: Rates) -> KernelTimes:
    """The roofline of every kernel, compute and memory overlapping in part, and its launches before it."""
    flop_ratio = np.where(rates.is_nchw, kernels.nchw_flop_ratio, kernels.nhwc_flop_ratio)
    compute_s = kernels.flops * flop_ratio / (rates.flops_per_s * utilisation(kernels, rates))
    compute_s = np.where(kernels.can_winograd[..., np.newaxis], compute_s / rates.winograd_speedup, compute_s)
    if kernels.nchw_direct_flops.any() or kernels.nhwc_direct_flops.any():
        direct_flops = np.where(rates.is_nchw, kernels.nchw_direct_flops, kernels.nhwc_direct_flops)
        compute_s = np.maximum(compute_s, direct_flops / rates.direct_flops_per_s)
    memory_s = np.maximum(_memory_s(kernels, rates), kernels.loads_in_turn * rates.is_nchw * LOAD_S)
    if np.isfinite(rates.core_bytes_per_s).any():
        memory_s = np.maximum(memory_s, _threads_s(kernels, rates))
    launch_s = kernels.launches * rates.launch_s
    if rates.join_s.any() or rates.library_s.any():  # of CPUs
        launch_s = launch_s + kernels.joins * rates.join_s + kernels.library_calls * rates.library_s
    busy_s = smooth_maximum(compute_s, memory_s, overlap=rates.overlap_ratio)
    return KernelTimes(compute_s=compute_s, memory_s=memory_s, launch_s=launch_s, total_s=busy_s + launch_s)


def utilisation(kernels: Kernels, rates: Rates) -> FloatArray:
    """The share of its rate that a product reaches: less where it is narrow or shallow, or leaves cores without a tile.

    A wave is one tile for every core; in the last one some have none (Yu et al., NeuSight, 2025, use the same terms).
    Narrowness and idle cores are one loss seen twice: the larger counts, so a larger product is never faster.
    """
    edges = (1 + rates.edge_ramp / kernels.m) * (1 + rates.edge_ramp / kernels.n)
    depth = 1 + rates.depth_ramp / kernels.k
    rows, columns = np.maximum(kernels.m / rates.tile_rows, 1.0), np.maximum(kernels.n / rates.tile_columns, 1.0)
    tiles = kernels.groups * rows * columns
    waves = tiles / rates.core_count
    pieces = waves * np.clip(kernels.k / _SPLIT_DEPTH, 4.0, 32.0)
    idle = np.minimum(np.ceil(waves) / waves, _SMALL_PIECE_COST * np.ceil(pieces) / pieces)
    result: FloatArray = 1 / (depth * np.maximum(edges, np.maximum(idle, 1.0) ** rates.wave_ratio))
    return result


def _memory_s(kernels: Kernels, rates: Rates) -> FloatArray:
    """Bytes come from the last cache where what the operator before wrote, or the step before read, is still there.

    An operator finds in the cache the share of its data that fits, and its parameters the share of all parameters.
    A product of no more than one tile of rows reads its parameters once, as a long copy does.
    """
    kept_bytes = rates.cache_kept_ratio * rates.cache_bytes
    data_bytes = read_and_written_bytes(kernels, rates)
    kept_data = np.minimum(1.0, kept_bytes / np.maximum(data_bytes, 1.0))
    kept_weights = np.minimum(1.0, kept_bytes / np.maximum(kernels.parameter_bytes, 1.0))
    cached_bytes = kept_data * data_bytes + kept_weights * kernels.weight_bytes
    moved_bytes = (1 - kept_data) * data_bytes + added_bytes(kernels, rates)
    once = np.maximum(rates.narrow_bytes_per_s, rates.memory_bytes_per_s)
    weight_bytes_per_s = np.where(kernels.m <= rates.tile_rows, once, rates.memory_bytes_per_s)
    weights_s = (1 - kept_weights) * kernels.weight_bytes / weight_bytes_per_s
    result: FloatArray = moved_bytes / rates.memory_bytes_per_s + weights_s + cached_bytes / rates.cache_bytes_per_s
    if kernels.revisited_bytes.any():
        result = result + _revisited_s(kernels, rates)
    return result


def _revisited_s(kernels: Kernels, rates: Rates) -> FloatArray:
    """What is read over and over comes from the nearest cache that holds the set of it."""
    from_memory_bytes = revisited_from_memory_bytes(kernels, rates)
    is_near = np.minimum(1.0, rates.near_cache_bytes / np.maximum(kernels.revisited_set_bytes, 1.0))
    near_bytes = np.minimum(is_near * kernels.revisited_bytes, kernels.revisited_bytes - from_memory_bytes)
    far_bytes = kernels.revisited_bytes - from_memory_bytes - near_bytes
    cached_s = (far_bytes + near_bytes / NEAR_CACHE_SPEEDUP) / rates.cache_bytes_per_s
    result: FloatArray = from_memory_bytes / rates.memory_bytes_per_s + cached_s
    return result


def revisited_from_memory_bytes(kernels: Kernels, rates: Rates) -> FloatArray:
    """Of what a kernel reads over and over, what the last cache does not hold: all of it is the kernel's meanwhile."""
    in_cache = np.minimum(1.0, rates.cache_bytes / np.maximum(kernels.revisited_set_bytes, 1.0))
    result: FloatArray = (1 - in_cache) * kernels.revisited_bytes
    return result


def read_and_written_bytes(kernels: Kernels, rates: Rates) -> FloatArray:
    """What operators hand to each other, as often as they read it."""
    if (rates.reread_ratio == 1.0).all():
        return kernels.data_bytes
    result: FloatArray = kernels.data_bytes - (1 - rates.reread_ratio) * kernels.reread_bytes
    return result


def added_bytes(kernels: Kernels, rates: Rates) -> FloatArray:
    """What the device's own kernels move beside an operator's operands: casts, images and weights laid out anew, biases
    added by a pass of their own."""
    total = rates.cast_ratio * kernels.cast_bytes
    total = total + 2 * np.where(rates.is_nchw, kernels.nchw_copied_bytes, NHWC_COPY_RATIO * kernels.nhwc_copied_bytes)
    total = total + 2 * rates.transposed_ratio * kernels.transposed_bytes
    total = total + 2 * rates.bias_pass_ratio * kernels.biased_bytes
    result: FloatArray = total + 2 * rates.repack_ratio * kernels.repacked_bytes
    return result


def _threads_s(kernels: Kernels, rates: Rates) -> FloatArray:
    """How long the threads take for their bytes, where each loads a scalar and waits for it before it goes on.

    A core has as much under way as it holds threads, so it moves that over the memory's latency, whatever the bandwidth
    (Little's law; Volkov, Understanding Latency Hiding on GPUs, 2016). Where it has a single block of them, less is
    asked of memory and all is answered by the cache, whose latency is in clocks; without one it has nothing to do.
    """
    busy_cores = np.minimum(kernels.blocks * rates.lone_block_ratio, rates.full_core_count)
    seconds: FloatArray = kernels.data_bytes / (rates.core_bytes_per_s * busy_cores)
    return seconds


def smooth_maximum(compute_s: FloatArray, memory_s: FloatArray, *, overlap: FloatArray | float) -> FloatArray:
    """The larger of the two where `overlap` is 1, their sum where it is 0, between them otherwise.

    (c + m + sqrt((c - m)^2 + 4 (1 - overlap)^2 c m)) / 2: a hyperbola with both times as asymptotes, which grows with
    either. Where both are equal a share of (1 - overlap) of the second shows.
    """
    cross = 4 * (1 - overlap) ** 2 - 2
    root = np.sqrt(np.maximum(compute_s**2 + memory_s**2 + cross * compute_s * memory_s, 0.0))
    return (compute_s + memory_s + root) / 2
