"""The resources that a process may use, from the files of the Linux kernel."""

from pathlib import Path

from advisor.catalog.overlay import load_catalog
from advisor.machine.linux import ISA, read_linux
from tests.machine.trees import EPYC, put, put_cache, put_siblings, write
from tests.says import assert_says

MEMINFO = "MemTotal:       16777216 kB\nMemFree: 1 kB"


def epyc(root: Path, *, flags: str = "") -> Path:
    """Two cores of two threads each: CPUs 0 and 2 share one, 1 and 3 the other."""
    write(root, proc__cpuinfo=EPYC.format(flags=flags), proc__meminfo=MEMINFO)
    put_siblings(root, (0, 2), (1, 3))
    return root


def quota(root: Path, limit: str) -> None:
    put(root, "proc/self/cgroup", "0::/")
    put(root, "proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
    put(root, "sys/fs/cgroup/cpu.max", limit)


def test_name_signature_instruction_sets_and_memory_are_read(tmp_path: Path) -> None:
    found = read_linux(affinity={0, 1, 2, 3}, root=epyc(tmp_path))

    assert found.cpu_name == "AMD EPYC 7763 64-Core Processor"
    assert found.cpu_signature == "AuthenticAMD 25 1"
    assert found.isa == ("sse4_2", "avx", "avx2", "fma")
    assert found.memory_bytes == 16 * 2**30  # 16,777,216 KiB
    assert not found.is_virtual


def test_threads_of_one_core_are_one_core(tmp_path: Path) -> None:
    found = read_linux(affinity={0, 1, 2, 3}, root=epyc(tmp_path))

    assert (found.core_count, found.thread_count) == (2.0, 4)


def test_only_cores_of_the_affinity_mask_count(tmp_path: Path) -> None:
    root = epyc(tmp_path)

    both_of_one = read_linux(affinity={0, 2}, root=root)
    one_of_each = read_linux(affinity={0, 1}, root=root)

    assert (both_of_one.core_count, both_of_one.thread_count) == (1.0, 2)
    assert (one_of_each.core_count, one_of_each.thread_count) == (2.0, 2)


def test_a_quota_below_the_cores_leaves_a_share_of_them_and_says_so(tmp_path: Path) -> None:
    root = epyc(tmp_path)
    quota(root, "150000 100000")

    found = read_linux(affinity={0, 1, 2, 3}, root=root)

    assert (found.core_count, found.thread_count) == (1.5, 2)
    assert "1.5 of 4 hardware threads" in found.notes[0]


def test_a_quota_between_cores_and_threads_leaves_all_cores(tmp_path: Path) -> None:
    root = epyc(tmp_path)
    quota(root, "300000 100000")

    found = read_linux(affinity={0, 1, 2, 3}, root=root)

    assert (found.core_count, found.thread_count) == (2.0, 3)


def test_of_a_hybrid_cpu_only_performance_cores_count(tmp_path: Path) -> None:
    root = epyc(tmp_path)
    put_siblings(root, (4,), (5,))
    put(root, "sys/devices/cpu_core/cpus", "0-3")

    found = read_linux(affinity=range(6), root=root)

    assert (found.core_count, found.thread_count) == (2.0, 4)


def test_efficiency_cores_count_where_the_mask_has_no_others(tmp_path: Path) -> None:
    root = epyc(tmp_path)
    put_siblings(root, (4,), (5,))
    put(root, "sys/devices/cpu_core/cpus", "0-3")

    assert read_linux(affinity={4, 5}, root=root).core_count == 2.0


def test_a_virtual_machine_that_shows_no_siblings_is_doubted(tmp_path: Path) -> None:
    root = write(tmp_path, proc__cpuinfo=EPYC.format(flags="hypervisor"), proc__meminfo=MEMINFO)
    put_siblings(root, (0,), (1,))

    found = read_linux(affinity={0, 1}, root=root)

    assert found.is_virtual
    assert any("hardware threads of the host" in note for note in found.notes)


def test_caches_shared_by_cpus_are_counted_once(tmp_path: Path) -> None:
    root = epyc(tmp_path)
    for cpu, core in ((0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")):
        put_cache(root, cpu, level=2, kib=512, shared=core)
        put_cache(root, cpu, level=3, kib=32768, shared="0-3")

    found = read_linux(affinity={0, 1, 2, 3}, root=root)

    assert found.l2_bytes == 2 * 512 * 1024
    assert found.l3_bytes == 32768 * 1024


def test_the_clocks_are_those_that_the_kernel_names(tmp_path: Path) -> None:
    root = epyc(tmp_path)
    put(root, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3500000")  # kHz
    put(root, "sys/devices/system/cpu/cpu0/acpi_cppc/nominal_freq", "2450")  # MHz

    found = read_linux(affinity={0}, root=root)

    assert (found.base_hz, found.boost_hz) == (2.45e9, 3.5e9)


def test_an_arm_core_is_named_by_its_part_and_amazons_by_their_model(tmp_path: Path) -> None:
    arm = "processor : 0\nFeatures : fp asimd asimdhp sve\nCPU implementer : 0x41\nCPU part : 0xd40"
    root = write(tmp_path, proc__cpuinfo=arm, proc__meminfo=MEMINFO)

    anywhere = read_linux(affinity={0}, root=root)
    put(root, "sys/class/dmi/id/sys_vendor", "Amazon EC2")
    at_amazon = read_linux(affinity={0}, root=root)

    assert (anywhere.cpu_name, anywhere.cpu_signature) == ("Neoverse-V1", "0x41 0xd40")
    assert anywhere.isa == ("asimd", "asimdhp", "sve")
    assert at_amazon.cpu_name == "AWS Graviton3 (Neoverse-V1)"


def test_what_cannot_be_read_is_none_and_said(tmp_path: Path) -> None:
    found = read_linux(affinity={0, 1}, root=tmp_path)

    assert (found.cpu_name, found.cpu_signature, found.memory_bytes, found.l3_bytes) == (None, None, None, None)
    assert (found.core_count, found.thread_count) == (2.0, 2)
    threads, memory = found.notes
    assert_says(threads, "hardware threads")
    assert_says(memory, "memory size")


def test_every_instruction_set_of_a_profile_is_looked_for() -> None:
    named = {flag for cpu in load_catalog().cpus.values() for flag in cpu.isa}

    assert named <= set(ISA)
