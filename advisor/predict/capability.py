"""Makes a `Device` of a GPU's profile, or of a CPU's profile and the instance that rents it."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter

import numpy as np

from advisor.errors import UsageError
from advisor.predict.sustained import (
    architecture_of,
    exceeds_rated_clock,
    has_narrow_tensor_cores,
    nvlink_bytes_per_s,
    peer_link_bytes_per_s,
    power_ratios,
    streaming_ratio,
    switch_bytes_per_s,
)
from advisor.records.device import REFERENCE_HOST_HZ, REFERENCE_RESIDENT_THREADS, Cpu, Device, Gpu
from advisor.records.engine import EngineIsa
from advisor.records.prediction import Fleet
from advisor.records.price import Offer

FP32_FLOPS_PER_CYCLE: Mapping[str, float] = {
    "Broadwell": 32, "Haswell": 32,  # 2 FMA units of 256 bit: Intel optimization manual
    "Skylake": 64, "Cascade": 64, "Ice Lake": 64,  # 2 FMA units of 512 bit on Xeon Gold and Platinum: same
    "Sapphire Rapids": 64, "Emerald Rapids": 64, "Granite Rapids": 64,  # same
    "Zen 2": 32, "Zen 3": 32,  # 2 FMA units of 256 bit: AMD 17h, 19h optimization guides
    "Zen 4": 32,  # AVX-512 runs in two passes over 2 units of 256 bit: numberworld.org, Zen 4 AVX-512 teardown
    "Zen 5": 64,  # 2 FMA units of 512 bit: numberworld.org, Zen 5 AVX-512 teardown
    "Neoverse N1": 16, "Neoverse N2": 16,  # 2 pipes of 128 bit: Arm software optimization guides
    "Neoverse V1": 32,  # 2 SVE pipes of 256 bit: same
    "Neoverse V2": 32,  # 4 pipes of 128 bit: same
}  # fmt: skip
"""FLOP (a fused multiply-add is two) per core and cycle, by the start of the generation's name."""

_AVX2_FLOPS_PER_CYCLE = 32.0
_FP32_FLOPS_PER_CYCLE_BY_ISA = (("avx2", _AVX2_FLOPS_PER_CYCLE), ("sve", 16.0), ("asimd", 16.0))
"""For generations that are not listed: the narrowest core with the instruction set."""

_AVX512_CLOCK_RATIO = 0.7
"""Clock of Intel's cores in AVX-512 code over their sustained clock in other code. The all-core turbo of Cascade Lake
is up to 0.9 GHz lower, out of 3.3 GHz (computerbase.de/2019-04/intel-cascade-lake-sp-lcc-hcc-xcc-avx-512-takt), and
power limits may lower it further. The error on CPUs left out of the fit is 16 % with 0.7 or 0.73 and 17 % with 0.8.
An Ice Lake with all 32 cores busy fits 0.7, though one core of an idle socket runs at its full clock."""
_LATER_AVX512_CLOCK_RATIO = 0.92
"""The same from Sapphire Rapids on: independent FMAs run at 3.69 GHz on a Granite Rapids whose scalar code runs at
4.0 GHz (own, 2026-11-25)."""
_SMALL_VCPUS = 8
"""vCPUs of the smaller of the two instance sizes whose bandwidth is in SpareCores' file of CPUs."""
_MKL_AMD_FLOPS_PER_CYCLE = _AVX2_FLOPS_PER_CYCLE
"""Limit for fp32 matmuls on AMD: MKL uses 256-bit instructions on any AMD CPU, though Zen 5 has 512-bit units. A Zen 5
with two cores reaches 0.47 of its 512-bit peak in linear layers and 0.87 in oneDNN's convolutions."""
_AMX_BF16_FLOPS_PER_CYCLE = 1024.0
"""TDPBF16PS: 16 x 16 x 32 multiply-adds in 16 cycles (Intel optimization manual, AMX): 8,192 x 2 / 16."""
_AVX512_BF16_PER_FP32 = 2.0
"""VDPBF16PS multiplies two bf16 pairs in place of one fp32 pair of an FMA (Intel intrinsics guide)."""
_ARM_BF16_PER_FP32 = 2.0
"""Sustained rate of BFMMLA over the peak of fp32. On a Graviton4 with 32 threads Arm Compute Library, which torch
calls, multiplies two 4,096 x 4,096 matrices in 23.6 ms (oneDNN pull request 4315, 2025-11-12): 182 GFLOP/s per core, 65
FLOP per cycle at 2.8 GHz; fp32 has at most 32. On a Graviton3 it makes BERT 1.9 times faster than fp32 (pytorch pull
request 91763: 2.3 and 1.2 times OpenBLAS)."""
_FP64_PER_FP32 = 0.5
"""A vector register holds half as many doubles."""
_INT8_PER_FP32 = 4.0
"""VPDPBUSD and SDOT multiply four pairs of bytes in place of one fp32 pair of an FMA (Intel intrinsics guide, Arm
instruction set)."""
_INT8_PER_BF16 = 2.0
"""TDPBSSD beside TDPBF16PS, SMMLA beside BFMMLA: rows of twice as many bytes (same)."""
_NARROW_PER_HALF: Mapping[str, Mapping[str, float]] = {
    "Turing": {"int8": 2}, "Ampere": {"int8": 2},
    "Ada Lovelace": {"int8": 2, "fp8": 2}, "Hopper": {"int8": 2, "fp8": 2},
    "Blackwell": {"int8": 2, "fp8": 2, "fp4": 4}, "Blackwell 2.0": {"int8": 2, "fp8": 2, "fp4": 4},
    "Blackwell Ultra": {"fp8": 2, "fp4": 6},
    "CDNA 3.0": {"int8": 2, "fp8": 2}, "CDNA 4.0": {"int8": 2, "fp8": 2, "fp4": 4},
}  # fmt: skip
"""Dense rate of matrix units in narrow numbers over that in 16 bits, by generation (data sheets and white papers: T4
130 and 65 TOPS, A100 624 and 312, L40S 733 and 366, H100 1,979 and 989, B200 4,500 or 9,000 and 2,250, MI300X 2,615 and
1,307)."""
_WHOLE_ON_GEFORCE = ("int8", "fp4")
"""Units whose rate GeForce does not halve, as it does 16-bit and fp8 products that add up in fp32 (RTX 4090: 660 TOPS
in int8, 330 in fp8, 165 in fp16; NVIDIA, Ada architecture white paper, appendix A)."""

