"""Defines a step's kernels and computes their time: a roofline with tiles, waves, occupancy, caches and launches.

A new effect is a term in `Kernels` (which `lowering` fills), a rate in `Rates` and its formula below. A rate that is
named like a field of `Efficiency` or `Device` has its value; others are computed in `rates`.

All arrays broadcast: a prediction passes kernels (kernels, batches) and devices (devices, 1, 1); a fit passes flat
arrays with one kernel on one device per element.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_type_hints

import numpy as np

from advisor.ops.registry import ITEMSIZE_BYTES
from advisor.predict.issued import TRANSPOSED_CYCLES
from advisor.records.prediction import PARTS, BoolArray, FloatArray, IndexArray

BLAS_HALF = "16 bits by BLAS"
"""The unit on which a CPU's BLAS library multiplies 16-bit matrices; on AMD, MKL uses the one for fp32."""
UNITS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", BLAS_HALF, "fp64", "vector")
"""The units of `Device.peak_flops_per_s` but "fp4", which only inference engines use, and `BLAS_HALF`."""
TENSOR_UNITS = frozenset({"tf32", "fp16", "bf16", "fp8", "int8"})
LOAD_S = 2.6e-7
"""Latency of a dependent load on a GPU at low occupancy: 200 to 800 cycles (Zhang et al., Dive into Deep Learning,
chapter Hardware), 0.08 to 0.32 us at 2.5 GHz. EfficientFormerV2's four nets make 2 to 6 million loads in sequence, of
0.24 us on an RTX 4090, 0.28 us on an RTX 3090, and 0.33 us on an RTX 5090, which did not enter the mean."""
STRIDED_COPY_CYCLES = 6.0
"""Cycles of a core for each element of a 16-bit copy that reads with a stride. From the weights that a GRU copies (5 to
6) and the results of a convolution to 256 channels (6) on a Granite Rapids."""
NEAR_CACHE_SPEEDUP = 2.0
"""Bandwidth of a CPU core's own caches relative to `Device.cache_bytes_per_s`, which is half that of L2 alone
(`_CACHE_BYTES_PER_CYCLE` in capability.py). One core of a Zen 4 measures 1.0, but with 1.0 CPUs that are left out of
the fit are predicted worse, the Core i9 most of all (docs/internals/experiments.md)."""
_PAGE_BYTES = 4096.0
"""Bytes of memory that a page fault provides: a page on x86 and on most Arm servers."""
_SMALL_PIECE_COST = 1.2
"""Slowdown of a matmul that is cut into smaller pieces, which reduce its wave quantization. No source is recorded
for the value. Without pieces, training in fp32 on an H200 is predicted worse, but the residual of 780 single matmuls
does not grow with the idle share of the last wave (docs/internals/experiments.md)."""
_SPLIT_DEPTH = 512.0
"""Depth of a split-K slice (cuBLAS)."""
_FEWEST_PIECES, _MOST_PIECES = 4.0, 32.0
"""Pieces of a tile: tiles of a quarter of its size, and the most slices of a split-K kernel."""
_PRACTICALLY_INFINITE = 1e9
"""A dimension long enough to make padding to whole tiles negligible."""


class _Term(NamedTuple):
    """The level that a term is given for: a kernel, or at a batch size its call, the step, or the parts of the step."""

    of: Literal["kernel", "call", "step", "step's kernels", "parts"]
    default: float = 0.0
    """Its value in a kernel to which the term does not apply."""
    dtype: type = np.float64


