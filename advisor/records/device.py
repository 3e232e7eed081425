"""Defines the datasheets of GPUs and CPUs, the device that is predicted for, and the fitted efficiencies."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any, Literal

DeviceKind = Literal["cpu", "gpu"]
Architecture = Literal["x86", "arm"]
"""The instruction set of a machine's CPU, 64 bits."""
Precision = Literal["fp32", "cudnn-tf32", "tf32", "amp-fp16", "amp-bf16", "bf16", "fp16"]
"""How the step runs: fp32; fp32 with TF32 in cuDNN alone (convolutions and recurrent layers), which is torch's default
on GPUs with TF32; fp32 with TF32 in matmuls too; autocast; or the whole model in half precision."""
Layout = Literal["nchw", "nhwc"]
CompileMode = Literal["eager", "compile"]
NvlinkReach = Literal["machine", "bridged", "pair"]
TimeSource = Literal["measured", "calibrated", "fitted", "datasheet"]

ANY = "*"
"""Matches everything in a field of an `Efficiency` or as a key of its families."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU's datasheet; None means that the GPU has no such unit or the figure is not known.

    - `*_tensor_flops_per_s`: dense rates of tensor cores
    - `fp32_matrix_flops_per_s`: rate of AMD's matrix cores in plain fp32, which NVIDIA's run only as TF32
    - `nvlink_bytes_per_s`: the sum of both directions
    - `nvlink_reach`: "machine" if NVLink connects all GPUs of a machine (SXM boards, NVSwitch), "bridged" if it
      connects pairs of cards, "pair" if an optional bridge does, which machines are taken not to have
    - `infinity_fabric_link_bytes_per_s`: the link between each pair of AMD GPUs, as the sum of both directions
    - `host_architecture`: of the CPU on the same board (GH200); None for a GPU that any CPU can have
    - `sustained_compute_ratio`, `sustained_memory_ratio`: measured over predicted rate of computing and of memory, from
      `advise fit-device`
    - `part_of`: the id of the GPU that this is a part of, as a MIG instance or a vGPU; its figures are the part's
    - `stack`: the software that runs models on it, such as torch-neuronx; None if PyTorch's own kernels do
    - `time_ratio`: share of a time-sliced GPU that the figures are for; alone on it, a tenant may get all of it
    """

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    vendor: str
    generation: str
    compute_capability: str | None = None
    host_architecture: Architecture | None = None
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
    part_of: str | None = None
    time_ratio: float = 1.0
    stack: str | None = None
    released: str | None = None
    source: str
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBandwidth:
    """The bandwidth that all threads of some cores of a CPU reach together when they read memory."""

    cores: float
    read_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """A CPU's datasheet; on a hybrid CPU only the performance cores count.

    - `sustained_hz`: clock with all cores busy, if known
    - `boost_hz`: highest clock of a single core, if known
    - `memory_bytes_per_s`: bandwidth of one socket
    - `measured`: median bandwidth of the measured instances of each size, in increasing order of their cores
    - `sustained_compute_ratio`, `sustained_memory_ratio`: as in `Gpu`
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
    measured: tuple[MeasuredBandwidth, ...] = ()
    sustained_compute_ratio: float | None = None
    sustained_memory_ratio: float | None = None
    sustained_source: str | None = None
    source: str
    notes: str = ""


REFERENCE_RESIDENT_THREADS = 2048.0
REFERENCE_HOST_HZ = 4e9
REFERENCE_CLOCK_HZ = 1.41e9
"""Clock of an SM of the A100, on which `FamilyEfficiency.core_bytes_per_s` was measured."""
MAPPED_BLOCK_BYTES = 32 * 2**20
"""Size from which glibc's malloc maps new memory for a block that finds no room in the heap and returns it to the
system afterwards (DEFAULT_MMAP_THRESHOLD_MAX in malloc.c, which the threshold reaches once such blocks were freed).
Every page takes a fault when it is first written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Everything that prediction knows about one device, from a datasheet, a fit or a calibration.

    A CPU device is the whole instance: its usable cores, its memory and its measured bandwidth.

    - `core_count`: SMs of a GPU, physical cores of a CPU
    - `peak_flops_per_s`: by unit. "fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8" and "fp4" are the peak of a
      matmul of that dtype (tensor cores, AMX or SIMD); "vector" is fp32 outside those units. A dtype without a native
      unit is missing
    - `cache_bytes_per_s`: bandwidth of the last-level cache; None if not known
    - `near_cache_bytes`: the part of `cache_bytes` in the private caches of CPU cores
    - `vcpu_count`: hardware threads of the machine, for a GPU those of its host; None if not known
    - `gpu_count`: GPUs in the machine
    - `nvlink_bytes_per_s`: rate of one GPU to the others in the machine over NVLink, in one direction, as collective
      operations reach it
    - `bridge_bytes_per_s`: the same to the one other GPU that a bridge connects
    - `peer_link_bytes_per_s`: rate to each other GPU, if every pair has its own link. Without either, GPUs communicate
      through the host
    - `switch_bytes_per_s`: rate of one GPU at which the switch between them adds up what all send; None if it cannot
    - `network_bytes_per_s`: rate of the machine to others of its type; None if not known
    - `power_ratio`: by unit, the power limit over the power that the unit would draw at its peak, at most 1
    - `memory_type`: as in `Gpu`; None for a CPU
    - `streaming_ratio`: share of the datasheet's bandwidth that long copies reach on this type of memory
    - `resident_threads_per_core`: threads in flight per SM
    - `clock_hz`: the clock of a GPU's peaks
    - `host_time_ratio`: time of the same code on one core of the host over its time at `REFERENCE_HOST_HZ`; a CPU is
      its own host. 1 if the host of a GPU is not known
    - `host_cpu`: the CPU of a GPU's host, by its id; None if it or its clock is not known
    - `exceeds_rated_clock`: cooling and power allow a higher clock than the one its peak was computed from
    - `has_narrow_tensor_cores`: tensor cores with half the rate of others of their generation
    - `has_matrix_unit`: a CPU multiplies in bf16 by a unit for matrices (AMX), not in vectors
    - `issue_contention`: how much other instructions slow down fp32 products outside tensor cores, at most 1
    - `convolves_by_fft`: as in `GpuArchitecture`
    - `sustained_compute_ratio`, `sustained_memory_ratio`: as in `Gpu`
    - `part_of`, `time_ratio`, `stack`: as in `Gpu`
    - `log_spread`: uncertainty of these figures, one standard deviation of the logarithm; 0 for a datasheet
    - `isa`: the widest instruction set of a CPU for which engines have kernels, as in `EngineIsa`
    - `numa_nodes`, `node_bytes_per_s`: NUMA nodes of a CPU instance, and the bandwidth of one of them
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
    bridge_bytes_per_s: float | None = None
    peer_link_bytes_per_s: float | None = None
    switch_bytes_per_s: float | None = None
    network_bytes_per_s: float | None = None
    tdp_w: float | None = None
    power_ratio: Mapping[str, float] = field(default_factory=dict)
    memory_type: str | None = None
    streaming_ratio: float = 1.0
    resident_threads_per_core: float = REFERENCE_RESIDENT_THREADS
    clock_hz: float = REFERENCE_CLOCK_HZ
    host_time_ratio: float = 1.0
    host_cpu: str | None = None
    exceeds_rated_clock: bool = False
    has_narrow_tensor_cores: bool = False
    has_matrix_unit: bool = False
    issue_contention: float = 0.0
    convolves_by_fft: bool = False
    sustained_compute_ratio: float = 1.0
    sustained_memory_ratio: float = 1.0
    part_of: str | None = None
    time_ratio: float = 1.0
    stack: str | None = None
    log_spread: float = 0.0
    isa: str = ""
    numa_nodes: int = 1
    node_bytes_per_s: float = 0.0
    source: TimeSource = "datasheet"


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyEfficiency:
    """The achieved share of peak compute and of bandwidth in one kernel family.

    - `log_spread`: standard deviation of log(measured / predicted) for a step of this family alone
    - `n`: number of measurements
    - `core_bytes_per_s`: the most that an SM with `REFERENCE_RESIDENT_THREADS` moves, however fast the memory is; None
      if only memory limits it
    - `launch_s`: launch overhead of a kernel; None: the same as in other families
    """

    compute_ratio: float
    memory_ratio: float
    log_spread: float
    n: int
    source: str
    core_bytes_per_s: float | None = None
    launch_s: float | None = None