_SUSTAINED_BOOST_RATIO, _SUSTAINED_BASE_RATIO = 0.63, 1.29
"""See `sustained_clock_hz`."""
_MOBILE = re.compile(r"(Core|Ryzen).*\d(H|HK|HQ|HS|HX|HX3D|P|U|V|Y|G[1-7])\b")
"""Names of laptop parts, by the suffixes that Intel and AMD publish for processor numbers."""
_READ_RATIO = 0.8
"""Share of a socket's rated bandwidth that reads by all cores reach: median of the 29 CPUs whose profiles have both."""
_SHARE_EXPONENT = 0.6
"""Exponent with which the bandwidth of some cores grows with their share of the socket: median of the same CPUs."""
_CACHE_BYTES_PER_CYCLE = 16.0
"""Cache bandwidth of a core that uses both L2 and the last-level cache: half that of L2 alone (Intel, AMD manuals)."""

_FP64_FLOPS_PER_FP32 = 1 / 64
"""For a GPU without a figure: the ratio of GeForce and workstation parts since Ampere (CUDA C programming guide)."""
_PCIE_SUSTAINED_RATIO = 0.43
"""Median share of PCIe's theoretical rate in copies measured on 14 GPUs of cloud instances (SpareCores)."""
_PCIE_5_SUSTAINED_RATIO = 0.88
"""The same from PCIe 5.0 on: 55.4 to 57.6 of 63 GB/s on H100 NVL, H100 PCIe, H200, B200, RTX PRO 6000 (SpareCores)."""
_PCIE_5_BYTES_PER_S = 63e9
_GPU_OFFER_FIELDS = attrgetter("gpu", "cpu", "host_to_device_bytes_per_s", "network_bytes_per_s", "vcpus", "gpu_count")
_CPU_OFFER_FIELDS = attrgetter("cpu", "vcpus", "threads_per_core", "memory_bytes", "measured_read_bytes_per_s")
"""The fields of an offer that determine its device."""
_DEVICES_KEPT = 4096
"""Devices cached in a process across answers: hundreds are on offer."""


def without_own_ratios(device: Device) -> Device:
    """Return the device as its datasheet describes it, without the ratios fitted to its own measurements."""
    return replace(device, sustained_compute_ratio=1.0, sustained_memory_ratio=1.0)


