"""A Mac as sysctl and ioreg describe it; no Mac ran these tests."""

import plistlib

import pytest

from advisor.machine.macos import gpu_name, read_macos
from tests.says import assert_says

M3 = {
    "machdep.cpu.brand_string": "Apple M3 Pro",
    "hw.perflevel0.physicalcpu": "6",
    "hw.perflevel0.logicalcpu": "6",
    "hw.physicalcpu": "12",
    "hw.memsize": "19327352832",
    "hw.perflevel0.l2cachesize": "16777216",
    "hw.optional.AdvSIMD": "1",
    "hw.optional.arm.FEAT_BF16": "1",
    "hw.optional.arm.FEAT_I8MM": "0",
}


def test_performance_cores_memory_and_instruction_sets_are_read() -> None:
    found = read_macos(ask=lambda key: M3.get(key, ""))

    assert (found.cpu_name, found.core_count, found.thread_count) == ("Apple M3 Pro", 6.0, 6)
    assert found.memory_bytes == 18 * 2**30  # 19,327,352,832
    assert found.isa == ("asimd", "bf16")
    assert (found.l3_bytes, found.notes) == (None, ())


def test_a_mac_of_one_kind_of_core_counts_them_all() -> None:
    intel = {"hw.physicalcpu": "4", "hw.logicalcpu": "8"}

    found = read_macos(ask=lambda key: intel.get(key, ""))

    assert (found.core_count, found.thread_count) == (4.0, 8)
    (note,) = found.notes
    assert_says(note, "memory", "hw.memsize")


@pytest.mark.parametrize(
    ("cpu_name", "entries", "expected"),
    [
        ("Apple M3 Pro", [{"IOClass": "AGXAcceleratorG15X", "gpu-core-count": 14}], "Apple M3 Pro 14-core GPU"),
        ("Apple M3 Pro", [{"IOClass": "AGXAcceleratorG15X"}], None),
        ("Apple M3 Pro", [], None),
        (None, [{"gpu-core-count": 14}], None),
    ],
)
def test_the_gpu_is_called_after_its_chip_and_its_cores(
    cpu_name: str | None, entries: list[dict[str, object]], expected: str | None
) -> None:
    assert gpu_name(cpu_name, ask=lambda: plistlib.dumps(entries)) == expected


def test_a_machine_without_ioreg_has_no_name_for_its_gpu() -> None:
    assert gpu_name("Apple M1", ask=lambda: b"") is None
