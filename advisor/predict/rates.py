"""Computes the throughput and bandwidth that devices sustain for a step's kernels, from datasheets and fits."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from advisor.predict.cpu_loops import ADDED_CYCLES
from advisor.predict.efficiency import distinct_efficiencies, family_efficiency
from advisor.predict.kernel_time import BLAS_HALF, TENSOR_UNITS, UNITS, Rates
from advisor.records.device import (
    ANY,
    REFERENCE_CLOCK_HZ,
    REFERENCE_HOST_HZ,
    REFERENCE_RESIDENT_THREADS,
    Device,
    Efficiency,
)
from advisor.records.prediction import FloatArray, IndexArray

_NO_CORE_LIMIT = np.array(np.inf)
"""`core_bytes_per_s` for all kernels at once, if no family has a limit."""
_JOIN_EXPONENT = 0.5
"""How the cost of a barrier grows with the core count: 1 for a linear barrier, near 0 for a tree. Each generation left
out is predicted better with 0.45 than with 0.7, and as a whole no better with a tree
(docs/internals/experiments.md). On CPUs with more than 14 cores only steps of 25 ms and more were measured."""
_SWAP_CYCLES, _AMD_SWAP_CYCLES = 24.0, 9.0
"""Cycles of an addition by a locked compare-and-swap: Emerald Rapids and Zen 4 (8.2 to 9.4, tables of 64 to 6,400 rows
that fit into a cache), torch 2.13. Other vendors' CPUs were not measured."""
_FP32_UNITS = frozenset({"fp32", "vector"})
_USUAL_CLOCK_RATIO = 1.12
"""Clock under load of a GPU that exceeds its rated clock, relative to that: the prior of `Efficiency.clock_ratio`."""
_CACHE_PER_MEMORY = 3.0
"""Assumed bandwidth of the last-level cache relative to memory if none is known: V100 and A100 in published
microbenchmarks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RateTable:
    """The sustained rates of devices; both predictions and fits read it. A line is one device at one efficiency."""

    of_unit: Mapping[str, FloatArray]
    """Arrays (lines, `UNITS`); NaN if no kernel runs on the unit."""
    of_family: Mapping[str, FloatArray]
    """Arrays (lines, families)."""
    of_device: Mapping[str, FloatArray]
    """Arrays (lines,)."""

    def at(self, line: IndexArray, *, family: IndexArray, unit: IndexArray) -> Rates:
        """Return the rates of kernels by line, family and unit; the three arguments broadcast."""
        by_unit = {name: values[line, unit] for name, values in self.of_unit.items()}
        rated_flops_per_s = by_unit.pop("flops_per_s")
        by_family = {name: values[line, family] for name, values in self.of_family.items()}
        by_device = {name: values[line] for name, values in self.of_device.items()}
        held = self.of_family["core_bytes_per_s"]
        return Rates(
            flops_per_s=np.minimum(rated_flops_per_s * by_family["compute_ratio"], by_unit.pop("most_flops_per_s")),
            memory_bytes_per_s=by_device.pop("memory_bytes_per_s") * by_family["memory_ratio"],
            core_bytes_per_s=by_family["core_bytes_per_s"] if np.isfinite(held).any() else _NO_CORE_LIMIT,
            launch_s=by_family["launch_s"],
            **by_unit,
            **by_device,
        )


def rate_table(
    devices: Sequence[Device], efficiencies: Sequence[Efficiency], *, families: Sequence[str], units: Iterable[int]
) -> RateTable:
    """Return the rates of each device at its own efficiency, for these kernel families and these of `UNITS`."""
    pairs = list(zip(devices, efficiencies, strict=True))
    distinct, which = distinct_efficiencies(efficiencies)
    entries = [[family_efficiency(efficiency, family) for family in families] for efficiency in distinct]

    def of_family(name: str) -> FloatArray:
        """Return a field of `FamilyEfficiency`, NaN where it is None."""
        return np.array([[getattr(entry, name) for entry in row] for row in entries], dtype=np.float64)[which]

    def of_unit(value_of: Callable[..., float]) -> FloatArray:
        """Return one column per unit, NaN for those that no kernel runs on."""
        table = np.full((len(pairs), len(UNITS)), np.nan)
        for unit in units:
            table[:, unit] = [value_of(*pair, unit=UNITS[unit]) for pair in pairs]
        return table

    launches_s = np.array([launch_s(*pair) for pair in pairs])[:, np.newaxis]
    own_launches_s, core_bytes_per_s = of_family("launch_s"), of_family("core_bytes_per_s")
    return RateTable(
        of_unit={name: of_unit(value_of) for name, value_of in _UNIT_RATES.items()},
        of_family={
            "compute_ratio": of_family("compute_ratio"),
            "memory_ratio": of_family("memory_ratio"),
            "core_bytes_per_s": np.where(np.isnan(core_bytes_per_s), np.inf, core_bytes_per_s),
            "launch_s": np.where(np.isnan(own_launches_s), launches_s, own_launches_s),
        },
        of_device={
            **{name: np.array([value_of(*pair) for pair in pairs]) for name, value_of in _DEVICE_RATES.items()},
            **{name: np.array([getattr(device, name) for device in devices]) for name in _DEVICE_FIELDS},
            **{name: np.array([getattr(one, name) for one in distinct])[which] for name in _EFFICIENCY_FIELDS},
        },
    )


def launch_s(device: Device, efficiency: Efficiency) -> float:
    """Return the launch overhead of a kernel: of a GPU itself, or of the core that starts a CPU's kernel."""
    return efficiency.launch_s * (device.host_time_ratio if device.kind == "cpu" else 1.0)


