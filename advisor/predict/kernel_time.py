"""Computes the time of one call of each kernel: a roofline with tiles, waves, occupancy, caches and launch overhead.

All arrays broadcast: a prediction passes kernels (kernels, batches) and devices (devices, 1, 1); a fit passes flat
arrays with one kernel on one device per element.
"""

from dataclasses import dataclass

import numpy as np

from advisor.predict.lowering import Kernels
from advisor.records.prediction import BoolArray, FloatArray

LOAD_S = 2.6e-7
"""Latency of a dependent load on a GPU at low occupancy. Inferred from EfficientFormerV2: its four nets make 2 to 6
million loads in sequence, which gives 236 to 239 ns on an RTX 4090 and 277 to 283 ns on an RTX 3090."""
NHWC_COPY_RATIO = 2.0
"""Time of a transposing 16-bit copy relative to a plain copy: measured on 14 nets with group norms, channels-last, on
an RTX 3090. The fp32 copies for layer norms in NCHW take as long as plain copies (XCiT and ConvNeXt on two GPUs)."""
NEAR_CACHE_SPEEDUP = 2.0
"""Bandwidth of a CPU core's own caches relative to `Device.cache_bytes_per_s`, which covers both cache levels."""
_SMALL_PIECE_COST = 1.2
"""Slowdown of a matmul that is cut into smaller pieces, which reduce its wave quantization."""
_SPLIT_DEPTH = 512.0
"""Depth of a split-K slice (cuBLAS). A piece is either such a slice or a tile of a quarter of the size."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rates:
    """The rates that a device sustains for a kernel, as arrays that broadcast against the kernels.

    A field without a description means the same as the field of that name in `Efficiency` or `Device`.
    A core is an SM of a GPU or a core of a CPU.
    """

    is_nchw: BoolArray
    """True if the step's images are in NCHW, False if they are channels-last."""
    flops_per_s: FloatArray
    """Sustained compute throughput of the kernel's family."""
    memory_bytes_per_s: FloatArray
    """Sustained memory bandwidth of the kernel's family."""
    narrow_bytes_per_s: FloatArray
    """Bandwidth at which matmuls of at most one tile of rows read their parameters."""
    cache_bytes: FloatArray
    cache_bytes_per_s: FloatArray
    near_cache_bytes: FloatArray
    core_count: FloatArray
    full_core_count: FloatArray
    """The core count, converted to cores that hold `REFERENCE_RESIDENT_THREADS` each."""
    lone_block_ratio: FloatArray
    """Throughput of a core that runs a single block of threads, relative to a full core."""
    core_bytes_per_s: FloatArray
    """The most that a core with `REFERENCE_RESIDENT_THREADS` threads moves; infinite if nothing limits it."""
    launch_s: FloatArray
    """Launch overhead of one kernel."""
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
    """Throughput of direct convolution kernels; infinite on CPUs."""
    reread_ratio: FloatArray
    """Share of `Kernels.reread_bytes` that is read a second time."""
    transposed_ratio: FloatArray
    bias_pass_ratio: FloatArray
    repack_ratio: FloatArray
    cast_ratio: FloatArray
    cache_kept_ratio: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelTimes:
    """Seconds of one call: compute time, memory time, launch overhead and the total."""

    compute_s: FloatArray
    memory_s: FloatArray
    launch_s: FloatArray
    total_s: FloatArray


def kernel_times(kernels: Kernels, rates: Rates) -> KernelTimes:
    """Return the time of every kernel: a roofline in which compute and memory overlap in part, plus launch overhead."""
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
    if rates.join_s.any() or rates.library_s.any():  # only CPUs have these
        launch_s = launch_s + kernels.joins * rates.join_s + kernels.library_calls * rates.library_s
    busy_s = smooth_maximum(compute_s, memory_s, overlap=rates.overlap_ratio)
    return KernelTimes(compute_s=compute_s, memory_s=memory_s, launch_s=launch_s, total_s=busy_s + launch_s)


