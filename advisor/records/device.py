"""Datasheet records of GPUs and CPUs, and the one shape of what a device can do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DeviceKind = Literal["cpu", "gpu"]
Precision = Literal["fp32", "tf32", "amp-fp16", "amp-bf16", "bf16", "fp16"]
"""How the step runs: fp32, fp32 with TF32 matmuls, autocast, or the whole model in half."""
Layout = Literal["nchw", "nhwc"]
CompileMode = Literal["eager", "compile"]
NvlinkReach = Literal["machine", "pair"]
TimeSource = Literal["measured", "calibrated", "fitted", "datasheet"]

ANY = "*"
"""What an `Efficiency` is of, or an entry of its families, where it is of all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU's published figures. Tensor rates are dense. None: the part has no such unit, or no figure is known.

    The `sustained` ratios are two figures of its own, from measured steps (`advise fit-device`): how fast it computes
    and streams beside what is predicted from the figures above.

    `fp32_matrix_flops_per_s` is of AMD's matrix cores, which take fp32 as it is; NVIDIA's need TF32.

    NVLink's rate is the sum of both directions. It reaches every GPU of a "machine" (SXM boards, NVSwitch), or one
    other by a bridge that a "pair" of cards may have or not. AMD's boards link every pair of their GPUs by an Infinity
    Fabric link of its own, whose rate is the sum of both directions too.
    """

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    vendor: str
    generation: str
    compute_capability: str | None = None
    sm_count: int
    boost_hz: float
    memory_bytes: float
    memory_bytes_per_s: float
    memory_type: str | None = None
    l2_bytes: float | None = None
    fp64_flops_per_s: float | None = None
    fp32_flops_per_s: float
    fp32_matrix_flops_per_s: float | None = None
    fp16_flops_per_s: float | None = None
    fp16_tensor_flops_per_s: float | None = None
    bf16_tensor_flops_per_s: float | None = None
    tf32_tensor_flops_per_s: float | None = None
    nvlink_bytes_per_s: float | None = None
    nvlink_reach: NvlinkReach | None = None
    infinity_fabric_link_bytes_per_s: float | None = None
    pcie_bytes_per_s: float | None = None
    host_to_device_bytes_per_s: float | None = None
    tdp_w: float | None = None
    sustained_compute_ratio: float | None = None
    sustained_memory_ratio: float | None = None
    sustained_source: str | None = None
    released: str | None = None
    source: str
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """A CPU model. Bandwidth is of one socket; of a hybrid CPU only the performance cores count.

    `sustained_hz` is the clock of all cores at work, `boost_hz` that of a single one; each where it is known.
    """

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    vendor: str
    generation: str
    isa: tuple[str, ...]
    base_hz: float | None = None
    sustained_hz: float | None = None
    boost_hz: float | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    memory_bytes_per_s: float
    l2_bytes_per_core: float | None = None
    l3_bytes: float | None = None
    measured_read_bytes_per_s_8_vcpu: float | None = None
    measured_read_bytes_per_s_largest: float | None = None
    largest_vcpu_count: int | None = None
    sustained_compute_ratio: float | None = None
    sustained_memory_ratio: float | None = None
    sustained_source: str | None = None
    source: str
    notes: str = ""


REFERENCE_RESIDENT_THREADS = 2048.0
REFERENCE_HOST_HZ = 4e9
REFERENCE_CLOCK_HZ = 1.41e9
"""Of a core of the A100, on which `FamilyEfficiency.core_bytes_per_s` was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What one device can do, from a datasheet, a fit or a calibration: what prediction reads and nothing else.

    For a CPU this is the whole instance: its usable cores, its memory, its measured bandwidth.
    `peak_flops_per_s` is by unit: "fp32", "tf32", "fp16", "bf16" are what a matmul of that dtype reaches at most
    (tensor cores, AMX or SIMD); "vector" is fp32 outside them, "scalar" what a CPU's cores do without vectors, an
    operation in a cycle. A dtype the device has no native unit for is absent.
    `vcpu_count`: the hardware threads of the machine, of a GPU those of its host; None: not known.
    `gpu_count`: how many of it the machine has; `nvlink_bytes_per_s`: what one sends to the others of the machine by
    NVLink, in one direction and as far as collective operations reach it; `peer_link_bytes_per_s`: what it sends to
    each of them by a link of their own. Without both they talk by way of the host.
    `network_bytes_per_s`: what the machine sends to others of its type; None: not known.
    `power_ratio` is by unit too: the power limit over the power that the unit would draw at its peak, 1 at most.
    `streaming_ratio`: the share of the datasheet's bandwidth that long copies reach on its kind of memory.
    `resident_threads_per_core`, `clock_hz`: of a GPU, how many threads a core has under way at a time, and the clock of
    its peaks.
    `host_time_ratio`: how long the same code of a program takes on one core, over what it takes at `REFERENCE_HOST_HZ`;
    of a CPU, which dispatches its own kernels. What hosts GPUs have nobody knows: 1.
    `exceeds_rated_clock`: it is cooled and powered to run above the clock that its peak was computed from.
    `has_narrow_tensor_cores`: they have half the rate of others of their generation.
    `issue_contention`: how much other instructions are in the way of products in fp32 outside tensor cores, 1 at most.
    `cache_bytes_per_s`: how fast what lies in the last cache is read; None: nothing is known of it.
    `near_cache_bytes`: what of `cache_bytes` are the CPU cores' own caches.
    The `sustained` ratios are its own, measured beside what is predicted without them.
    `log_spread`: how uncertain the figures themselves are, one standard deviation of the logarithm; 0 of a datasheet.
    """

    id: str
    name: str
    kind: DeviceKind
    vendor: str
    generation: str
    core_count: float
    peak_flops_per_s: Mapping[str, float]
    memory_bytes: float
    memory_bytes_per_s: float
    cache_bytes: float
    cache_bytes_per_s: float | None = None
    near_cache_bytes: float = 0.0
    host_to_device_bytes_per_s: float | None = None
    vcpu_count: float | None = None
    gpu_count: int = 1
    nvlink_bytes_per_s: float | None = None
    peer_link_bytes_per_s: float | None = None
    network_bytes_per_s: float | None = None
    tdp_w: float | None = None
    power_ratio: Mapping[str, float] = field(default_factory=dict)
    streaming_ratio: float = 1.0
    resident_threads_per_core: float = REFERENCE_RESIDENT_THREADS
    clock_hz: float = REFERENCE_CLOCK_HZ
    host_time_ratio: float = 1.0
    exceeds_rated_clock: bool = False
    has_narrow_tensor_cores: bool = False
    issue_contention: float = 0.0
    sustained_compute_ratio: float = 1.0
    sustained_memory_ratio: float = 1.0
    log_spread: float = 0.0
    source: TimeSource = "datasheet"


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyEfficiency:
    """Share of the peak and of the bandwidth that one family of kernels sustains.

    `log_spread` is one standard deviation of log(measured / predicted) of a step that is all of this family.
    `core_bytes_per_s`: what a core with `REFERENCE_RESIDENT_THREADS` moves at most, however fast the memory is; None:
    as much as memory gives. `launch_s`: what a kernel takes beside its work; None: as those of other families.
    """

    compute_ratio: float
    memory_ratio: float
    log_spread: float
    n: int
    source: str
    core_bytes_per_s: float | None = None
    launch_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Fitted coefficients of one kind of device (and generation, and precision), with what they were fitted on.

    A calibration is of one `device`, by its id, and of a CPU with `core_count` cores of it; "*" and None: of any.

    `generation` "*" and `precision` "*" are the fallback; `precision` "half" stands for every one on 16-bit units.
    All defaults are those of an ideal device.

    Host: `dispatch_s` is its time per operator call in eager mode, `backward_dispatch_s` in the backward pass, which
    runs without Python, and `compiled_dispatch_s` per kernel that torch.compile has left. Device: `launch_s` is what
    one kernel takes beside its work, and n cores, which are woken and wait for each other, add `join_s` (n^0.7 - 1);
    where a CPU's library runs it (convolutions, in eager mode norms and pools) it takes `library_s` more, to look up
    how and to describe its operands. `overlap_ratio`: the share of the shorter one of compute and memory time that
    hides behind the longer (1.0: the plain roofline).

    Matrix products (m, k) x (k, n): `edge_ramp` and `depth_ramp` are the m or n, and the k, at which half the rate is
    reached; they run in tiles of `tile_rows` x `tile_columns`, one wave of them per `core_count` at a time, and
    `wave_ratio` is the exponent with which the emptiness of the last wave counts. `winograd_speedup`: of 3 x 3
    convolutions in fp32. `direct_ratio`: the share of the vector unit's peak that a GPU reaches with kernels that load
    every operand anew, where none is written for a convolution's shapes: for gradients of grouped convolutions' weights
    channels-last, 64 channels a group; for depthwise convolutions with large kernels a multiple of that.

    Bytes: `nchw_transposed_ratio`: the share of a convolution's images that tensor cores, or a CPU's library,
    transpose, in and back, where the model keeps them as NCHW; `bias_pass_ratio`: of a convolution's result that adding
    its bias reads and writes again; `repack_ratio`: of a convolution's parameters that a CPU's library puts into its
    own order at every call, a read and a write more; `cast_ratio`: of the casts of autocast that memory sees.
    `cache_kept_ratio`: the share of the last cache that still holds what the operator before has written;
    `cache_exponent`: how the sustained bandwidth grows with the cache over `REFERENCE_CACHE_BYTES`, since it catches
    what kernels read twice. `narrow_product_ratio`: the share of a long copy's rate at which a product of no more than
    one tile of rows reads its parameters, each once; 0: as others do.

    The generation beside all others: `generation_compute_ratio`, `generation_memory_ratio`, of what is sustained.
    Clocks: `power_exponent`: how the sustained rate falls with `Device.power_ratio`; `clock_ratio`: the sustained over
    the rated clock of those that exceed it, but where `Device.issue_contention` acts. `narrow_tensor_speedup`: of
    narrow tensor cores, in share of peak; `shared_issue_ratio`: of products in fp32 where that contention is 1.

    Spread, each one standard deviation of log(measured / predicted): `device_log_spread` is an offset that a device has
    for all workloads, `workload_log_spread` one that a workload has on all devices, `host_log_spread` one of the host's
    time, which counts by its share of the step; `backward_log_spread` and `compiled_log_spread` are more than these in
    a step with a backward pass, or by torch.compile. `other_vendor_log_spread` is that of a device whose vendor is not
    among the `fitted_vendors`, beside the rest.

    `operator_ratios`, of what calibrations start from: how long operators took over and over where whole steps were
    timed, by their names, over what these coefficients say of them in a net.
    """

    kind: DeviceKind
    vendor: str
    generation: str
    precision: str
    families: Mapping[str, FamilyEfficiency]
    dispatch_s: float
    backward_dispatch_s: float
    launch_s: float
    device_log_spread: float
    compiled_dispatch_s: float = 0.0
    workload_log_spread: float = 0.0
    backward_log_spread: float = 0.0
    compiled_log_spread: float = 0.0
    host_log_spread: float = 0.0
    other_vendor_log_spread: float = 0.0
    join_s: float = 0.0
    library_s: float = 0.0
    overlap_ratio: float = 1.0
    edge_ramp: float = 0.0
    depth_ramp: float = 0.0
    tile_rows: float = 128.0
    tile_columns: float = 128.0
    wave_ratio: float = 0.0
    winograd_speedup: float = 1.0
    nchw_transposed_ratio: float = 0.0
    bias_pass_ratio: float = 0.0
    repack_ratio: float = 0.0
    cast_ratio: float = 1.0
    direct_ratio: float = 1.0
    cache_kept_ratio: float = 0.0
    cache_exponent: float = 0.0
    narrow_product_ratio: float = 0.0
    power_exponent: float = 0.0
    clock_ratio: float = 1.0
    narrow_tensor_speedup: float = 1.0
    shared_issue_ratio: float = 1.0
    generation_compute_ratio: float = 1.0
    generation_memory_ratio: float = 1.0
    operator_ratios: Mapping[str, float] = field(default_factory=dict)
    device: str = "*"
    core_count: float | None = None
    fitted_vendors: tuple[str, ...] = ()
    fitted_on: tuple[str, ...] = field(default=())
    date: str
    source: str


REFERENCE_CACHE_BYTES = 6e6
"""The last cache of the GPUs that most was measured on (RTX 3090, V100): `cache_exponent` counts from there."""
