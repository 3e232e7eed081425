"""Estimates the rates that a GPU sustains for minutes, from its power limit, memory type and architecture."""

from collections.abc import Mapping

from advisor.records.device import REFERENCE_RESIDENT_THREADS, Gpu

_JOULE_PER_FLOP: Mapping[str, tuple[float, float]] = {
    "5.2": (28e-12, 28e-12),  # Tesla M40: 250 W / 7.0 TFLOPS, at a ratio of 1 by definition
    "6.0": (26.2e-12, 13.1e-12),  # P100 PCIe: 250 W / 9.5 TFLOPS, 19.1 in half
    "6.1": (22.0e-12, 22.0e-12),  # GTX 1080 Ti: 250 W / 11.3 TFLOPS
    "7.0": (17.7e-12, 2.2e-12),  # V100 PCIe: 250 W / 14.1 TFLOPS, 112 on tensor cores
    "7.5": (18.6e-12, 2.1e-12),  # RTX 2080 Ti: 250 W / 13.4 TFLOPS; TITAN RTX: 280 W / 130 TFLOPS on tensor cores
    "8.0": (14.4e-12, 1.28e-12),  # A100 PCIe, see below; A100 SXM: 400 W / 312 TFLOPS on tensor cores
    "8.6": (9.8e-12, 1.9e-12),  # RTX 3090: 350 W / 35.6 TFLOPS; RTX A6000: 300 W / 155 TFLOPS on tensor cores
    "8.9": (5.4e-12, 0.97e-12),  # RTX 4090: 450 W / 82.6 TFLOPS; L40S: 350 W / 362 TFLOPS on tensor cores
    "9.0": (6.8e-12, 0.71e-12),  # H100 PCIe: 350 W / 51.2 TFLOPS; H100 SXM: 700 W / 989 TFLOPS on tensor cores
    "12.0": (5.5e-12, 1.2e-12),  # RTX 5090: 575 W / 104.8 TFLOPS; RTX PRO 6000: 600 W / 504 TFLOPS on tensor cores
}
"""Energy of a FLOP (vector units, tensor cores) at the rated clock, by compute capability.

From the datasheets of the named parts, which have the most power per FLOP of their generation. The A100 PCIe is limited
by its 250 W: in NeuSight's linear layers it reaches at most 0.85 of its peak, and a V100 0.93.
"""

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
_ISSUE_CONTENTIONS: Mapping[str, float] = {
    "8.6": 1.0, "8.7": 1.0, "8.9": 1.0, "9.0": 0.5, "10.0": 0.5, "10.3": 0.5, "12.0": 1.0, "12.1": 1.0,
}  # fmt: skip
"""Contention for fp32 issue slots, by compute capability; see `issue_contention`.

The lanes are from the CUDA C programming guide, throughput of native arithmetic instructions. If power allows, fp32
matmuls of size 8,192 and more reach 0.54 to 0.78 of the rated peak on these GPUs (an H100 0.74 to 0.77), and 0.8 to
1.06 on earlier GPUs (scripts/data/matmuls.csv)."""
_RESIDENT_THREADS: Mapping[str, float] = {"7.5": 1024, "8.6": 1536, "8.9": 1536, "12.0": 1536}
"""Maximum resident threads per SM, if not 2,048 (CUDA C programming guide, technical specifications by compute
capability).

AMD's compute units are assumed to hold 2,048; no measurement there depends on it.
"""
_NVLINK_RATIOS: Mapping[str, float] = {
    "6.0": 18 / 20, "7.0": 20 / 25, "7.5": 20 / 25, "8.0": 20 / 25, "8.6": 12 / 14.0625, "9.0": 20.6 / 25,
    "10.0": 40.1 / 50, "10.3": 40.1 / 50,
}  # fmt: skip
"""Share of an NVLink's rate that collective operations such as all-reduce reach, in one direction, by compute
capability.

NCCL's own figures (src/graph/topo.h: `SM80_NVLINK_BW` and similar; it treats Turing as Volta).
"""


_INFINITY_FABRIC_RATIOS: Mapping[str, float] = {"CDNA 3.0": 48 / 64}
"""The same for AMD's links, by generation (RCCL, src/graph/topo.h: `GFX94X_XGMI_WIDTH`)."""


def nvlink_bytes_per_s(gpu: Gpu) -> float | None:
    """Return the NVLink rate from a GPU to the others of its machine, in one direction.

    None if NVLink connects it to at most one other GPU.
    """
    ratio = _NVLINK_RATIOS.get(gpu.compute_capability or "")
    if gpu.nvlink_bytes_per_s is None or gpu.nvlink_reach != "machine" or ratio is None:
        return None
    return gpu.nvlink_bytes_per_s / 2 * ratio


def peer_link_bytes_per_s(gpu: Gpu) -> float | None:
    """Return the Infinity Fabric rate from a GPU to one other of its machine, in one direction; None without links."""
    ratio = _INFINITY_FABRIC_RATIOS.get(gpu.generation)
    if gpu.infinity_fabric_link_bytes_per_s is None or ratio is None:
        return None
    return gpu.infinity_fabric_link_bytes_per_s / 2 * ratio


def power_ratios(gpu: Gpu) -> dict[str, float]:
    """Return the power limit relative to the power at full rate, by unit, at most 1; empty if unknown."""
    energies = _JOULE_PER_FLOP.get(gpu.compute_capability or "")
    if energies is None or gpu.tdp_w is None:
        return {}
    vector_j, tensor_j = energies
    half = gpu.fp16_tensor_flops_per_s or gpu.bf16_tensor_flops_per_s
    ratios = {"fp32": min(1.0, gpu.tdp_w / (vector_j * gpu.fp32_flops_per_s))}
    if half is not None:
        ratios |= dict.fromkeys(("fp16", "bf16", "tf32"), min(1.0, gpu.tdp_w / (tensor_j * half)))
    return ratios


def streaming_ratio(gpu: Gpu) -> float:
    """Return the share of the rated bandwidth that long copies reach."""
    own = _OWN_STREAMING_RATIOS.get(gpu.compute_capability or "")
    return own or _STREAMING_RATIOS.get(gpu.memory_type or "", _UNKNOWN_STREAMING_RATIO)


def resident_threads(gpu: Gpu) -> float:
    """Return the maximum number of resident threads per SM."""
    return _RESIDENT_THREADS.get(gpu.compute_capability or "", REFERENCE_RESIDENT_THREADS)


def has_narrow_tensor_cores(gpu: Gpu) -> bool:
    """Return whether the tensor cores have half the usual rate, as on GeForce cards, with fp32 accumulation.

    Caches and registers can then supply them better, so they reach a larger share of their peak.
    """
    half = gpu.fp16_tensor_flops_per_s
    if gpu.compute_capability is None or half is None:
        return False
    return half / (gpu.sm_count * gpu.boost_hz) < _NARROW_FLOPS_PER_CYCLE


def issue_contention(gpu: Gpu) -> float:
    """Return how much other instructions slow down fp32 multiply-adds outside tensor cores, from 0 to 1.

    0 if an SM has half as many fp32 lanes as issue slots, or issues two instructions per slot. Otherwise it has 128 of
    both, and integer instructions for loops and addresses take issue slots (0.5), or lanes as well (1).
    """
    return _ISSUE_CONTENTIONS.get(gpu.compute_capability or "", 0.0)


def exceeds_rated_clock(gpu: Gpu) -> bool:
    """Return whether the GPU exceeds its rated boost clock if power and temperature allow, as GeForce and TITAN do."""
    return gpu.name.startswith(("GeForce", "TITAN"))
