"""A GPU's profile in, what it keeps up for minutes out: its power limit against its appetite, and its memory's kind."""

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

From the datasheets of the parts named: those of their generation that have the most power for what they compute. The
A100 PCIe is held back by its 250 W: in NeuSight's linear layers it reaches 0.85 of its peak at most, a V100 0.93.
"""

_NARROW_FLOPS_PER_CYCLE = 600.0
"""Of one multiprocessor's tensor cores, in half: 512 on GeForce, 1024 and more on others of the same generation."""

_STREAMING_RATIOS: Mapping[str, float] = {
    "GDDR5": 0.77, "GDDR5X": 0.80, "GDDR6": 0.80, "GDDR6X": 0.92, "GDDR7": 0.92,
    "HBM2": 0.90, "HBM2e": 0.87, "HBM3": 0.90, "HBM3e": 0.90,
}  # fmt: skip
"""Share of the rated bandwidth that large elementwise operators reach, by kind of memory.

NeuSight's operators: P4 (GDDR5) 0.77, T4 (GDDR6) 0.78, V100 (HBM2) 0.92, A100 0.87; the others are taken from the
nearest of these, and the fitted ratios are relative to them.
"""
_UNKNOWN_STREAMING_RATIO = 0.85
_OWN_STREAMING_RATIOS: Mapping[str, float] = {"6.0": 0.75}
"""P100, by NeuSight's operators: the first HBM2."""
_ISSUE_CONTENTIONS: Mapping[str, float] = {
    "8.6": 1.0, "8.7": 1.0, "8.9": 1.0, "9.0": 0.5, "10.0": 0.5, "10.3": 0.5, "12.0": 1.0, "12.1": 1.0,
}  # fmt: skip
"""Lanes by compute capability: CUDA C programming guide, throughput of native arithmetic instructions.

Where power allows, products of 8,192 and more in fp32 reach 0.54 to 0.78 of the rated peak there (an H100 0.74 to
0.77), and 0.8 to 1.06 on GPUs before (scripts/data/matmuls.csv)."""
_RESIDENT_THREADS: Mapping[str, float] = {"7.5": 1024, "8.6": 1536, "8.9": 1536, "12.0": 1536}
"""Where they are not 2,048 (CUDA C programming guide, technical specifications by compute capability).

AMD's compute units are taken for as many: nothing was measured there that depends on it.
"""
_NVLINK_RATIOS: Mapping[str, float] = {
    "6.0": 18 / 20, "7.0": 20 / 25, "7.5": 20 / 25, "8.0": 20 / 25, "8.6": 12 / 14.0625, "9.0": 20.6 / 25,
    "10.0": 40.1 / 50, "10.3": 40.1 / 50,
}  # fmt: skip
"""What collective operations reach of one NVLink, in one direction, over its rate, by compute capability.

NCCL's own figures (src/graph/topo.h: `SM80_NVLINK_BW` and its like, by which it takes Turing as Volta).
"""


_INFINITY_FABRIC_RATIOS: Mapping[str, float] = {"CDNA 3.0": 48 / 64}
"""The same of AMD's links, by generation (RCCL, src/graph/topo.h: `GFX94X_XGMI_WIDTH`)."""


def nvlink_bytes_per_s(gpu: Gpu) -> float | None:
    """What a GPU sends by NVLink to the others of its machine, in one direction; None: it reaches one at most."""
    ratio = _NVLINK_RATIOS.get(gpu.compute_capability or "")
    if gpu.nvlink_bytes_per_s is None or gpu.nvlink_reach != "machine" or ratio is None:
        return None
    return gpu.nvlink_bytes_per_s / 2 * ratio


def peer_link_bytes_per_s(gpu: Gpu) -> float | None:
    """What a GPU sends to one other of its machine by Infinity Fabric, in one direction; None: it has no such links."""
    ratio = _INFINITY_FABRIC_RATIOS.get(gpu.generation)
    if gpu.infinity_fabric_link_bytes_per_s is None or ratio is None:
        return None
    return gpu.infinity_fabric_link_bytes_per_s / 2 * ratio


def power_ratios(gpu: Gpu) -> dict[str, float]:
    """The power limit over the power at full rate, by unit and 1 at most; empty where nothing is known."""
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
    """The share of the rated bandwidth that long copies reach."""
    own = _OWN_STREAMING_RATIOS.get(gpu.compute_capability or "")
    return own or _STREAMING_RATIOS.get(gpu.memory_type or "", _UNKNOWN_STREAMING_RATIO)


def resident_threads(gpu: Gpu) -> float:
    """How many threads one of its multiprocessors holds at a time."""
    return _RESIDENT_THREADS.get(gpu.compute_capability or "", REFERENCE_RESIDENT_THREADS)


def has_narrow_tensor_cores(gpu: Gpu) -> bool:
    """NVIDIA halves the rate of GeForce's tensor cores that sum in fp32; caches and registers then keep them fed."""
    half = gpu.fp16_tensor_flops_per_s
    if gpu.compute_capability is None or half is None:
        return False
    return half / (gpu.sm_count * gpu.boost_hz) < _NARROW_FLOPS_PER_CYCLE


def issue_contention(gpu: Gpu) -> float:
    """How much all other instructions are in the way of multiply-adds in fp32, outside tensor cores.

    0: half as many lanes as there are slots to issue, or two instructions in a slot. Else there are 128 of both, and
    the integers that count and address take slots (0.5), or lanes as well (1).
    """
    return _ISSUE_CONTENTIONS.get(gpu.compute_capability or "", 0.0)


def exceeds_rated_clock(gpu: Gpu) -> bool:
    """GeForce and TITAN cards raise their clock above the rated boost as long as power and temperature allow."""
    return gpu.name.startswith(("GeForce", "TITAN"))
