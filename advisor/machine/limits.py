"""Reads the CPU and memory that this process may use on Linux: proc(5), and its control groups (cgroups(7))."""

from collections.abc import Iterator, Sequence
from pathlib import Path

_UNLIMITED_BYTES = 2**60
"""Limits above this mean "no limit", which version 1 writes as the largest number of pages, about 2^63 bytes."""


def read_kernel_file(file: Path) -> str:
    """Return the text of a file of /proc or /sys without surrounding whitespace, or "" if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def total_memory_bytes(root: Path = Path("/")) -> float | None:
    """Return the machine's memory, or its control groups' limit if that is lower; None if neither is known."""
    return _least(_meminfo_bytes(root, "MemTotal"), *(limit for _, limit in _memory_limits(root)))


def free_memory_bytes(root: Path = Path("/")) -> float | None:
    """Return the memory that a new process could use without swapping, within the group limits; None if unknown.

    Reclaimable file cache counts as free.
    """
    left = (limit - _used_bytes(folder) for folder, limit in _memory_limits(root))
    return _least(_meminfo_bytes(root, "MemAvailable"), *left)


def _least(*sizes: float | None) -> float | None:
    return min((size for size in sizes if size is not None), default=None)


def _meminfo_bytes(root: Path, name: str) -> float | None:
    for line in read_kernel_file(root / "proc/meminfo").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return float(value.split()[0]) * 1024
    return None


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the CPU quota of the process in CPUs, or None if no group limits it."""
    quotas = []
    for folder in _folders(root, controller="cpu"):
        limit, _, period = read_kernel_file(folder / "cpu.max").partition(" ")
        if not limit:  # version 1 keeps the limit and the period in two files
            limit, period = (read_kernel_file(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        if limit.isdecimal() and period.isdecimal() and int(period) > 0:
            quotas.append(int(limit) / int(period))
    return min(quotas, default=None)


def _memory_limits(root: Path) -> Iterator[tuple[Path, float]]:
    for folder in _folders(root, controller="memory"):
        limit = read_kernel_file(folder / "memory.max") or read_kernel_file(folder / "memory.limit_in_bytes")
        if limit.isdecimal() and int(limit) < _UNLIMITED_BYTES:
            yield folder, float(limit)


def _used_bytes(folder: Path) -> float:
    """Return the memory in use without the inactive file cache, which the kernel reclaims first (cgroup-v2.rst)."""
    used = read_kernel_file(folder / "memory.current") or read_kernel_file(folder / "memory.usage_in_bytes")
    statistics = dict(line.split() for line in read_kernel_file(folder / "memory.stat").splitlines())
    return float(used or 0) - float(statistics.get("inactive_file", 0))


def _folders(root: Path, *, controller: str) -> Iterator[Path]:
    """Yield the groups whose limits apply to the process: its own and all its parents, in either cgroup version."""
    own_paths = dict(_own_paths(root))
    for mount_root, mount_point, controllers in _mounts(root):
        found = controllers & {controller, ""}
        path = own_paths.get(found.pop()) if found else None
        if path is None:
            continue
        mounted = root / mount_point.lstrip("/")
        # In a container the group is often mounted alone, while its path is the path on the host.
        inside = path.removeprefix(mount_root.rstrip("/")).strip("/") if path.startswith(mount_root) else ""
        folder = mounted / inside
        yield from (folder, *(parent for parent in folder.parents if parent.is_relative_to(mounted)))


def _own_paths(root: Path) -> Iterator[tuple[str, str]]:
    """Yield (controller, path) of each group, from lines such as `4:cpu,cpuacct:/a`; the controller of v2 is ""."""
    for line in read_kernel_file(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", maxsplit=2)
        for controller in controllers.split(","):
            yield controller, path


def _mounts(root: Path) -> Iterator[tuple[str, str, set[str]]]:
    """Yield the root, mount point and controllers of each hierarchy (proc_pid_mountinfo(5))."""
    for line in read_kernel_file(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields: Sequence[str] = before.split()
        kind, _, options = after.split()[:3]
        if kind == "cgroup2":
            yield fields[3], fields[4], {""}
        elif kind == "cgroup":
            yield fields[3], fields[4], set(options.split(","))