def join_s(device: Device, efficiency: Efficiency) -> float:
    """Return the time to start the threads on all cores of a CPU and to wait for them at the end."""
    joined_s = efficiency.join_s * (math.pow(max(device.core_count, 1.0), _JOIN_EXPONENT) - 1)
    return joined_s * device.host_time_ratio


def sustained_flops_per_s(device: Device, efficiency: Efficiency, *, unit: str) -> float:
    """Return the unit's compute throughput at the clock that power and cooling sustain.

    A device without the unit converts its operands and multiplies them in fp32.
    """
    used = used_unit(device, unit)
    power_ratio = device.power_ratio.get("fp32" if used == "vector" else used, 1.0)
    throttled = math.pow(power_ratio, efficiency.power_exponent)
    clock_ratio = _clock_ratio(device, efficiency, used=used)
    if device.has_narrow_tensor_cores and used in TENSOR_UNITS:
        clock_ratio *= efficiency.narrow_tensor_speedup
    if device.has_matrix_unit and used in ("bf16", "int8"):
        clock_ratio *= efficiency.matrix_unit_ratio
    if used == "fp32":
        clock_ratio *= math.pow(efficiency.shared_issue_ratio, device.issue_contention)
    own_ratio = efficiency.generation_compute_ratio * device.sustained_compute_ratio
    return device.peak_flops_per_s[used] * throttled * clock_ratio * own_ratio


def most_flops_per_s(device: Device, efficiency: Efficiency, *, unit: str) -> float:
    """Return the throughput that no kernel exceeds, infinite after a calibration, which measures the peak itself.

    It is the datasheet's peak at the clock that the device reaches, raised if a higher rate was measured on it.
    """
    if efficiency.device != ANY:
        return math.inf
    used = used_unit(device, unit)
    clock_ratio = _clock_ratio(device, efficiency, used=used)
    return device.peak_flops_per_s[used] * clock_ratio * max(1.0, device.sustained_compute_ratio)


def _clock_ratio(device: Device, efficiency: Efficiency, *, used: str) -> float:
    """Return the clock relative to the rated clock; 1 if every issue slot is taken and no power is left for more."""
    is_full = used == "fp32" and device.issue_contention > 0
    return efficiency.clock_ratio if device.exceeds_rated_clock and not is_full else 1.0


def issue_cycle_s(device: Device, efficiency: Efficiency) -> float:
    """Return the time of a cycle of a GPU's core; 0 on CPUs, and on GPUs whose libraries have other kernels."""
    if device.kind == "cpu" or device.vendor != "NVIDIA":
        return 0.0
    return 1 / (device.clock_hz * (_USUAL_CLOCK_RATIO if device.exceeds_rated_clock else 1.0))


def direct_flops_per_s(device: Device, efficiency: Efficiency) -> float:
    """Return the throughput of direct convolution kernels, which run outside tensor cores; infinite on CPUs.

    GPUs use these kernels for shapes that no other kernel supports.
    """
    if device.kind == "cpu":
        return math.inf
    return sustained_flops_per_s(device, efficiency, unit="vector") * efficiency.direct_ratio


def used_unit(device: Device, unit: str) -> str:
    """Return the unit that the device computes on: fp32, with converted operands, if it lacks the requested one.

    In attention on two cores of a Zen 4, MKL multiplies bf16 at 195 GFLOP/s, of 448, and fp32 at 209, of 224.
    """
    if unit == BLAS_HALF and device.vendor != "AMD":
        unit = "bf16"
    return unit if unit in device.peak_flops_per_s else "fp32"


def winograd_speedup(device: Device, efficiency: Efficiency, *, unit: str) -> float:
    """Return the speedup of a 3 x 3 convolution by Winograd's algorithm, 1 if it is not used.

    It is used only in fp32 (on tensor cores cuDNN uses implicit GEMM) and runs outside matrix cores, so a GPU with fp32
    matrix cores (AMD) gives up their rate for it.
    """
    used, peaks = used_unit(device, unit), device.peak_flops_per_s
    if used not in _FP32_UNITS or device.convolves_by_fft:
        return 1.0
    outside = peaks["vector"] / peaks[used] if device.kind == "gpu" and "vector" in peaks else 1.0
    return max(1.0, efficiency.winograd_speedup * min(1.0, outside))