@lru_cache(maxsize=_DEVICES_KEPT, typed=True)
def gpu_device(
    gpu: Gpu,
    *,
    host_to_device_bytes_per_s: float | None = None,
    vcpu_count: float | None = None,
    gpu_count: int = 1,
    network_bytes_per_s: float | None = None,
    host: Cpu | None = None,
) -> Device:
    """Return one of a machine's GPUs, with the host's CPU and vCPUs and the measured host-to-device rate, if any."""
    host_clock_hz = None if host is None else sustained_clock_hz(host)
    vector = gpu.fp32_flops_per_s
    peaks = {
        "vector": vector,
        "fp32": gpu.fp32_matrix_flops_per_s or vector,
        "fp64": gpu.fp64_flops_per_s or vector * _FP64_FLOPS_PER_FP32,
        "tf32": gpu.tf32_tensor_flops_per_s,
        "bf16": gpu.bf16_tensor_flops_per_s,
        "fp16": gpu.fp16_tensor_flops_per_s or _native_fp16(gpu),
    }
    half = gpu.bf16_tensor_flops_per_s or gpu.fp16_tensor_flops_per_s
    for unit, ratio in _NARROW_PER_HALF.get(gpu.generation, {}).items():
        is_halved = has_narrow_tensor_cores(gpu) and gpu.name.startswith("GeForce")
        full_rate = 2.0 if unit in _WHOLE_ON_GEFORCE and is_halved else 1.0
        peaks[unit] = half and half * ratio * full_rate
    pcie, architecture = gpu.pcie_bytes_per_s, architecture_of(gpu)
    return Device(
        id=gpu.id,
        name=gpu.name,
        kind="gpu",
        vendor=gpu.vendor,
        generation=gpu.generation,
        core_count=gpu.sm_count,
        peak_flops_per_s={unit: peak for unit, peak in peaks.items() if peak is not None},
        memory_bytes=gpu.memory_bytes,
        memory_bytes_per_s=gpu.memory_bytes_per_s,
        cache_bytes=gpu.l2_bytes or 0.0,
        host_to_device_bytes_per_s=host_to_device_bytes_per_s
        or gpu.host_to_device_bytes_per_s
        or (
            pcie * (_PCIE_SUSTAINED_RATIO if pcie < _PCIE_5_BYTES_PER_S else _PCIE_5_SUSTAINED_RATIO) if pcie else None
        ),
        vcpu_count=vcpu_count,
        gpu_count=gpu_count,
        network_bytes_per_s=network_bytes_per_s,
        nvlink_bytes_per_s=nvlink_bytes_per_s(gpu) if gpu_count > 1 else None,
        bridge_bytes_per_s=nvlink_bytes_per_s(gpu, reach="bridged") if gpu_count > 1 else None,
        peer_link_bytes_per_s=peer_link_bytes_per_s(gpu) if gpu_count > 1 else None,
        switch_bytes_per_s=switch_bytes_per_s(gpu) if gpu_count > 1 else None,
        tdp_w=gpu.tdp_w,
        power_ratio=power_ratios(gpu),
        memory_type=gpu.memory_type,
        streaming_ratio=streaming_ratio(gpu),
        resident_threads_per_core=architecture.resident_threads if architecture else REFERENCE_RESIDENT_THREADS,
        clock_hz=gpu.boost_hz,
        host_time_ratio=_host_time_ratio(host_clock_hz) if host_clock_hz else 1.0,
        host_cpu=host.id if host and host_clock_hz else None,
        exceeds_rated_clock=exceeds_rated_clock(gpu),
        has_narrow_tensor_cores=has_narrow_tensor_cores(gpu),
        issue_contention=architecture.issue_contention if architecture else 0.0,
        convolves_by_fft=architecture is not None and architecture.convolves_by_fft,
        sustained_compute_ratio=gpu.sustained_compute_ratio or 1.0,
        sustained_memory_ratio=gpu.sustained_memory_ratio or 1.0,
        part_of=gpu.part_of,
        time_ratio=gpu.time_ratio,
        stack=gpu.stack,
    )


def _host_time_ratio(clock_hz: float) -> float:
    """Return the time of dispatching at this clock over that at `REFERENCE_HOST_HZ`, at equal cycles per instruction.

    CPU time = instructions x cycles per instruction / clock (Hennessy and Patterson, Computer Architecture, sec. 1.9).
    Equal cycles are an approximation: Google's CoreMark scores per vCPU and all-core GHz are 4,800 to 5,200 from
    Broadwell to Ice Lake, but 6,500 to 7,400 on Zen 3 (github.com/Cyclenerd/google-cloud-compute-machine-types,
    coremark.csv @ 4db66b0b over frequency.sql @ 006a7ba2).
    """
    return REFERENCE_HOST_HZ / clock_hz


