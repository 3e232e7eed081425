"""Devices and their efficiencies in, the rates that a step's kernels sustain on them out."""

import math
from collections.abc import Sequence

import numpy as np

from advisor.predict.efficiency import distinct_efficiencies, family_efficiencies
from advisor.predict.kernel_time import Rates
from advisor.predict.lowering import TENSOR_UNITS, UNITS
from advisor.records.device import (
    REFERENCE_CACHE_BYTES,
    REFERENCE_CLOCK_HZ,
    REFERENCE_RESIDENT_THREADS,
    Device,
    Efficiency,
    Layout,
)
from advisor.records.prediction import FloatArray, IndexArray

OF_EFFICIENCY = (
    "overlap_ratio", "edge_ramp", "depth_ramp", "tile_rows", "tile_columns", "wave_ratio",
    "bias_pass_ratio", "repack_ratio", "cast_ratio", "cache_kept_ratio",
)  # fmt: skip
"""The fields of `Efficiency` that `Rates` takes as they are."""
NOTHING_HELD = np.array(np.inf)
"""`core_bytes_per_s` where no family has any: for all kernels at once."""
_JOIN_EXPONENT = 0.7
"""Between a barrier that all cores pass one by one (1) and one that is a tree (0): CPUs left out are off by 27 % with
either 1 or 0.7, by 31 % with a tree, and none that was measured has more than 14 cores."""
_FP32_UNITS = frozenset({"fp32", "vector"})
_CACHE_PER_MEMORY = 3.0
"""Bandwidth of a last cache that nothing is known of, over the memory's: V100 and A100 in published microbenchmarks."""


def rates_of(
    devices: Sequence[Device],
    efficiencies: Sequence[Efficiency],
    *,
    families: Sequence[str],
    family: IndexArray,
    unit: IndexArray,
    layout: Layout,
) -> Rates:
    """Rates of every device, with its own efficiency, for kernels of `families[family]` on `UNITS[unit]`.

    By kernel they are (devices, kernels, 1), else (devices, 1, 1).
    """
    is_nchw = layout == "nchw"
    distinct, which = distinct_efficiencies(efficiencies)
    entries = [family_efficiencies(efficiency, families=families) for efficiency in distinct]
    compute_ratio = np.array([[entry.compute_ratio for entry in row] for row in entries])
    memory_ratio = np.array([[entry.memory_ratio for entry in row] for row in entries])
    core_bytes_per_s = np.array([[entry.core_bytes_per_s or np.inf for entry in row] for row in entries])
    pairs = list(zip(devices, efficiencies, strict=True))
    own_launch_s = np.array(
        [[np.nan if entry.launch_s is None else entry.launch_s for entry in row] for row in entries]
    )[which]
    device_launch_s = np.array([launch_s(*pair) for pair in pairs])[:, np.newaxis]
    family_launch_s = np.where(np.isnan(own_launch_s), device_launch_s, own_launch_s)
    used, unit_column = np.unique(unit, return_inverse=True)
    units = ["vector" if not is_nchw and UNITS[index] == "scalar" else UNITS[index] for index in used]
    flops_per_s = np.array([[sustained_flops_per_s(*pair, unit=unit) for unit in units] for pair in pairs])
    bytes_per_s = _column([sustained_bytes_per_s(*pair) for pair in pairs])
    transposed = np.array([[is_nchw * transposed_ratio(*pair, unit=unit) for unit in units] for pair in pairs])
    winograd = np.array([[winograd_speedup(*pair, unit=unit) for unit in units] for pair in pairs])
    by_kernel = np.ix_(which, family)
    return Rates(
        is_nchw=np.array(is_nchw),
        flops_per_s=(flops_per_s[:, unit_column] * compute_ratio[by_kernel])[:, :, np.newaxis],
        memory_bytes_per_s=bytes_per_s * memory_ratio[by_kernel][:, :, np.newaxis],
        narrow_bytes_per_s=_column([narrow_bytes_per_s(*pair) for pair in pairs]),
        cache_bytes=_column([device.cache_bytes for device in devices]),
        cache_bytes_per_s=_column([cache_bytes_per_s(device) for device in devices]),
        core_count=_column([device.core_count for device in devices]),
        full_core_count=_column([full_core_count(device) for device in devices]),
        lone_block_ratio=_column([device.clock_hz / REFERENCE_CLOCK_HZ for device in devices]),
        core_bytes_per_s=core_bytes_per_s[by_kernel][:, :, np.newaxis]
        if np.isfinite(core_bytes_per_s).any()
        else NOTHING_HELD,
        launch_s=family_launch_s[:, family][:, :, np.newaxis],
        join_s=_column([join_s(*pair) for pair in pairs]),
        library_s=_column([library_s(*pair) for pair in pairs]),
        direct_flops_per_s=_column([direct_flops_per_s(*pair) for pair in pairs]),
        reread_ratio=_column([reread_ratio(device, is_nchw=is_nchw) for device in devices]),
        transposed_ratio=transposed[:, unit_column][:, :, np.newaxis],
        winograd_speedup=winograd[:, unit_column][:, :, np.newaxis],
        **{name: _column([getattr(efficiency, name) for efficiency in distinct])[which] for name in OF_EFFICIENCY},
    )