def fft_share(device: Device, efficiency: Efficiency, *, unit: str) -> float:
    """Return 1 if convolutions on the unit gain by Fourier transforms, else 0."""
    return float(device.convolves_by_fft and used_unit(device, unit) in _FP32_UNITS)


def transposed_ratio(device: Device, efficiency: Efficiency, *, unit: str) -> float:
    """Return the share of `Kernels.transposed_bytes` that is transposed to channels-last and back.

    Tensor cores need channels-last images, and so does oneDNN on CPUs. A GPU that computes in fp32 uses NCHW directly.
    """
    is_taken_as_is = device.kind == "gpu" and used_unit(device, unit) in _FP32_UNITS
    return 0.0 if is_taken_as_is else efficiency.nchw_transposed_ratio


def always_transposed_ratio(device: Device, efficiency: Efficiency, *, unit: str) -> float:
    """Return the share of `Kernels.always_transposed_bytes` that is transposed: all by cuDNN for tensor cores."""
    share = transposed_ratio(device, efficiency, unit=unit)
    return 1.0 if share and device.vendor == "NVIDIA" else share


def uses_matrix_unit(device: Device, efficiency: Efficiency, *, unit: str) -> float:
    """Return 1 if a CPU computes on its matrix unit (AMX), which has only bf16 of the floating-point types, else 0."""
    return float(device.has_matrix_unit and used_unit(device, unit) == "bf16")


def addition_cycles(device: Device, efficiency: Efficiency) -> float:
    """Return a core's cycles for adding an element at an index: several threads need a compare-and-swap for it.

    Source: ATen's IndexKernel.cpp (`index_put_kernel`) and cpu/AtomicAddFloat.h.
    """
    if device.core_count <= 1:
        return ADDED_CYCLES
    return _AMD_SWAP_CYCLES if device.vendor == "AMD" else _SWAP_CYCLES


def sustained_bytes_per_s(device: Device, efficiency: Efficiency) -> float:
    """Return the bandwidth of long copies."""
    of_type = efficiency.memory_type_ratios.get(device.memory_type or "", 1.0)
    own_ratio = efficiency.generation_memory_ratio * device.sustained_memory_ratio
    return device.memory_bytes_per_s * device.streaming_ratio * of_type * own_ratio


def narrow_bytes_per_s(device: Device, efficiency: Efficiency) -> float:
    """Return the bandwidth at which narrow matmuls read parameters; 0: like other matmuls."""
    return sustained_bytes_per_s(device, efficiency) * efficiency.narrow_product_ratio


_DEVICE_RATES: Mapping[str, Callable[[Device, Efficiency], float]] = {
    "memory_bytes_per_s": sustained_bytes_per_s,
    "narrow_bytes_per_s": narrow_bytes_per_s,
    "cache_bytes_per_s": lambda device, _: device.cache_bytes_per_s or _CACHE_PER_MEMORY * device.memory_bytes_per_s,
    "full_core_count": lambda device, _: (
        device.core_count * device.resident_threads_per_core / REFERENCE_RESIDENT_THREADS
    ),
    "lone_block_ratio": lambda device, _: device.clock_hz / REFERENCE_CLOCK_HZ,
    "join_s": join_s,
    "library_s": lambda device, efficiency: efficiency.library_s * device.host_time_ratio,
    "page_s": lambda device, efficiency: efficiency.page_s * device.host_time_ratio,
    "cycle_s": lambda device, _: device.host_time_ratio / REFERENCE_HOST_HZ if device.kind == "cpu" else 0.0,
    "addition_cycles": addition_cycles,
    "issue_cycle_s": issue_cycle_s,
    "direct_flops_per_s": direct_flops_per_s,
    # cuDNN reads the input of a channels-last 16-bit batch norm once.
    "reread_ratio": lambda device, _: 0.0 if device.kind == "gpu" and device.vendor == "NVIDIA" else 1.0,
}
_UNIT_RATES: Mapping[str, Callable[..., float]] = {
    "flops_per_s": sustained_flops_per_s,
    "most_flops_per_s": most_flops_per_s,
    "transposed_ratio": transposed_ratio,
    "always_transposed_ratio": always_transposed_ratio,
    "winograd_speedup": winograd_speedup,
    "fft_share": fft_share,
    "uses_matrix_unit": uses_matrix_unit,
}
_COPIED = {field.name for field in fields(Rates)} - {*_DEVICE_RATES, *_UNIT_RATES, "launch_s"}
_DEVICE_FIELDS = _COPIED & {field.name for field in fields(Device)}
_EFFICIENCY_FIELDS = (_COPIED - _DEVICE_FIELDS) & {field.name for field in fields(Efficiency)}
"""The rates that are fields of a device or, if not, of an efficiency."""