def utilisation(kernels: Kernels, rates: Rates) -> FloatArray:
    """Return the share of its throughput that a matmul reaches: less if it is narrow or shallow, or leaves cores idle.

    A wave is one tile on every core; the last wave is usually incomplete (wave quantization; Yu et al., NeuSight,
    2025, use the same terms). A narrow matmul and an incomplete wave are the same loss seen twice, so only the larger
    counts; this way a larger matmul is never faster.
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
    """Return the time to move a kernel's bytes, from the last-level cache as far as they are still in it.

    The cache holds the share of the operator's data that fits, and the share of all parameters that fits. A matmul of
    at most one tile of rows streams its parameters once, like a long copy.
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
    """Return the time of repeated reads, each served by the nearest cache that holds their working set."""
    from_memory_bytes = revisited_from_memory_bytes(kernels, rates)
    is_near = np.minimum(1.0, rates.near_cache_bytes / np.maximum(kernels.revisited_set_bytes, 1.0))
    near_bytes = np.minimum(is_near * kernels.revisited_bytes, kernels.revisited_bytes - from_memory_bytes)
    far_bytes = kernels.revisited_bytes - from_memory_bytes - near_bytes
    cached_s = (far_bytes + near_bytes / NEAR_CACHE_SPEEDUP) / rates.cache_bytes_per_s
    result: FloatArray = from_memory_bytes / rates.memory_bytes_per_s + cached_s
    return result


def revisited_from_memory_bytes(kernels: Kernels, rates: Rates) -> FloatArray:
    """Return the repeatedly read bytes that miss the last-level cache, all of which the kernel has to itself."""
    in_cache = np.minimum(1.0, rates.cache_bytes / np.maximum(kernels.revisited_set_bytes, 1.0))
    result: FloatArray = (1 - in_cache) * kernels.revisited_bytes
    return result


def read_and_written_bytes(kernels: Kernels, rates: Rates) -> FloatArray:
    """Return the bytes of activations that a kernel reads and writes, second reads included."""
    if (rates.reread_ratio == 1.0).all():
        return kernels.data_bytes
    result: FloatArray = kernels.data_bytes - (1 - rates.reread_ratio) * kernels.reread_bytes
    return result


def added_bytes(kernels: Kernels, rates: Rates) -> FloatArray:
    """Return the bytes moved beyond an operator's operands: casts, layout copies of images and weights, bias passes."""
    total = rates.cast_ratio * kernels.cast_bytes
    total = total + 2 * np.where(rates.is_nchw, kernels.nchw_copied_bytes, NHWC_COPY_RATIO * kernels.nhwc_copied_bytes)
    total = total + 2 * rates.transposed_ratio * kernels.transposed_bytes
    total = total + 2 * rates.bias_pass_ratio * kernels.biased_bytes
    result: FloatArray = total + 2 * rates.repack_ratio * kernels.repacked_bytes
    return result


def _threads_s(kernels: Kernels, rates: Rates) -> FloatArray:
    """Return the memory time of a latency-bound kernel, whose threads each load a scalar and wait for it.

    An SM has one load in flight per resident thread, so its occupancy and the memory latency limit its bandwidth
    (Little's law; Volkov, Understanding Latency Hiding on GPUs, 2016). An SM with a single block loads so little that
    the cache serves it, whose latency scales with the clock. An SM without a block is idle.
    """
    busy_cores = np.minimum(kernels.blocks * rates.lone_block_ratio, rates.full_core_count)
    seconds: FloatArray = kernels.data_bytes / (rates.core_bytes_per_s * busy_cores)
    return seconds


def smooth_maximum(compute_s: FloatArray, memory_s: FloatArray, *, overlap: FloatArray | float) -> FloatArray:
    """Return the larger of the two if `overlap` is 1, their sum if it is 0, and a value between them otherwise.

    (c + m + sqrt((c - m)^2 + 4 (1 - overlap)^2 c m)) / 2: a hyperbola with both times as asymptotes, which grows with
    either. If both are equal, it adds (1 - overlap) of one to the other.
    """
    cross = 4 * (1 - overlap) ** 2 - 2
    root = np.sqrt(np.maximum(compute_s**2 + memory_s**2 + cross * compute_s * memory_s, 0.0))
    return (compute_s + memory_s + root) / 2
