"""Limits of control groups, of both versions, as containers and services have them."""

from pathlib import Path

import pytest

from advisor.machine.cgroup import cpu_quota, memory_limit_bytes
from tests.machine.trees import put

V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"


def version_2(root: Path, *, path: str = "/a.slice/b.service") -> None:
    put(root, "proc/self/cgroup", f"0::{path}")
    put(root, "proc/self/mountinfo", V2_MOUNT)


def test_without_groups_nothing_is_limited(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert memory_limit_bytes(tmp_path) is None


def test_version_2_gives_quota_over_period(tmp_path: Path) -> None:
    version_2(tmp_path)
    put(tmp_path, "sys/fs/cgroup/a.slice/b.service/cpu.max", "150000 100000")
    put(tmp_path, "sys/fs/cgroup/a.slice/b.service/memory.max", "1073741824")

    assert cpu_quota(tmp_path) == 1.5
    assert memory_limit_bytes(tmp_path) == 2**30


def test_the_tightest_group_on_the_way_up_counts(tmp_path: Path) -> None:
    version_2(tmp_path)
    put(tmp_path, "sys/fs/cgroup/a.slice/b.service/cpu.max", "max 100000")
    put(tmp_path, "sys/fs/cgroup/a.slice/cpu.max", "400000 100000")
    put(tmp_path, "sys/fs/cgroup/a.slice/b.service/memory.max", "max")
    put(tmp_path, "sys/fs/cgroup/a.slice/memory.max", "2000")

    assert cpu_quota(tmp_path) == 4.0
    assert memory_limit_bytes(tmp_path) == 2000


@pytest.mark.parametrize("limit", ["max", ""])
def test_no_limit_is_none(tmp_path: Path, limit: str) -> None:
    version_2(tmp_path)
    put(tmp_path, "sys/fs/cgroup/a.slice/b.service/cpu.max", f"{limit} 100000".strip())

    assert cpu_quota(tmp_path) is None


def test_version_1_has_a_hierarchy_for_each_controller(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "4:memory:/jobs\n3:cpu,cpuacct:/jobs\n0::/")
    put(
        tmp_path,
        "proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
    )
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us", "250000")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_period_us", "100000")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000")
    put(tmp_path, "sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "4096")
    put(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")  # what it writes for none

    assert cpu_quota(tmp_path) == 2.5
    assert memory_limit_bytes(tmp_path) == 4096


def test_in_a_container_the_group_is_mounted_by_itself(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "3:cpu:/docker/0123/job")
    put(tmp_path, "proc/self/mountinfo", "32 31 0:29 /docker/0123 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu")
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000")
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    put(tmp_path, "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000")
    put(tmp_path, "sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000")

    assert cpu_quota(tmp_path) == 0.5