_Index: TypeAlias = Annotated[IndexArray, _Term("kernel", dtype=np.intp)]
_Work: TypeAlias = Annotated[FloatArray, _Term("call")]
_Ratio: TypeAlias = Annotated[FloatArray, _Term("call", 1.0)]
_Length: TypeAlias = Annotated[FloatArray, _Term("call", _PRACTICALLY_INFINITE)]
_Count: TypeAlias = Annotated[FloatArray, _Term("step")]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kernels:
    """The kernels of one step on one kind of device at one precision in one layout, each with the terms of its time.

    Terms of a kernel are (kernels,), those of a call (kernels, batches), those of the step (batches,), those of its
    parts (`DISPATCHED`, `PARTS`, batches).
    """

    families: tuple[str, ...]
    """Kernel families: those of operators, split by suffix where rates differ: `_grouped`, `_depthwise`, `_running`
    (batch norms with running statistics), `_generated` (norms that Inductor generates for GPUs) and `_backward`."""
    family: _Index
    """Index of `families`."""
    unit: _Index
    """Index of `UNITS`."""
    row: _Index
    """Index of the workload's rows."""
    part: _Index
    """Index of `PARTS`."""
    calls: Annotated[FloatArray, _Term("kernel")]
    can_winograd: Annotated[BoolArray, _Term("kernel", dtype=np.bool_)]
    fft_speedup: Annotated[FloatArray, _Term("kernel", default=1.0)]
    """As in `Product`."""
    is_untiled: Annotated[BoolArray, _Term("kernel", dtype=np.bool_)]
    """Where `Rates.issue_cycle_s` is not 0, torch runs a kernel of its own, which has no tiles."""
    flops: _Work
    flop_ratio: _Ratio
    """Slowdown of a FLOP relative to a matmul or an addition."""
    direct_flops: _Work
    """FLOP of direct convolution kernels on a GPU, weighted by their slowdown."""
    weight_bytes: _Work
    """Bytes of parameters read."""
    data_bytes: _Work
    """Bytes of activations read and written."""
    reread_bytes: _Work
    """The part of `data_bytes` that is a second read, which a channels-last 16-bit kernel may save."""
    revisited_bytes: _Work
    """Bytes of repeated reads from a working set of `revisited_set_bytes`."""
    revisited_set_bytes: _Work
    sequential_loads: _Work
    """Loads that each thread makes in sequence."""
    issue_cycles: _Work
    """Cycles in which a GPU's cores issue instructions, shared by all cores. They overlap with memory accesses."""
    launches: _Work
    joins: _Work
    """How often all cores of a CPU start and finish together."""
    library_calls: _Work
    """Calls into a CPU library."""
    scalar_cycles: _Work
    """Cycles of a CPU's loop over single elements, shared by all cores."""
    matrix_unit_cycles: _Work
    """Cycles of code that a CPU needs only where it computes on its matrix unit, shared by all cores."""
    serial_cycles: _Work
    """Cycles of code that runs on one core of a CPU. They count as compute time, but overlap with nothing."""
    call_cycles: _Work
    """Cycles of one core of a CPU for each call of a kernel, which count as launch overhead."""
    indexed_additions: _Work
    """Elements that a CPU adds at indices, shared by all cores."""
    passed_bytes: _Work
    """Bytes that are read and written once more: of operands copied to another layout, weighted by the time of the
    copy, and of a convolution's result to which a CPU adds a bias."""
    passed_cycles: _Work
    """Cycles in which a GPU's cores issue the instructions of these copies, shared by all cores."""
    transposed_bytes: _Work
    """Bytes of images that a library may transpose."""
    always_transposed_bytes: _Work
    """Bytes of other images, which cuDNN always transposes for tensor cores."""
    repacked_bytes: _Work
    """Bytes of parameters that a library may repack at every call."""
    mapped_bytes: _Work
    """The part of `repacked_bytes` whose copies are so large that malloc maps new memory for them at every call."""
    above_cores: _Work
    """The kernel runs only on devices with more cores than this."""
    most_cores: _Length
    """The kernel runs only on devices with at most this many cores; others run another kernel of the same row."""
    groups: _Length
    """Number of matmuls (m, k) x (k, n) in the kernel; practically infinite, like m, n and k, if it is none."""
    m: _Length
    n: _Length
    k: _Length
    blocks: _Length
    """Thread blocks; practically infinite if the kernel does not assign one to each token."""
    dispatches: _Count
    """Operators that the host dispatches in eager mode, except in backward."""
    backward_dispatches: _Count
    compiled_dispatches: _Count
    """Kernels that compiled code launches."""
    library_launches: _Count
    """Kernels launched on a GPU in eager mode beyond one per dispatch, such as those of a recurrent layer."""
    part_dispatches: Annotated[FloatArray, _Term("parts")]
    """These four counts in each part of the step."""
    transfer_bytes: _Count
    """Bytes copied to the device."""
    paged_bytes: _Count
    """Bytes of the optimizer's state that a GPU copies from and to the host's memory in the optimizer's step."""
    parameter_bytes: Annotated[FloatArray, _Term("step's kernels")]
    """Bytes that all kernels read of parameters and of other data that stays in memory between passes. A weight counts
    each time it is read, so about twice in training."""

    @property
    def has_backward(self) -> bool:
        """Return whether the step computes gradients, compiled or not."""
        return any(PARTS[part].endswith("backward") for part in np.unique(self.part))

    def at(self, batches: IndexArray) -> "Kernels":
        """Return the kernels at some of the batch sizes, given by index."""
        return self._changed({name: np.s_[..., batches] for name, term in TERMS.items() if term.of != "kernel"})

    def only(self, chosen: IndexArray | BoolArray) -> "Kernels":
        """Return some of the kernels; those of `joined_kernels` keep the terms of their own steps."""
        is_joined = self.parameter_bytes.ndim > 1
        levels = ("kernel", "call", "step's kernels") if is_joined else ("kernel", "call")
        return self._changed({name: chosen for name, term in TERMS.items() if term.of in levels})

    def _changed(self, indices: Mapping[str, Any]) -> "Kernels":
        return replace(self, **{name: getattr(self, name)[index] for name, index in indices.items()})

    def in_bf16(self) -> "Kernels":
        """Return the same kernels in bf16 instead of fp16; only the compute unit differs."""
        fp16, bf16 = UNITS.index("fp16"), UNITS.index("bf16")
        return replace(self, unit=np.where(self.unit == fp16, bf16, self.unit))


