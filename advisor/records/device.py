"""Datasheet records of GPUs and CPUs, and the one shape of what a device can do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DeviceKind = Literal["cpu", "gpu"]
Precision = Literal["fp32", "tf32", "amp-fp16", "amp-bf16", "bf16", "fp16"]
"""How the step runs: fp32, fp32 with TF32 matmuls, autocast, or the whole model in half."""
Layout = Literal["nchw", "nhwc"]
CompileMode = Literal["eager", "compile"]
TimeSource = Literal["measured", "calibrated", "fitted", "datasheet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU's published figures. Tensor rates are dense. None: the part has no such unit, or no figure is known."""

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
    l2_bytes: float | None = None
    fp64_flops_per_s: float | None = None
    fp32_flops_per_s: float
    fp16_flops_per_s: float | None = None
    fp16_tensor_flops_per_s: float | None = None
    bf16_tensor_flops_per_s: float | None = None
    tf32_tensor_flops_per_s: float | None = None
    nvlink_bytes_per_s: float | None = None
    pcie_bytes_per_s: float | None = None
    host_to_device_bytes_per_s: float | None = None
    tdp_w: float | None = None
    released: str | None = None
    source: str
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """A CPU model as clouds rent it. Bandwidth is of one socket; `sustained_hz` is the all-core clock where known."""

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    vendor: str
    generation: str
    isa: tuple[str, ...]
    base_hz: float | None = None
    sustained_hz: float | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    memory_bytes_per_s: float
    l3_bytes: float | None = None
    measured_read_bytes_per_s_8_vcpu: float | None = None
    measured_read_bytes_per_s_largest: float | None = None
    largest_vcpu_count: int | None = None
    source: str
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What one device can do, from a datasheet, a fit or a calibration: what prediction reads and nothing else.

    For a CPU this is the whole instance: its usable cores, its memory, its measured bandwidth.
    `peak_flops_per_s` is by unit: "fp32", "tf32", "fp16", "bf16" are what a matmul of that dtype reaches at most
    (tensor cores, AMX or SIMD); "vector" is fp32 outside them. A dtype the device has no native unit for is absent.
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
    host_to_device_bytes_per_s: float | None = None
    tdp_w: float | None = None
    source: TimeSource = "datasheet"


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyEfficiency:
    """Share of the peak and of the bandwidth that one op family sustains; the spread is of log(measured/predicted)."""

    compute_ratio: float
    memory_ratio: float
    log_spread: float
    n: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Fitted coefficients of one kind of device (and generation, and precision), with what they were fitted on.

    `generation` "*" and `precision` "*" are the fallback. `dispatch_s` is host time per operator call in eager mode,
    `launch_s` what one kernel takes on the device beside its work. `overlap_ratio`: the share of the shorter one of
    compute and memory time that hides behind the longer (1.0: the plain roofline). `nchw_transposed_ratio`: the share
    of a convolution's tensors that tensor cores transpose, in and back, where the model keeps images as NCHW.
    """

    kind: DeviceKind
    vendor: str
    generation: str
    precision: str
    families: Mapping[str, FamilyEfficiency]
    dispatch_s: float
    launch_s: float
    device_log_spread: float
    overlap_ratio: float = 1.0
    nchw_transposed_ratio: float = 0.0
    fitted_on: tuple[str, ...] = field(default=())
    date: str
    source: str
