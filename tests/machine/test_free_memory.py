"""How much memory there is, and how much of it is free now."""

from pathlib import Path

from advisor.machine.free_memory import free_memory_bytes, total_memory_bytes
from tests.machine.trees import put

MEMINFO = "MemTotal:  8388608 kB\nMemFree:  1048576 kB\nMemAvailable:  4194304 kB"
V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"
GIB = 2**30


def version_2(root: Path, **files: str) -> None:
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
    version_2(tmp_path, max=str(3 * GIB), current=str(2 * GIB), stat=f"anon 5\ninactive_file {GIB}\nactive_file 7")

    # 3 - (2 - 1) GiB are less than the 4 GiB that the machine has free
    assert total_memory_bytes(tmp_path) == 3 * GIB
    assert free_memory_bytes(tmp_path) == 2 * GIB


def test_a_group_without_a_limit_leaves_what_the_machine_has(tmp_path: Path) -> None:
    put(tmp_path, "proc/meminfo", MEMINFO)
    version_2(tmp_path, max="max", current=str(2 * GIB))

    assert free_memory_bytes(tmp_path) == 4 * GIB


def test_where_nothing_says_so_it_is_not_known(tmp_path: Path) -> None:
    assert total_memory_bytes(tmp_path) is None
    assert free_memory_bytes(tmp_path) is None
