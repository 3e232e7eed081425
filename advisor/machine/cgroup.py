"""The control groups of this process in, the CPUs and the memory that they leave it out (cgroups(7))."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from advisor.machine.kernel_file import read_kernel_file

_UNLIMITED_BYTES = 2**60
"""Version 1 writes "no limit" as the largest number of pages, some 2^63 bytes."""


def cpu_quota(root: Path = Path("/")) -> float | None:
    """CPUs' worth of time that the process gets; None where no group limits it."""
    quotas = []
    for folder in _folders(root, controller="cpu"):
        limit, _, period = read_kernel_file(folder / "cpu.max").partition(" ")
        if not limit:  # version 1 has it in two files
            limit, period = (
                read_kernel_file(folder / "cpu.cfs_quota_us"),
                read_kernel_file(folder / "cpu.cfs_period_us"),
            )
        if limit.isdecimal() and period.isdecimal() and int(period) > 0:
            quotas.append(int(limit) / int(period))
    return min(quotas, default=None)


def memory_limit_bytes(root: Path = Path("/")) -> float | None:
    """Memory that the process may use before it is killed; None where no group limits it."""
    return min((limit for _, limit in _memory_limits(root)), default=None)


def memory_left_bytes(root: Path = Path("/")) -> float | None:
    """What is left of the limits now, with the file cache that would make room; None where no group limits it."""
    return min((limit - _used_bytes(folder) for folder, limit in _memory_limits(root)), default=None)


def _memory_limits(root: Path) -> Iterator[tuple[Path, float]]:
    for folder in _folders(root, controller="memory"):
        limit = read_kernel_file(folder / "memory.max") or read_kernel_file(folder / "memory.limit_in_bytes")
        if limit.isdecimal() and int(limit) < _UNLIMITED_BYTES:
            yield folder, float(limit)


def _used_bytes(folder: Path) -> float:
    """Without the part of the file cache that the kernel gives up first (its cgroup-v2.rst, "inactive_file")."""
    used = read_kernel_file(folder / "memory.current") or read_kernel_file(folder / "memory.usage_in_bytes")
    statistics = dict(line.split() for line in read_kernel_file(folder / "memory.stat").splitlines())
    return float(used or 0) - float(statistics.get("inactive_file", 0))


def _folders(root: Path, *, controller: str) -> Iterator[Path]:
    """The groups whose limits hold for the process: its own and all above it, in either version."""
    own_paths = dict(_own_paths(root))
    for mount_root, mount_point, controllers in _mounts(root):
        found = controllers & {controller, ""}
        path = own_paths.get(found.pop()) if found else None
        if path is None:
            continue
        mounted = root / mount_point.lstrip("/")
        # In a container the group is often mounted by itself, and its path is that on the host.
        inside = path.removeprefix(mount_root.rstrip("/")).strip("/") if path.startswith(mount_root) else ""
        folder = mounted / inside
        yield from (folder, *(parent for parent in folder.parents if parent.is_relative_to(mounted)))


def _own_paths(root: Path) -> Iterator[tuple[str, str]]:
    """Controller and path of the group, from lines such as `4:cpu,cpuacct:/a`; version 2 has the controller ""."""
    for line in read_kernel_file(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", maxsplit=2)
        for controller in controllers.split(","):
            yield controller, path


def _mounts(root: Path) -> Iterator[tuple[str, str, set[str]]]:
    """Root, mount point and controllers of each hierarchy (proc_pid_mountinfo(5))."""
    for line in read_kernel_file(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields: Sequence[str] = before.split()
        kind, _, options = after.split()[:3]
        if kind == "cgroup2":
            yield fields[3], fields[4], {""}
        elif kind == "cgroup":
            yield fields[3], fields[4], set(options.split(","))