def _native_fp16(gpu: Gpu) -> float | None:
    """Return the fp16 rate outside tensor cores; None if it is nominal (GP10x: 1/64 of fp32) or torch does not use it.

    On a P100 cuBLAS accumulates in fp32, so fp16 matmuls run at the rate of fp32 (8.4 and 8.6 TFLOP/s,
    scripts/data/matmuls.csv).
    """
    rate = gpu.fp16_flops_per_s
    if gpu.compute_capability == "6.0":
        return None
    return rate if rate is not None and rate >= gpu.fp32_flops_per_s else None


@lru_cache(maxsize=_DEVICES_KEPT, typed=True)
def cpu_device(
    cpu: Cpu,
    *,
    vcpus: int,
    memory_bytes: float,
    threads_per_core: int | None = None,
    read_bytes_per_s: float | None = None,
    numa_nodes: int | None = None,
) -> Device | None:
    """Return some cores of a CPU, with their memory and measured bandwidth, if any; None if its clock is unknown.

    Without `numa_nodes`, each socket is one.
    """
    clock_hz = sustained_clock_hz(cpu)
    if clock_hz is None:
        return None
    cores = vcpus / (threads_per_core or cpu.threads_per_core or 1)
    nodes = numa_nodes or math.ceil(_sockets(cpu, cores=cores))
    memory_bytes_per_s = read_bytes_per_s or cpu_memory_bytes_per_s(cpu, cores=cores)
    node_bytes_per_s = memory_bytes_per_s / nodes
    if nodes > 1:  # all nodes together are often measured below the sum of their own rates
        node_bytes_per_s = max(node_bytes_per_s, _socket_bytes_per_s(cpu, cores=cores / nodes))
    fp32_per_cycle = fp32_flops_per_cycle(cpu)
    cycles_per_s = cores * clock_hz
    wide_cycles_per_s = cycles_per_s * _avx512_clock_ratio(cpu)
    multiplied_per_cycle = min(fp32_per_cycle, _MKL_AMD_FLOPS_PER_CYCLE) if cpu.vendor == "AMD" else fp32_per_cycle
    peaks = {
        "vector": fp32_per_cycle * wide_cycles_per_s,
        "fp32": multiplied_per_cycle * wide_cycles_per_s,
        "fp64": multiplied_per_cycle * _FP64_PER_FP32 * wide_cycles_per_s,
    }
    if "amx_bf16" in cpu.isa:
        peaks["bf16"] = _AMX_BF16_FLOPS_PER_CYCLE * wide_cycles_per_s
    elif "avx512_bf16" in cpu.isa:
        peaks["bf16"] = _AVX512_BF16_PER_FP32 * fp32_per_cycle * wide_cycles_per_s
    elif "asimd" in cpu.isa and "bf16" in cpu.isa:
        peaks["bf16"] = _ARM_BF16_PER_FP32 * fp32_per_cycle * wide_cycles_per_s
    if {"amx_int8", "i8mm"}.intersection(cpu.isa) and "bf16" in peaks:
        peaks["int8"] = _INT8_PER_BF16 * peaks["bf16"]
    elif {"avx512_vnni", "avx_vnni", "asimddp"}.intersection(cpu.isa):
        peaks["int8"] = _INT8_PER_FP32 * peaks["vector"]
    return Device(
        id=cpu.id,
        name=cpu.name,
        kind="cpu",
        vendor=cpu.vendor,
        generation=cpu.generation,
        core_count=cores,
        peak_flops_per_s=peaks,
        memory_bytes=memory_bytes,
        memory_bytes_per_s=memory_bytes_per_s,
        cache_bytes=(cpu.l3_bytes or 0.0) * _sockets(cpu, cores=cores) + (cpu.l2_bytes_per_core or 0.0) * cores,
        cache_bytes_per_s=_CACHE_BYTES_PER_CYCLE * cycles_per_s,
        near_cache_bytes=(cpu.l2_bytes_per_core or 0.0) * cores,
        vcpu_count=vcpus,
        host_time_ratio=_host_time_ratio(clock_hz),
        has_matrix_unit="amx_bf16" in cpu.isa,
        sustained_compute_ratio=cpu.sustained_compute_ratio or 1.0,
        sustained_memory_ratio=cpu.sustained_memory_ratio or 1.0,
        isa=_engine_isa(cpu),
        numa_nodes=nodes,
        node_bytes_per_s=node_bytes_per_s,
    )


