"""The devices at hand in a terminal."""

from advisor.catalog.overlay import load_catalog
from advisor.devices.local_device import local_devices
from advisor.records.machine import Inventory, TorchSeen
from advisor.report.content import View
from advisor.report.devices import inventory_content
from advisor.report.terminal import to_text
from tests.machines import gpu, machine
from tests.says import assert_says


def render_inventory(found: Inventory, *, view: View) -> str:
    return to_text(inventory_content(found), view)


def inventory(**changes: object) -> Inventory:
    here = machine(gpus=(gpu("Tesla T4", memory_bytes=15 * 2**30), gpu("Riva TNT", id="cuda:1")))
    values = {
        "machine": here,
        "torch": TorchSeen(version="2.9.0", thread_count=8),
        "devices": local_devices(here, load_catalog()),
        "calibrated_at": {"t4": "2026-11-18T09:30:00+00:00"},
        "others": (),
        "notes": ("a note of the machine",),
    }
    return Inventory(**(values | changes))  # type: ignore[arg-type]


def test_the_cpu_is_named_with_what_this_process_may_use() -> None:
    first = " ".join(render_inventory(inventory(), view=View(width=80)).splitlines()[:3])

    assert_says(
        first,
        *("AMD EPYC 7763 64-Core Processor", "8 cores", "16 threads", "L2 4 MiB", "L3 32 MiB", "memory 29.8 GiB"),
        *("sse4_2, avx, avx2, fma", "torch 2.9.0", "8 threads"),
    )  # 32e9 / 2^30 = 29.8


def test_each_device_is_a_row_with_its_profile_and_calibration() -> None:
    lines = render_inventory(inventory(), view=View(width=100)).splitlines()

    rows = {line.split()[0]: line.split() for line in lines if line.startswith(("cpu", "cuda"))}
    assert rows["cpu"][-1] == "no"
    assert "amd-epyc-7763" in rows["cpu"]
    assert rows["cuda:0"][-1] == "2026-11-18"
    # the T4's own sheet: 320 GB/s, 8.1 TFLOP/s in fp32, 65 on tensor cores
    assert rows["cuda:0"][1:] == ["Tesla", "T4", "t4", "40", "15", "GiB", "320", "8.14", "65.1", "2026-11-18"]
    assert rows["cuda:1"] == ["cuda:1", "Riva", "TNT", "none"]


def test_notes_of_devices_and_of_the_machine_follow() -> None:
    text = render_inventory(inventory(), view=View(width=200))

    assert_says(text, "cuda:1", "Riva TNT", "no profile")
    assert text.rstrip().endswith("a note of the machine")


def test_other_profiles_follow_where_they_were_asked_for() -> None:
    text = render_inventory(inventory(others=(load_catalog().gpus["l4"],)), view=View(width=80))

    assert "Other devices with a profile (1):" in text
    assert text.splitlines()[-1].split() == ["l4", "L4", "300"]