TERMS: Mapping[str, _Term] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(Kernels, include_extras=True).items()
    if name != "families"
}
"""The fields of `Kernels` that are arrays."""
DISPATCHED: Mapping[str, str] = {
    "dispatches": "dispatch_s",
    "backward_dispatches": "backward_dispatch_s",
    "compiled_dispatches": "compiled_dispatch_s",
    "library_launches": "compiled_dispatch_s",
}
"""Maps each count of host operations in `Kernels` to the field of `Efficiency` with the seconds of one operation. A
library launches a kernel like compiled code does, without Python or a dispatcher."""


def kernels_of(terms: Sequence[Mapping[str, Any]], *, batch_count: int, **of_step: FloatArray) -> Kernels:
    """Return kernels of which each is given by the terms that apply to it, with the names of its family and unit."""
    names = {name for kernel in terms for name in kernel}
    if not names <= TERMS.keys():
        raise TypeError(f"Kernels has no {', '.join(sorted(names - TERMS.keys()))}")
    families = tuple(sorted({kernel["family"] for kernel in terms}))
    index_of = {"family": families.index, "unit": UNITS.index}

    def filled(name: str, term: _Term) -> Any:
        if term.of == "kernel":
            values = [kernel.get(name, term.default) for kernel in terms]
            return np.array([*map(index_of[name], values)] if name in index_of else values, dtype=term.dtype)
        if term.of == "parts":
            return np.full((len(DISPATCHED), len(PARTS), batch_count), term.default)
        array = np.full((len(terms), batch_count), term.default)
        if name in names:
            for position, kernel in enumerate(terms):
                if name in kernel:
                    array[position] = kernel[name]
        return array

    arrays: dict[str, Any] = {
        name: of_step[name] if name in of_step else filled(name, term) for name, term in TERMS.items()
    }
    return Kernels(families=families, **arrays)


