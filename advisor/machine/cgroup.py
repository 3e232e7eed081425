"""Reads the CPU and memory limits of this process's control groups (cgroups(7))."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from advisor.machine.kernel_file import read_kernel_file

_UNLIMITED_BYTES = 2**60
"""Limits above this mean "no limit", which version 1 writes as the largest number of pages, about 2^63 bytes."""


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the CPU quota of the process in CPUs, or None if no group limits it."""
    quotas = []
    for folder in _folders(root, controller="cpu"):
        limit, _, period = read_kernel_file(folder / "cpu.max").partition(" ")
        if not limit:  # version 1 keeps the limit and the period in two files
            limit, period = (
                read_kernel_file(folder / "cpu.cfs_quota_us"),
                read_kernel_file(folder / "cpu.cfs_period_us"),
            )
        if limit.isdecimal() and period.isdecimal() and int(period) > 0:
            quotas.append(int(limit) / int(period))
    return min(quotas, default=None)


def memory_limit_bytes(root: Path = Path("/")) -> float | None:
    """Return the memory that the process may use before it is killed, or None if no group limits it."""
    return min((limit for _, limit in _memory_limits(root)), default=None)


def memory_left_bytes(root: Path = Path("/")) -> float | None:
    """Return the memory left under the limits, including reclaimable file cache, or None if no group limits it."""
    return min((limit - _used_bytes(folder) for folder, limit in _memory_limits(root)), default=None)


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