def _engine_isa(cpu: Cpu) -> EngineIsa:
    """Return the widest instruction set for which engines have kernels; x86 without AVX2 counts as AVX2."""
    if "asimd" in cpu.isa:
        return "arm"
    known: tuple[tuple[str, EngineIsa], ...] = (
        ("amx_bf16", "amx"), ("avx512_bf16", "avx512_bf16"), ("avx512f", "avx512"),
    )  # fmt: skip
    return next((isa for feature, isa in known if feature in cpu.isa), "avx2")


def whole_cpu_device(
    cpu: Cpu, *, cores: int | None, measured_bytes_per_s: float | None = None, numa_nodes: int | None = None
) -> Device:
    """Return a device with all cores of one socket, or with `cores` of them, as an instance would have.

    `measured_bytes_per_s` is the bandwidth of these cores, if known. The memory is unlimited, since it belongs to the
    machine, not the socket. Raises `UsageError` if the profile lacks core count or clock, or has fewer cores.
    """
    all_cores = cpu.cores_per_socket
    if all_cores is None and cores is None:
        raise UsageError(f"the profile of {cpu.id} has no core count", hint=f"write {cpu.id}@CORES")
    if cores is not None and all_cores is not None and not 1 <= cores <= all_cores:
        raise UsageError(f"{cpu.id} has {all_cores} cores, not {cores}", hint="give the physical cores of one socket")
    count = cores or all_cores or 1
    vcpus = count * (cpu.threads_per_core or 1)
    if measured_bytes_per_s is None and all_cores is not None:
        measured_bytes_per_s = _socket_bytes_per_s(cpu, cores=count)
    device = cpu_device(
        cpu, vcpus=vcpus, memory_bytes=math.inf, read_bytes_per_s=measured_bytes_per_s, numa_nodes=numa_nodes
    )
    if device is None:
        raise UsageError(f"the profile of {cpu.id} has no clock", hint="add base_hz or sustained_hz")
    return device


def sustained_clock_hz(cpu: Cpu) -> float | None:
    """Return the clock with all cores busy, as published, or else estimated from the base clock and the boost clock.

    The estimates are medians over the x86 CPUs in our profiles: base + 0.63 x (boost - base) over the 45 with all three
    clocks, else 1.29 x base over the 57 with at least base and all-core clock. The power limit of a laptop allows its
    boost clock for seconds only, so that clock says nothing about longer work. Arm's server CPUs publish one clock, at
    which they run.
    """
    if cpu.sustained_hz or not cpu.base_hz:
        return cpu.sustained_hz
    if not cpu.boost_hz or _MOBILE.search(cpu.name):
        return cpu.base_hz * (1.0 if "asimd" in cpu.isa else _SUSTAINED_BASE_RATIO)
    return cpu.base_hz + _SUSTAINED_BOOST_RATIO * (cpu.boost_hz - cpu.base_hz)


def _avx512_clock_ratio(cpu: Cpu) -> float:
    """Return the clock in AVX-512 code over that in other code: below 1 on Intel's CPUs with 512-bit units."""
    if cpu.vendor != "Intel" or fp32_flops_per_cycle(cpu) <= _AVX2_FLOPS_PER_CYCLE:
        return 1.0
    return _LATER_AVX512_CLOCK_RATIO if "avx512_fp16" in cpu.isa else _AVX512_CLOCK_RATIO


def fp32_flops_per_cycle(cpu: Cpu) -> float:
    """Return FLOP per core and cycle, by generation, else by instruction set, else that of one 128-bit FMA pipe (8)."""
    for generation, flops in FP32_FLOPS_PER_CYCLE.items():
        if cpu.generation.startswith(generation):
            return flops
    for isa, flops in _FP32_FLOPS_PER_CYCLE_BY_ISA:
        if isa in cpu.isa:
            return flops
    return 8.0