def full_core_count(device: Device) -> float:
    """Its cores by the threads that they hold."""
    return device.core_count * device.resident_threads_per_core / REFERENCE_RESIDENT_THREADS


def launch_s(device: Device, efficiency: Efficiency) -> float:
    """What a kernel's launch takes beside its work."""
    return efficiency.launch_s * device.host_time_ratio


def join_s(device: Device, efficiency: Efficiency) -> float:
    """What it takes to start and end the threads of all cores together."""
    joined_s = efficiency.join_s * (math.pow(max(device.core_count, 1.0), _JOIN_EXPONENT) - 1)
    return joined_s * device.host_time_ratio


def library_s(device: Device, efficiency: Efficiency) -> float:
    """What a call into a CPU's library takes beside that."""
    return efficiency.library_s * device.host_time_ratio


def sustained_flops_per_s(device: Device, efficiency: Efficiency, *, unit: str) -> float:
    """The unit's rate at the clock that power and cooling allow for long.

    A device without the unit converts its operands and multiplies them in fp32.
    """
    peaks, used = device.peak_flops_per_s, used_unit(device, unit)
    power_ratio = device.power_ratio.get("fp32" if used == "vector" else used, 1.0)
    throttled = math.pow(power_ratio, efficiency.power_exponent)
    is_full = used == "fp32" and device.issue_contention > 0  # every slot: no power is left for a higher clock
    clock_ratio = efficiency.clock_ratio if device.exceeds_rated_clock and not is_full else 1.0
    if device.has_narrow_tensor_cores and used in TENSOR_UNITS:
        clock_ratio *= efficiency.narrow_tensor_speedup
    if used == "fp32":
        clock_ratio *= math.pow(efficiency.shared_issue_ratio, device.issue_contention)
    own_ratio = efficiency.generation_compute_ratio * device.sustained_compute_ratio
    return peaks[used] * throttled * clock_ratio * own_ratio


def direct_flops_per_s(device: Device, efficiency: Efficiency) -> float:
    """What convolutions reach for whose shapes no kernel is written, outside tensor cores; CPUs have none such."""
    if device.kind == "cpu":
        return math.inf
    return sustained_flops_per_s(device, efficiency, unit="vector") * efficiency.direct_ratio


def reread_ratio(device: Device, *, is_nchw: bool) -> float:
    """Of what batch norms of halves sum, the share that they read again to scale it: cuDNN's keep it in NHWC."""
    return 1.0 if is_nchw or device.kind == "cpu" or device.vendor != "NVIDIA" else 0.0


def used_unit(device: Device, unit: str) -> str:
    """The one that it computes on: without the one that is asked for it converts operands and multiplies in fp32."""
    return unit if unit in device.peak_flops_per_s else "fp32"


def winograd_speedup(device: Device, efficiency: Efficiency, *, unit: str) -> float:
    """How much faster a convolution of 3 x 3 is for Winograd's fewer products: in fp32 alone (cuDNN's tensor cores take
    implicit GEMM), and outside matrix cores, whose rate AMD's loses for it."""
    used, peaks = used_unit(device, unit), device.peak_flops_per_s
    if used not in _FP32_UNITS:
        return 1.0
    outside = peaks["vector"] / peaks[used] if device.kind == "gpu" and "vector" in peaks else 1.0
    return max(1.0, efficiency.winograd_speedup * min(1.0, outside))


def transposed_ratio(device: Device, efficiency: Efficiency, *, unit: str) -> float:
    """The share of its images that a convolution lays out anew in NCHW: tensor cores want channels last, and so does
    oneDNN on CPUs; a GPU that computes halves in fp32 takes them as they come."""
    is_taken_as_is = device.kind == "gpu" and used_unit(device, unit) in _FP32_UNITS
    return 0.0 if is_taken_as_is else efficiency.nchw_transposed_ratio


def sustained_bytes_per_s(device: Device, efficiency: Efficiency) -> float:
    """What long copies reach, more where a large cache catches what kernels read twice."""
    caught = (device.cache_bytes / REFERENCE_CACHE_BYTES) ** efficiency.cache_exponent if device.cache_bytes else 1.0
    return _copied_bytes_per_s(device, efficiency) * caught


def narrow_bytes_per_s(device: Device, efficiency: Efficiency) -> float:
    """What the parameters of narrow products reach; no cache catches what is read once."""
    return _copied_bytes_per_s(device, efficiency) * efficiency.narrow_product_ratio


def _copied_bytes_per_s(device: Device, efficiency: Efficiency) -> float:
    own_ratio = efficiency.generation_memory_ratio * device.sustained_memory_ratio
    return device.memory_bytes_per_s * device.streaming_ratio * own_ratio


def cache_bytes_per_s(device: Device) -> float:
    """The bandwidth of the last cache."""
    return device.cache_bytes_per_s or _CACHE_PER_MEMORY * device.memory_bytes_per_s


def _column(values: Sequence[float]) -> FloatArray:
    return np.array(values, dtype=np.float64)[:, np.newaxis, np.newaxis]
