"""Lists what all GPUs of a compute capability have in common."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuArchitecture:
    """The figures of one compute capability; none has a default, so that a new one forgets none.

    - `joule_per_flop`: energy of a FLOP on vector units and on tensor cores at the rated clock, from the datasheets of
      the parts with the most power per FLOP; None: not known, and no power limit is predicted
    - `issue_contention`: how much other instructions slow down fp32 multiply-adds outside tensor cores, from 0 to 1:
      0 if an SM has half as many fp32 lanes as issue slots, or issues two instructions per slot. Otherwise it has 128
      of both, and integer instructions for loops and addresses take issue slots (0.5), or lanes as well (1)
    - `convolves_by_fft`: cuDNN convolves in fp32 by Fourier transforms where others use Winograd's algorithm
    - `resident_threads`: the most in flight per SM
    - `nvlink_ratio`: share of an NVLink's rate that collective operations such as all-reduce reach, in one direction;
      None: no NVLink that connects a machine
    - `switch_ratio`: share of that rate at which NVSwitch adds up what the GPUs of a machine send; None: it cannot
    """

    joule_per_flop: tuple[float, float] | None
    issue_contention: float
    convolves_by_fft: bool
    resident_threads: float
    nvlink_ratio: float | None
    switch_ratio: float | None


ARCHITECTURES: Mapping[str, GpuArchitecture] = {
    "3.7": GpuArchitecture(None, 0.0, False, 2048, None, None),
    # Tesla M40: 250 W / 7.0 TFLOPS, at a ratio of 1 by definition
    "5.2": GpuArchitecture((28e-12, 28e-12), 0.0, False, 2048, None, None),
    # P100 PCIe: 250 W / 9.5 TFLOPS, 19.1 in half
    "6.0": GpuArchitecture((26.2e-12, 13.1e-12), 0.0, False, 2048, 18 / 20, None),
    # GTX 1080 Ti: 250 W / 11.3 TFLOPS
    "6.1": GpuArchitecture((22.0e-12, 22.0e-12), 0.0, False, 2048, None, None),
    # V100 PCIe: 250 W / 14.1 TFLOPS, 112 on tensor cores
    "7.0": GpuArchitecture((17.7e-12, 2.2e-12), 0.0, False, 2048, 20 / 25, None),
    # RTX 2080 Ti: 250 W / 13.4 TFLOPS; TITAN RTX: 280 W / 130 TFLOPS on tensor cores
    "7.5": GpuArchitecture((18.6e-12, 2.1e-12), 0.0, False, 1024, 20 / 25, None),
    # A100 PCIe, see below; A100 SXM: 400 W / 312 TFLOPS on tensor cores
    "8.0": GpuArchitecture((14.4e-12, 1.28e-12), 0.0, False, 2048, 20 / 25, None),
    # RTX 3090: 350 W / 35.6 TFLOPS; RTX A6000: 300 W / 155 TFLOPS on tensor cores
    "8.6": GpuArchitecture((9.8e-12, 1.9e-12), 1.0, False, 1536, 12 / 14.0625, None),
    "8.7": GpuArchitecture(None, 1.0, False, 1536, None, None),
    # RTX 4090: 450 W / 82.6 TFLOPS; L40S: 350 W / 362 TFLOPS on tensor cores
    "8.9": GpuArchitecture((5.4e-12, 0.97e-12), 1.0, False, 1536, None, None),
    # H100 PCIe: 350 W / 51.2 TFLOPS; H100 SXM: 700 W / 989 TFLOPS on tensor cores
    "9.0": GpuArchitecture((6.8e-12, 0.71e-12), 0.5, True, 2048, 20.6 / 25, 0.85),
    "10.0": GpuArchitecture(None, 0.5, False, 2048, 40.1 / 50, 0.74),
    "10.3": GpuArchitecture(None, 0.5, False, 2048, 40.1 / 50, 0.74),
    # RTX 5090: 575 W / 104.8 TFLOPS; RTX PRO 6000: 600 W / 504 TFLOPS on tensor cores
    "12.0": GpuArchitecture((5.5e-12, 1.2e-12), 1.0, False, 1536, None, None),
    "12.1": GpuArchitecture(None, 1.0, False, 1536, None, None),
}
"""By compute capability of NVIDIA.

- Energies: the A100 PCIe is limited by its 250 W: in NeuSight's linear layers it reaches at most 0.85 of its peak, and
  a V100 0.93. No energies were derived for K80, B200 and B300, so their power limits are ignored.
- Fourier transforms: the profiles of an H100 and an H200 (docs/internals/experiments.md) have no kernel of Winograd's
  algorithm for an output or an input's gradient; gradients of weights, of which some have one, are taken to gain as
  much as these. Blackwell was not measured in fp32.
- Lanes, issue slots and threads: CUDA C programming guide, throughput of native arithmetic instructions and technical
  specifications by compute capability. If power allows, fp32 matmuls of size 8,192 and more reach 0.54 to 0.78 of the
  rated peak where there is contention (an H100 0.74 to 0.77), and 0.8 to 1.06 on earlier GPUs
  (scripts/data/matmuls.csv).
- NVLink: NCCL's own figures (src/graph/topo.h: `SM80_NVLINK_BW` and similar; it treats Turing as Volta). NVSwitch:
  `nvlsEfficiency` in src/graph/tuning.cc.
"""
