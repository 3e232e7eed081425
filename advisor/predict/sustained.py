"""Estimates the rates that a GPU sustains for minutes, from its power limit, memory type and architecture."""

from collections.abc import Mapping

from advisor.records.device import Gpu, NvlinkReach
from advisor.records.gpu_architecture import ARCHITECTURES, GpuArchitecture

_NARROW_FLOPS_PER_CYCLE = 600.0
"""Limit for the 16-bit FLOP per cycle of an SM's tensor cores: 512 on GeForce, 1024 and more on other GPUs of the same
generation."""

_STREAMING_RATIOS: Mapping[str, float] = {
    "GDDR5": 0.77, "GDDR5X": 0.80, "GDDR6": 0.80, "GDDR6X": 0.92, "GDDR7": 0.92,
    "HBM2": 0.90, "HBM2e": 0.87, "HBM3": 0.90, "HBM3e": 0.90,
}  # fmt: skip
"""Share of the rated bandwidth that large elementwise operators reach, by type of memory.

Measured in NeuSight's operators: P4 (GDDR5) 0.77, T4 (GDDR6) 0.78, V100 (HBM2) 0.92, A100 0.87. The others are taken
from the nearest of these. The fitted ratios are relative to these values.
"""
_UNKNOWN_STREAMING_RATIO = 0.85
_OWN_STREAMING_RATIOS: Mapping[str, float] = {"6.0": 0.75}
"""Exceptions by compute capability. P100, the first GPU with HBM2, from NeuSight's operators."""
_INFINITY_FABRIC_RATIOS: Mapping[str, float] = {"CDNA 3.0": 48 / 64}
"""`GpuArchitecture.nvlink_ratio` for AMD's links, by generation (RCCL, src/graph/topo.h: `GFX94X_XGMI_WIDTH`)."""


def architecture_of(gpu: Gpu) -> GpuArchitecture | None:
    """Return the figures of the GPU's compute capability; None if it has none, like AMD's, or an unknown one."""
    return ARCHITECTURES.get(gpu.compute_capability or "")


def nvlink_bytes_per_s(gpu: Gpu, *, reach: NvlinkReach = "machine") -> float | None:
    """Return the NVLink rate from a GPU to those that it reaches, in one direction; None if its reach is another."""
    architecture = architecture_of(gpu)
    if gpu.nvlink_bytes_per_s is None or gpu.nvlink_reach != reach or architecture is None:
        return None
    return gpu.nvlink_bytes_per_s / 2 * architecture.nvlink_ratio if architecture.nvlink_ratio else None


def switch_bytes_per_s(gpu: Gpu) -> float | None:
    """Return the rate of one GPU at which NVSwitch adds up what all GPUs send; None if it cannot."""
    architecture, rate = architecture_of(gpu), nvlink_bytes_per_s(gpu)
    return rate * architecture.switch_ratio if rate and architecture and architecture.switch_ratio else None


def peer_link_bytes_per_s(gpu: Gpu) -> float | None:
    """Return the Infinity Fabric rate from a GPU to one other of its machine, in one direction; None without links."""
    ratio = _INFINITY_FABRIC_RATIOS.get(gpu.generation)
    if gpu.infinity_fabric_link_bytes_per_s is None or ratio is None:
        return None
    return gpu.infinity_fabric_link_bytes_per_s / 2 * ratio


def power_ratios(gpu: Gpu) -> dict[str, float]:
    """Return the power limit relative to the power at full rate, by unit, at most 1; empty if unknown.

    Tensor cores are taken to need the same power at any width, like the multipliers that they share.
    """
    architecture = architecture_of(gpu)
    if architecture is None or architecture.joule_per_flop is None or gpu.tdp_w is None:
        return {}
    vector_j, tensor_j = architecture.joule_per_flop
    half = gpu.fp16_tensor_flops_per_s or gpu.bf16_tensor_flops_per_s
    ratios = {"fp32": min(1.0, gpu.tdp_w / (vector_j * gpu.fp32_flops_per_s))}
    if half is not None:
        ratios |= dict.fromkeys(("fp16", "bf16", "tf32", "fp8", "int8"), min(1.0, gpu.tdp_w / (tensor_j * half)))
    return ratios


def streaming_ratio(gpu: Gpu) -> float:
    """Return the share of the rated bandwidth that long copies reach."""
    own = _OWN_STREAMING_RATIOS.get(gpu.compute_capability or "")
    return own or _STREAMING_RATIOS.get(gpu.memory_type or "", _UNKNOWN_STREAMING_RATIO)


def has_narrow_tensor_cores(gpu: Gpu) -> bool:
    """Return whether the tensor cores have half the usual rate, as on GeForce cards, with fp32 accumulation.

    Caches and registers can then supply them better, so they reach a larger share of their peak.
    """
    half = gpu.fp16_tensor_flops_per_s
    if gpu.compute_capability is None or half is None:
        return False
    return half / (gpu.sm_count * gpu.boost_hz) < _NARROW_FLOPS_PER_CYCLE


def exceeds_rated_clock(gpu: Gpu) -> bool:
    """Return whether the GPU exceeds its rated boost clock if power and temperature allow, as GeForce and TITAN do."""
    return gpu.name.startswith(("GeForce", "TITAN"))
