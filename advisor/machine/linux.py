"""Reads the CPU and memory that this process may use from Linux's /proc and /sys (proc(5), the kernel's ABI/sysfs)."""

import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from advisor.machine.limits import cpu_quota, read_kernel_file, total_memory_bytes
from advisor.records.machine import Machine

ISA = (
    "sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni",
    "amx_tile", "amx_int8", "amx_bf16",
    "asimd", "asimdhp", "asimddp", "sve", "sve2", "i8mm", "bf16", "svebf16", "svei8mm",
)  # fmt: skip
"""The instruction sets that device profiles name, spelled as the kernel spells them."""
_ARM_CORES: Mapping[str, str] = {
    "0x41 0xd0c": "Neoverse-N1", "0x41 0xd49": "Neoverse-N2",
    "0x41 0xd40": "Neoverse-V1", "0x41 0xd4f": "Neoverse-V2",
}  # fmt: skip
"""Arm core names by implementer and part number (arch/arm64/include/asm/cputype.h); the kernel reports no name."""
_GRAVITONS: Mapping[str, str] = {
    "Neoverse-N1": "AWS Graviton2 (Neoverse-N1)",
    "Neoverse-V1": "AWS Graviton3 (Neoverse-V1)",
    "Neoverse-V2": "AWS Graviton4 (Neoverse-V2)",
}
"""CPU names for these cores on an Amazon EC2 machine."""


def read_linux(*, affinity: Collection[int], root: Path = Path("/")) -> Machine:
    """Return what a process with the affinity mask `affinity` may use, without GPUs; `root` holds /proc and /sys."""
    info = _cpuinfo(root)
    performance_cpus = _cpu_list(read_kernel_file(root / "sys/devices/cpu_core/cpus"))  # listed on a hybrid CPU only
    cpus = performance_cpus & set(affinity) or set(affinity)
    cores = {siblings for cpu in cpus if (siblings := _of_cpu(root, cpu, "topology/thread_siblings_list"))}
    core_count, thread_count = float(len(cores) or len(cpus)), len(cpus)
    is_virtual = "hypervisor" in info.get("flags", "").split() or (root / "sys/hypervisor/type").is_file()
    notes = []
    if not cores:
        notes.append(
            "it is unknown which hardware threads share a core (/sys lists no siblings): each counts as a core"
        )
    elif is_virtual and len(cores) == len(cpus):
        notes.append("this is a virtual machine: its cores may be hardware threads of the host")
    quota = cpu_quota(root)
    if quota is not None and quota < thread_count:
        notes.append(f"the cgroup's CPU quota limits this process to {quota:g} of {thread_count} hardware threads")
        core_count, thread_count = min(core_count, quota), math.ceil(quota)
    memory_bytes = total_memory_bytes(root)
    if memory_bytes is None:
        notes.append("the memory size is unknown (/proc/meminfo)")
    signature = _signature(info)
    return Machine(
        cpu_name=info.get("model name") or _arm_name(root, signature),
        cpu_signature=signature,
        isa=tuple(flag for flag in ISA if flag in (info.get("flags") or info.get("Features", "")).split()),
        core_count=core_count,
        thread_count=thread_count,
        affinity_count=len(affinity),
        base_hz=_clock_hz(root, cpus, "cpufreq/base_frequency", unit_hz=1e3)
        or _clock_hz(root, cpus, "acpi_cppc/nominal_freq", unit_hz=1e6),
        boost_hz=_clock_hz(root, cpus, "cpufreq/cpuinfo_max_freq", unit_hz=1e3),
        l2_bytes=_cache_bytes(root, cpus, level="2"),
        l3_bytes=_cache_bytes(root, cpus, level="3"),
        memory_bytes=memory_bytes,
        is_virtual=is_virtual,
        notes=tuple(notes),
    )


def _cpuinfo(root: Path) -> dict[str, str]:
    """Return the keys and values of the first CPU in /proc/cpuinfo."""
    first = read_kernel_file(root / "proc/cpuinfo").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _signature(info: Mapping[str, str]) -> str | None:
    if "vendor_id" in info and "cpu family" in info and "model" in info:
        return f"{info['vendor_id']} {info['cpu family']} {info['model']}"
    if "CPU implementer" in info and "CPU part" in info:
        return f"{info['CPU implementer']} {info['CPU part']}"
    return None


def _arm_name(root: Path, signature: str | None) -> str | None:
    core = _ARM_CORES.get(signature or "")
    if core and read_kernel_file(root / "sys/class/dmi/id/sys_vendor") == "Amazon EC2":
        return _GRAVITONS.get(core, core)
    return core


def _clock_hz(root: Path, cpus: Iterable[int], name: str, *, unit_hz: float) -> float | None:
    text = _of_cpu(root, min(cpus), name)
    return float(text) * unit_hz if text.isdecimal() and int(text) > 0 else None


def _cache_bytes(root: Path, cpus: Iterable[int], *, level: str) -> float | None:
    """Return the total size of the level 2 or 3 caches of these CPUs, counting each shared cache once."""
    found: dict[str, float] = {}
    for cpu in cpus:
        for cache in sorted((root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
            size = read_kernel_file(cache / "size")
            if read_kernel_file(cache / "level") == level and size.endswith("K"):
                found[read_kernel_file(cache / "shared_cpu_list")] = float(size.removesuffix("K")) * 1024
    return sum(found.values()) or None


def _cpu_list(text: str) -> set[int]:
    """Parse a kernel CPU list: "0-3,8" -> {0, 1, 2, 3, 8}."""
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def _of_cpu(root: Path, cpu: int, name: str) -> str:
    return read_kernel_file(root / f"sys/devices/system/cpu/cpu{cpu}" / name)