@dataclass(frozen=True, slots=True)
class Prior:
    """The prior of a coefficient in a fit: its start, its bounds and one standard deviation of its logarithm."""

    start: float
    low: float
    high: float
    log_sigma: float = 0.5


def fitted(
    default: Any = MISSING, *, gpu: Prior | None = None, cpu: Prior | None = None, by_precision: bool = False
) -> Any:
    """Make the field of a coefficient that fits determine on these kinds of devices, once or for each precision."""
    priors = {kind: prior for kind, prior in (("gpu", gpu), ("cpu", cpu)) if prior is not None}
    return field(default=default, metadata={"priors": priors, "by_precision": by_precision})


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Fitted coefficients for one device kind, generation and precision; the defaults describe an ideal device.

    A coefficient's field has the priors of its fit; `predict/rates.py` and `predict/kernel_time.py` use it.

    Validity:
    - `generation`, `precision`: "*" is the fallback for all; `precision` "half" means every one on 16-bit units
    - `device`, `core_count`: a calibration is valid for this device id and, on a CPU, for this number of cores; "*" and
      None mean any

    Overheads:
    - `dispatch_s`: host time per operator call in eager mode (dispatch overhead)
    - `backward_dispatch_s`: the same in the backward pass, which runs without Python
    - `compiled_dispatch_s`: host time per kernel under torch.compile
    - `launch_s`: launch overhead of a kernel on the device
    - `join_s`: waking and joining n cores adds `join_s` (n^0.5 - 1)
    - `library_s`: added on a CPU if a library runs the operator (convolutions; in eager mode also norms and pools), for
      its lookup and descriptors
    - `page_s`: time of a page fault on a CPU, one for every 4 KiB of a convolution's parameters that a library reorders
      if they take 32 MiB or more
    - `overlap_ratio`: share of the shorter of compute and memory time that is hidden behind the longer; 1.0 is the
      plain roofline

    Matrix products (m, k) x (k, n) and convolutions:
    - `edge_ramp`, `depth_ramp`: the m or n, and the k, at which half the rate is reached. A CPU has no `edge_ramp`:
      the packing of weights (`lowering`) makes its products with few rows slow
    - `tile_rows`, `tile_columns`: size of a tile; one wave is one tile per core
    - `wave_ratio`: exponent of wave quantization, the idle share of the last wave
    - `winograd_speedup`: speedup of 3 x 3 convolutions in fp32
    - `direct_ratio`: share of the vector unit's peak that a GPU reaches with generic convolution kernels, which reload
      every operand: weight gradients of grouped channels-last convolutions with 64 channels per group. Depthwise
      convolutions with large kernels reach a multiple of it

    Bytes:
    - `nchw_transposed_ratio`: share of a convolution's images that is transposed and back for tensor cores or a CPU
      library, if the model keeps NCHW. On NVIDIA's GPUs it holds for 1 x 1 kernels and for images of up to three
      channels; cuDNN always transposes the images of other kernels
    - `repack_ratio`: share of a convolution's parameters that a CPU library reorders in every call, with one more read
      and write
    - `cache_kept_ratio`: share of the last-level cache that still holds the output of the previous operator
    - `narrow_product_ratio`: share of a long copy's rate at which a product of at most one tile of rows reads its
      parameters; 0: like other products

    Generation and clocks:
    - `generation_compute_ratio`, `generation_memory_ratio`: sustained rates of this generation relative to all others
    - `power_exponent`: decrease of the sustained rate with `Device.power_ratio`
    - `clock_ratio`: sustained over rated clock of devices that exceed it, except under `Device.issue_contention`
    - `narrow_tensor_speedup`: achieved share of peak of narrow tensor cores relative to others
    - `shared_issue_ratio`: relative rate of fp32 products at an `issue_contention` of 1
    - `matrix_unit_ratio`: achieved share of peak of a CPU's matrix unit (AMX) relative to vector units

    Spreads, each one standard deviation of log(measured / predicted):
    - `device_log_spread`: an offset of one device on all workloads
    - `unseen_log_spread`: added for a device that is not in `fitted_on`: none of its steps in this precision was fitted
    - `workload_log_spread`: an offset of one workload on all devices
    - `host_log_spread`: of the host's time, weighted by its share of the step
    - `backward_log_spread`, `compiled_log_spread`: added for a step with a backward pass, and under torch.compile
    - `other_vendor_log_spread`: added for a device whose vendor is not in `fitted_vendors`

    Start of calibrations:
    - `memory_type_ratios`: by type of memory, sustained bandwidth relative to `Device.streaming_ratio`; others have 1
    - `operator_ratios`: by operator name, time of the operator in a loop over its predicted time within a network
    """

    kind: DeviceKind
    vendor: str
    generation: str
    precision: str
    families: Mapping[str, FamilyEfficiency]
    # Hosts of 2020, which bound most rows, are slower.
    dispatch_s: float = fitted(gpu=Prior(35e-6, 5e-6, 80e-6, 0.1), cpu=Prior(2e-6, 2e-7, 3e-5))
    backward_dispatch_s: float = fitted(gpu=Prior(35e-6, 5e-6, 80e-6))
    launch_s: float = fitted(gpu=Prior(4e-6, 1e-6, 2e-5), cpu=Prior(2e-6, 2e-7, 3e-5))
    device_log_spread: float
    compiled_dispatch_s: float = fitted(0.0, gpu=Prior(8e-6, 2e-6, 4e-5), cpu=Prior(2e-6, 2e-7, 3e-5))
    unseen_log_spread: float = 0.0
    workload_log_spread: float = 0.0
    backward_log_spread: float = 0.0
    compiled_log_spread: float = 0.0
    host_log_spread: float = 0.0
    other_vendor_log_spread: float = 0.0
    join_s: float = fitted(0.0, cpu=Prior(2e-6, 1e-8, 4e-5, 0.7))
    # 40 us beyond a small convolution's work on a Granite Rapids, oneDNN in torch 2.13.
    library_s: float = fitted(0.0, cpu=Prior(4e-5, 1e-6, 2e-4, 0.7))
    # 0.9 to 1.5 us on a virtual machine (an Emerald Rapids, Linux 6.18).
    page_s: float = fitted(0.0, cpu=Prior(1e-6, 1e-7, 1e-5, 0.5))
    overlap_ratio: float = fitted(1.0, gpu=Prior(0.6, 0.2, 1.0), cpu=Prior(0.6, 0.2, 1.0))
    # Tensor cores use larger tiles than vector units.
    edge_ramp: float = fitted(0.0, gpu=Prior(8.0, 0.5, 64.0), by_precision=True)
    depth_ramp: float = fitted(0.0, gpu=Prior(8.0, 0.5, 64.0), cpu=Prior(8.0, 0.5, 64.0), by_precision=True)
    tile_rows: float = 128.0
    tile_columns: float = 128.0
    wave_ratio: float = fitted(0.0, gpu=Prior(0.5, 0.05, 1.0))
    # 2.25: F(2 x 2, 3 x 3), Lavin and Gray 2016
    winograd_speedup: float = fitted(1.0, gpu=Prior(1.6, 1.0, 2.25))
    nchw_transposed_ratio: float = fitted(0.0, gpu=Prior(0.27, 0.02, 1.0), cpu=Prior(0.5, 0.02, 1.0))
    repack_ratio: float = fitted(0.0, cpu=Prior(0.7, 0.02, 2.0))
    # 0.008 on a V100 with cuDNN 7.6, github.com/pytorch/pytorch/issues/34977; the start lies between that and the
    # start of depthwise gradients.
    direct_ratio: float = fitted(1.0, gpu=Prior(0.034, 0.002, 1.0, 1.0))
    cache_kept_ratio: float = fitted(0.0, gpu=Prior(0.3, 0.02, 1.0))
    narrow_product_ratio: float = fitted(0.0, gpu=Prior(0.95, 0.5, 1.1, 0.1))
    power_exponent: float = fitted(0.0, gpu=Prior(0.75, 0.4, 1.2, 0.08))
    # GeForce boards run at 1.85 to 2.75 GHz, rated 1.7 to 2.52.
    clock_ratio: float = fitted(1.0, gpu=Prior(1.12, 1.0, 1.25, 0.03))
    narrow_tensor_speedup: float = fitted(1.0, gpu=Prior(1.1, 1.0, 1.4, 0.15))
    shared_issue_ratio: float = fitted(1.0, gpu=Prior(0.7, 0.5, 1.0, 0.3))
    # AMX multiplies two tiles while a core loads about one, from L2 at 48 of 64 bytes per cycle.
    matrix_unit_ratio: float = fitted(1.0, cpu=Prior(0.6, 0.1, 1.0, 0.3))
    generation_compute_ratio: float = 1.0
    generation_memory_ratio: float = 1.0
    memory_type_ratios: Mapping[str, float] = field(default_factory=dict)
    operator_ratios: Mapping[str, float] = field(default_factory=dict)
    device: str = "*"
    core_count: float | None = None
    fitted_vendors: tuple[str, ...] = ()
    fitted_on: tuple[str, ...] = field(default=())
    date: str
    source: str
