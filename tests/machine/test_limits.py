"""The limits of this process, from control groups of both versions, and the memory that is free now."""

from pathlib import Path

import pytest

from advisor.machine.limits import cpu_quota, free_memory_bytes, total_memory_bytes
from tests.machine.trees import put

MEMINFO = "MemTotal:  8388608 kB\nMemFree:  1048576 kB\nMemAvailable:  4194304 kB"
GIB = 2**30
V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"


def version_2(root: Path, *, path: str = "/a.slice/b.service") -> None:
    put(root, "proc/self/cgroup", f"0::{path}")
    put(root, "proc/self/mountinfo", V2_MOUNT)


def test_without_groups_nothing_is_limited(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert total_memory_bytes(tmp_path) is None


def test_version_2_gives_quota_over_period(tmp_path: Path) -> None:
    version_2(tmp_path)
    put(tmp_path, "sys/fs/cgroup/a.slice/b.service/cpu.max", "150000 100000")
    put(tmp_path, "sys/fs/cgroup/a.slice/b.service/memory.max", "1073741824")

    assert cpu_quota(tmp_path) == 1.5
    assert total_memory_bytes(tmp_path) == 2**30


def test_the_tightest_group_on_the_way_up_counts(tmp_path: Path) -> None:
    version_2(tmp_path)
    put(tmp_path, "sys/fs/cgroup/a.slice/b.service/cpu.max", "max 100000")
    put(tmp_path, "sys/fs/cgroup/a.slice/cpu.max", "400000 100000")
    put(tmp_path, "sys/fs/cgroup/a.slice/b.service/memory.max", "max")
    put(tmp_path, "sys/fs/cgroup/a.slice/memory.max", "2000")

    assert cpu_quota(tmp_path) == 4.0
    assert total_memory_bytes(tmp_path) == 2000


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
    assert total_memory_bytes(tmp_path) == 4096


def test_in_a_container_the_group_is_mounted_by_itself(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "3:cpu:/docker/0123/job")
    put(tmp_path, "proc/self/mountinfo", "32 31 0:29 /docker/0123 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu")
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000")
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    put(tmp_path, "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000")
    put(tmp_path, "sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000")

    assert cpu_quota(tmp_path) == 0.5


def with_memory_files(root: Path, **files: str) -> None:
    put(root, "proc/self/cgroup", "0::/a.service")
    put(root, "proc/self/mountinfo", V2_MOUNT)
    for name, text in files.items():
        put(root, f"sys/fs/cgroup/a.service/memory.{name}", text)


def test_free_is_what_the_kernel_calls_available(tmp_path: Path) -> None:
    put(tmp_path, "proc/meminfo", MEMINFO)

    assert total_memory_bytes(tmp_path) == 8 * GIB
    assert free_memory_bytes(tmp_path) == 4 * GIB


def test_a_control_group_leaves_its_limit_less_what_it_holds_beside_old_file_cache(tmp_path: Path) -> None:
    put(tmp_path, "proc/meminfo", MEMINFO)
    with_memory_files(
        tmp_path, max=str(3 * GIB), current=str(2 * GIB), stat=f"anon 5\ninactive_file {GIB}\nactive_file 7"
    )

    # 3 - (2 - 1) GiB are less than the 4 GiB that the machine has free
    assert total_memory_bytes(tmp_path) == 3 * GIB
    assert free_memory_bytes(tmp_path) == 2 * GIB


def test_a_group_without_a_limit_leaves_what_the_machine_has(tmp_path: Path) -> None:
    put(tmp_path, "proc/meminfo", MEMINFO)
    with_memory_files(tmp_path, max="max", current=str(2 * GIB))

    assert free_memory_bytes(tmp_path) == 4 * GIB


def test_where_nothing_says_so_it_is_not_known(tmp_path: Path) -> None:
    assert total_memory_bytes(tmp_path) is None
    assert free_memory_bytes(tmp_path) is None
