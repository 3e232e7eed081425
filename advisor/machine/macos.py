"""Reads the CPU and memory of a Mac with `sysctl` (sysctl(3); Apple, "Determining system capabilities"), its GPU with
`ioreg`."""

import plistlib
import shutil
import subprocess
from collections.abc import Callable

from advisor.records.machine import Machine

_ISA_KEYS = {
    "hw.optional.avx2_0": "avx2",
    "hw.optional.fma": "fma",
    "hw.optional.avx512f": "avx512f",
    "hw.optional.AdvSIMD": "asimd",
    "hw.optional.arm.FEAT_FP16": "asimdhp",
    "hw.optional.arm.FEAT_DotProd": "asimddp",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_BF16": "bf16",
}
"""Apple's names of instruction sets -> the Linux kernel's names."""


def ask_sysctl(key: str) -> str:
    """Return the output of `sysctl -n KEY`, or "" if the key or the program does not exist."""
    program = shutil.which("sysctl")
    if program is None:
        return ""
    done = subprocess.run([program, "-n", key], capture_output=True, text=True, check=False)  # noqa: S603 - fixed keys
    return done.stdout.strip() if done.returncode == 0 else ""


def ask_ioreg() -> bytes:
    """Return the registry entry of Apple's GPU as a property list, or nothing if there is none (ioreg(8))."""
    program = shutil.which("ioreg")
    if program is None:
        return b""
    command = [program, "-r", "-d", "1", "-a", "-c", "AGXAccelerator"]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - fixed arguments
    return done.stdout if done.returncode == 0 else b""


def gpu_name(cpu_name: str | None, *, ask: Callable[[], bytes] = ask_ioreg) -> str | None:
    """Return the chip and the number of its GPU's cores, "Apple M3 Pro 14-core GPU"; None if they are not known.

    torch calls every one "Apple GPU". Chips of one name are sold with two numbers of GPU cores.
    """
    answer = ask()
    entries = plistlib.loads(answer) if answer else []
    cores = next((entry["gpu-core-count"] for entry in entries if "gpu-core-count" in entry), None)
    return f"{cpu_name} {cores}-core GPU" if cpu_name and cores else None


def read_macos(*, ask: Callable[[str], str] = ask_sysctl) -> Machine:
    """Return the performance cores and the memory; macOS has neither affinity masks nor cgroups."""
    cores = _number(ask("hw.perflevel0.physicalcpu")) or _number(ask("hw.physicalcpu")) or 1.0
    threads = _number(ask("hw.perflevel0.logicalcpu")) or _number(ask("hw.logicalcpu")) or cores
    memory_bytes = _number(ask("hw.memsize"))
    return Machine(
        cpu_name=ask("machdep.cpu.brand_string") or None,
        isa=tuple(flag for key, flag in _ISA_KEYS.items() if ask(key) == "1"),
        core_count=cores,
        thread_count=int(threads),
        base_hz=_number(ask("hw.cpufrequency")),
        boost_hz=_number(ask("hw.cpufrequency_max")),
        l2_bytes=_number(ask("hw.perflevel0.l2cachesize")) or _number(ask("hw.l2cachesize")),
        l3_bytes=_number(ask("hw.l3cachesize")),
        memory_bytes=memory_bytes,
        is_virtual=ask("kern.hv_vmm_present") == "1",
        notes=() if memory_bytes else ("the memory size is unknown (sysctl hw.memsize)",),
    )


def _number(text: str) -> float | None:
    return float(text) if text.isdecimal() and int(text) > 0 else None