def joined_kernels(steps: Sequence[Kernels]) -> Kernels:
    """Concatenate the kernels of several steps, all at one batch size; terms of the step become (steps,)."""
    families = tuple(sorted({family for step in steps for family in step.families}))
    places = {family: index for index, family in enumerate(families)}
    counts = [len(step.family) for step in steps]
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(step, name) for step in steps], axis=-1 if term.of == "parts" else 0)
        for name, term in TERMS.items()
    }
    arrays["family"] = np.concatenate([[places[step.families[index]] for index in step.family] for step in steps])
    for name, term in TERMS.items():
        if term.of == "step's kernels":
            arrays[name] = np.repeat(arrays[name], counts)[:, np.newaxis]
    return Kernels(families=families, **arrays)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rates:
    """The rates that a device sustains for a kernel, as arrays that broadcast against the kernels.

    A field without a description means the same as the field of that name in `Efficiency` or `Device`.
    A core is an SM of a GPU or a core of a CPU.
    """

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
    page_s: FloatArray
    """Time of a page fault."""
    uses_matrix_unit: FloatArray
    """1 where a CPU computes on its matrix unit, else 0."""
    cycle_s: FloatArray
    """Time of a cycle of a CPU's core; 0 on GPUs."""
    addition_cycles: FloatArray
    """Cycles of a CPU's core for an element of `Kernels.indexed_additions`."""
    issue_cycle_s: FloatArray
    """Time of a cycle of a GPU's core; 0 on CPUs and on GPUs whose libraries have other kernels."""
    overlap_ratio: FloatArray
    edge_ramp: FloatArray
    depth_ramp: FloatArray
    tile_rows: FloatArray
    tile_columns: FloatArray
    wave_ratio: FloatArray
    winograd_speedup: FloatArray
    fft_share: FloatArray
    """1 where convolutions gain by Fourier transforms, else 0."""
    direct_flops_per_s: FloatArray
    """Throughput of direct convolution kernels; infinite on CPUs."""
    reread_ratio: FloatArray
    """Share of `Kernels.reread_bytes` that is read a second time."""
    transposed_ratio: FloatArray
    """Share of `Kernels.transposed_bytes` that is transposed."""
    always_transposed_ratio: FloatArray
    """Share of `Kernels.always_transposed_bytes` that is transposed."""
    repack_ratio: FloatArray
    cache_kept_ratio: FloatArray

    def only(self, chosen: BoolArray) -> "Rates":
        """Return the rates for some of the kernels; a rate that holds for all kernels stays as it is."""
        by_kernel = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(
            self,
            **{name: rate[..., chosen, :] for name, rate in by_kernel.items() if rate.ndim > 1 and rate.shape[-2] > 1},
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelTimes:
    """Seconds of one call: compute time, memory time, launch overhead and the total."""

    compute_s: FloatArray
    memory_s: FloatArray
    launch_s: FloatArray
    total_s: FloatArray


def kernel_times(kernels: Kernels, rates: Rates) -> KernelTimes:
    """Return the time of every kernel: a roofline in which compute and memory overlap in part, plus launch overhead."""
    is_product = kernels.m.min(axis=-1) < _PRACTICALLY_INFINITE
    reached_ratio = _of_chosen(utilisation, is_product, kernels, rates, otherwise=1.0)
    compute_s = kernels.flops * kernels.flop_ratio / (rates.flops_per_s * reached_ratio)
    if kernels.can_winograd.any():
        compute_s = np.where(kernels.can_winograd[..., np.newaxis], compute_s / rates.winograd_speedup, compute_s)
    if rates.fft_share.any():
        compute_s = compute_s / (1 + rates.fft_share * (kernels.fft_speedup[..., np.newaxis] - 1))
    if rates.cycle_s.any():  # only CPUs have these
        cycles = kernels.scalar_cycles + kernels.matrix_unit_cycles * rates.uses_matrix_unit
        cycles = cycles + kernels.indexed_additions * rates.addition_cycles
        compute_s = compute_s + cycles * rates.cycle_s / np.maximum(rates.core_count, 1.0)
    if kernels.direct_flops.any():
        compute_s = np.maximum(compute_s, kernels.direct_flops / rates.direct_flops_per_s)
    if kernels.is_untiled.any():
        is_untiled = kernels.is_untiled[..., np.newaxis] & (rates.issue_cycle_s > 0)
        compute_s = np.where(is_untiled, kernels.flops * kernels.flop_ratio / rates.flops_per_s, compute_s)
    memory_s = np.maximum(_memory_s(kernels, rates), kernels.sequential_loads * LOAD_S)
    if kernels.issue_cycles.any():
        issue_s = kernels.issue_cycles * rates.issue_cycle_s / np.maximum(rates.core_count, 1.0)
        memory_s = np.maximum(memory_s, issue_s)
    if np.isfinite(rates.core_bytes_per_s).any():
        memory_s = np.maximum(memory_s, _threads_s(kernels, rates))
    launch_s = kernels.launches * rates.launch_s
    if rates.join_s.any() or rates.library_s.any():  # only CPUs have these
        launch_s = launch_s + kernels.joins * rates.join_s + kernels.library_calls * rates.library_s
    if kernels.call_cycles.any():
        launch_s = launch_s + kernels.call_cycles * rates.cycle_s
    added_s = _added_s(kernels, rates)
    busy_s = smooth_maximum(compute_s, memory_s, overlap=rates.overlap_ratio) + added_s
    memory_s = memory_s + added_s
    if kernels.mapped_bytes.any():
        faults_s = kernels.mapped_bytes / _PAGE_BYTES * rates.page_s
        memory_s, busy_s = memory_s + faults_s, busy_s + faults_s
    if kernels.serial_cycles.any():
        serial_s = kernels.serial_cycles * rates.cycle_s
        compute_s, busy_s = compute_s + serial_s, busy_s + serial_s
    is_run = runs_on(kernels, rates)
    return KernelTimes(
        compute_s=compute_s * is_run,
        memory_s=memory_s * is_run,
        launch_s=launch_s * is_run,
        total_s=(busy_s + launch_s) * is_run,
    )


def runs_on(kernels: Kernels, rates: Rates) -> FloatArray | float:
    """Return 1 for a kernel that the device runs, and 0 for one that devices with more or fewer cores run instead."""
    if not kernels.above_cores.any() and kernels.most_cores.min(initial=np.inf) >= _PRACTICALLY_INFINITE:
        return 1.0
    is_run = (kernels.above_cores < rates.core_count) & (rates.core_count <= kernels.most_cores)
    return is_run.astype(np.float64)


def _of_chosen(
    formula: Callable[[Kernels, Rates], FloatArray],
    chosen: BoolArray,
    kernels: Kernels,
    rates: Rates,
    *,
    otherwise: float,
) -> FloatArray:
    """Return the value of the formula for the chosen kernels, and `otherwise` for the rest without computing it."""
    if chosen.all():
        return formula(kernels, rates)
    values = formula(kernels.only(chosen), rates.only(chosen))
    of_all = np.full((*values.shape[:-2], len(chosen), values.shape[-1]), otherwise)
    of_all[..., chosen, :] = values
    return of_all


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
    pieces = waves * np.clip(kernels.k / _SPLIT_DEPTH, _FEWEST_PIECES, _MOST_PIECES)
    idle = np.minimum(np.ceil(waves) / waves, _SMALL_PIECE_COST * np.ceil(pieces) / pieces)
    result: FloatArray = 1 / (depth * np.maximum(edges, np.maximum(idle, 1.0) ** rates.wave_ratio))
    return result


def _memory_s(kernels: Kernels, rates: Rates) -> FloatArray:
    """Return the time to move a kernel's own bytes, from the last-level cache as far as they are still in it.

    The cache holds the share of the operator's data that fits, and the share of `parameter_bytes` that fits. A matmul
    of at most one tile of rows streams its parameters once, like a long copy.
    """
    kept_bytes = rates.cache_kept_ratio * rates.cache_bytes
    data_bytes = read_and_written_bytes(kernels, rates)
    kept_data = np.minimum(1.0, kept_bytes / np.maximum(data_bytes, 1.0))
    kept_weights = np.minimum(1.0, kept_bytes / np.maximum(kernels.parameter_bytes, 1.0))
    cached_bytes = kept_data * data_bytes + kept_weights * kernels.weight_bytes
    moved_bytes = (1 - kept_data) * data_bytes
    once = np.maximum(rates.narrow_bytes_per_s, rates.memory_bytes_per_s)
    weight_bytes_per_s = np.where(kernels.m <= rates.tile_rows, once, rates.memory_bytes_per_s)
    weights_s = (1 - kept_weights) * kernels.weight_bytes / weight_bytes_per_s
    result: FloatArray = moved_bytes / rates.memory_bytes_per_s + weights_s + cached_bytes / rates.cache_bytes_per_s
    is_revisiting = kernels.revisited_bytes.max(axis=-1) > 0
    if is_revisiting.any():
        result = result + _of_chosen(_revisited_s, is_revisiting, kernels, rates, otherwise=0.0)
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
    if not kernels.reread_bytes.any():
        return kernels.data_bytes
    result: FloatArray = kernels.data_bytes - (1 - rates.reread_ratio) * kernels.reread_bytes
    return result


def added_bytes(kernels: Kernels, rates: Rates) -> FloatArray:
    """Return the bytes moved beyond an operator's operands: layout copies of images and weights, and bias passes."""
    passed_bytes = kernels.passed_bytes + _transposed_bytes(kernels, rates)
    result: FloatArray = 2 * (passed_bytes + rates.repack_ratio * kernels.repacked_bytes)
    return result


def _transposed_bytes(kernels: Kernels, rates: Rates) -> FloatArray:
    total = rates.transposed_ratio * kernels.transposed_bytes
    if kernels.always_transposed_bytes.any():
        total = total + rates.always_transposed_ratio * kernels.always_transposed_bytes
    return total


def _added_s(kernels: Kernels, rates: Rates) -> FloatArray:
    """Return the time of `added_bytes`, which other kernels move before or after.

    A GPU that issues the instructions of a copy more slowly than its memory moves the bytes takes longer.
    """
    seconds: FloatArray = added_bytes(kernels, rates) / rates.memory_bytes_per_s
    if rates.issue_cycle_s.any():
        cycle_s = rates.issue_cycle_s / np.maximum(rates.core_count, 1.0)
        transposed_bytes = _transposed_bytes(kernels, rates)
        transposed_cycles = TRANSPOSED_CYCLES * transposed_bytes / ITEMSIZE_BYTES["float16"]
        for bytes_, cycles in ((transposed_bytes, transposed_cycles), (kernels.passed_bytes, kernels.passed_cycles)):
            if cycles.any():
                seconds = seconds + np.maximum(cycles * cycle_s - 2 * bytes_ / rates.memory_bytes_per_s, 0.0)
    return seconds


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