def cpu_memory_bytes_per_s(cpu: Cpu, *, cores: float) -> float:
    """Estimate the memory bandwidth of some cores of a CPU, such as those of an instance without a measurement.

    It is interpolated, in log, between the measured sizes of the CPU, of which none counts as slower than a smaller
    one. Below the smallest size it is proportional to the cores, but constant on AMD, where a single core nearly
    saturates its die's link to memory. Each left out, SpareCores' 94 instances below 8 vCPUs have a mean absolute error
    in log of 0.13 (AMD), 0.05 (Intel) and 0.05 (Arm). Cores on more sockets than the largest size has, or than one if
    none is known, add up. A CPU without two measured sizes gets the median power law of the others.
    """
    sockets = _sockets(cpu, cores=cores)
    measured = _measured_bytes_per_s(cpu)
    if len(measured) < 2:
        parts = math.ceil(sockets)
        return parts * cpu.memory_bytes_per_s * _READ_RATIO * math.pow(sockets / parts, _SHARE_EXPONENT)
    sizes, rates = np.array([*measured]), np.maximum.accumulate([*measured.values()])
    parts = math.ceil(math.ceil(sockets) / math.ceil(_sockets(cpu, cores=sizes[-1])))
    exponents = [0.0 if cpu.vendor == "AMD" else 1.0, *(np.diff(np.log(rates)) / np.diff(np.log(sizes))), 0.0]
    larger = int(np.searchsorted(sizes, cores / parts, side="right"))
    base = max(larger - 1, 0)
    return float(parts * rates[base] * (cores / parts / sizes[base]) ** exponents[larger])


def _socket_bytes_per_s(cpu: Cpu, *, cores: float) -> float:
    """Return the bandwidth of cores on one socket; those of a measured instance of the same size may be on two."""
    return min(cpu_memory_bytes_per_s(cpu, cores=cores), cpu.memory_bytes_per_s)


def _measured_bytes_per_s(cpu: Cpu) -> dict[float, float]:
    """Return the measured bandwidth of each number of cores, in increasing order; the median of instances wins."""
    measured = {one.cores: one.read_bytes_per_s for one in cpu.measured}
    if cpu.threads_per_core or not measured:  # else the cores of the profile's two sizes are not known
        for vcpus, bytes_per_s in (
            (_SMALL_VCPUS, cpu.measured_read_bytes_per_s_8_vcpu),
            (cpu.largest_vcpu_count, cpu.measured_read_bytes_per_s_largest),
        ):
            if vcpus and bytes_per_s:
                measured.setdefault(vcpus / (cpu.threads_per_core or 1), bytes_per_s)
    return dict(sorted(measured.items()))


def _sockets(cpu: Cpu, *, cores: float) -> float:
    """Return the sockets that the cores fill, such as 0.25 or 1.5; 1 if the profile does not say how many cores fit."""
    return cores / cpu.cores_per_socket if cpu.cores_per_socket else 1.0


def fleet_of(offers: Sequence[Offer], *, gpus: Mapping[str, Gpu], cpus: Mapping[str, Cpu]) -> Fleet:
    """Return the distinct devices of `offers`; instance types with the same device share its prediction."""
    index_by_key: dict[tuple[object, ...], int] = {}
    devices: list[Device] = []
    indices: list[int] = []
    problems: list[str] = []
    for offer in offers:
        key = _CPU_OFFER_FIELDS(offer) if offer.gpu is None else _GPU_OFFER_FIELDS(offer)
        index = index_by_key.get(key)
        if index is None:
            device = _device(offer, gpus=gpus, cpus=cpus)
            index = index_by_key[key] = -1 if device is None else len(devices)
            if device is not None:
                devices.append(device)
        indices.append(index)
        problems.append("" if index >= 0 else _problem(offer))
    return Fleet(devices=tuple(devices), device_index=np.array(indices, dtype=np.intp), problems=tuple(problems))


def _device(offer: Offer, *, gpus: Mapping[str, Gpu], cpus: Mapping[str, Cpu]) -> Device | None:
    if offer.gpu is not None:
        gpu = gpus.get(offer.gpu)
        if gpu is None:
            return None
        return gpu_device(
            gpu,
            host_to_device_bytes_per_s=offer.host_to_device_bytes_per_s,
            vcpu_count=offer.vcpus,
            gpu_count=offer.gpu_count,
            network_bytes_per_s=offer.network_bytes_per_s,
            host=cpus.get(offer.cpu or ""),
        )
    cpu = cpus.get(offer.cpu or "")
    if cpu is None or offer.vcpus is None or offer.memory_bytes is None:
        return None
    return cpu_device(
        cpu,
        vcpus=offer.vcpus,
        memory_bytes=offer.memory_bytes,
        threads_per_core=offer.threads_per_core,
        read_bytes_per_s=offer.measured_read_bytes_per_s,
    )


def _problem(offer: Offer) -> str:
    if offer.gpu is None and (offer.vcpus is None or offer.memory_bytes is None):
        return "the instance's vCPUs or memory are unknown"
    return f"the profile of {offer.gpu or offer.cpu or 'its device'} is missing or has no clock"
