"""Reads how much memory this process may use on Linux, and how much of it is free now (proc(5))."""

from pathlib import Path

from advisor.machine.cgroup import memory_left_bytes, memory_limit_bytes
from advisor.machine.kernel_file import read_kernel_file


def total_memory_bytes(root: Path = Path("/")) -> float | None:
    """Return the machine's memory, or its control groups' limit if that is lower; None if neither is known."""
    return _least(_meminfo_bytes(root, "MemTotal"), memory_limit_bytes(root))


def free_memory_bytes(root: Path = Path("/")) -> float | None:
    """Return the memory that a new process could use without swapping, within the group limits; None if unknown."""
    return _least(_meminfo_bytes(root, "MemAvailable"), memory_left_bytes(root))


def _least(*sizes: float | None) -> float | None:
    return min((size for size in sizes if size is not None), default=None)


def _meminfo_bytes(root: Path, name: str) -> float | None:
    for line in read_kernel_file(root / "proc/meminfo").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return float(value.split()[0]) * 1024
    return None
