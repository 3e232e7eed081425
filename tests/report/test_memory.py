import json
from dataclasses import replace
from typing import Any

from advisor.catalog.overlay import load_catalog
from advisor.records.answer import QuotedDevice
from advisor.records.device_memory import DeviceMemory, MemoryAnswer, MemoryTerm, Remedy
from advisor.records.generation import Generation
from advisor.records.scale import Plan
from advisor.report.as_json import to_json
from advisor.report.content import View
from advisor.report.memory import memory_content
from advisor.report.terminal import to_text
from tests.says import assert_says

GIB = 2**30


def on(name: str, memory_gib: float, **changes: Any) -> DeviceMemory:
    """A step of 8 GiB, give or take one."""
    size = memory_gib * GIB
    values: dict[str, Any] = {
        "name": name,
        "device": QuotedDevice(id=name.lower(), name=name, kind="gpu", count=1),
        "memory_bytes": size,
        "precision": "fp32",
        "batch": 32,
        "phase": "backward",
        "peak_bytes": 8 * GIB,
        "peak_low_bytes": 7 * GIB,
        "peak_high_bytes": 9 * GIB,
        "verdict": "fits" if memory_gib >= 9 else "tight" if memory_gib >= 7 else "does not fit",
        "largest_batch": int(4 * (memory_gib - 1)),
        "largest_batch_at_most": int(4 * (memory_gib + 1)),
        "terms": (
            MemoryTerm(part="activations", mid_bytes=7 * GIB, low_bytes=7 * GIB, high_bytes=7 * GIB, source="counted"),
            MemoryTerm(part="allocator", mid_bytes=GIB, low_bytes=0, high_bytes=2 * GIB, source="by hand"),
        ),
        "remedies": (
            Remedy(
                name="activation checkpointing",
                change="torch.utils.checkpoint on the 12 blocks layers.*",
                batch=32,
                peak_bytes=3 * GIB,
                saved_bytes=5 * GIB,
                verdict="fits",
                largest_batch=100,
                extra_flops_ratio=0.33,
            ),
        ),
    }
    merged = values | changes
    return DeviceMemory(**({"usable_bytes": merged["memory_bytes"]} | merged))


def answer(*devices: DeviceMemory) -> MemoryAnswer:
    return MemoryAnswer(
        schema_version=1, workload="gpt", mode="training", batch=32, optimizer="AdamW", devices=devices, notes=()
    )


def text(*devices: DeviceMemory, top: int = 10) -> str:
    return to_text(memory_content(answer(*devices), top=top), View())


def test_a_language_model_in_service_has_requests_in_flight() -> None:
    served = replace(answer(on("L4", 24.0)), optimizer=None, generation=Generation(prompt_tokens=8, output_tokens=2))
    shown = to_text(memory_content(served, top=10), View())
    assert_says(shown, "gpt", "LLM serving", "32 requests", "fits", "L4")
    assert "largest batch" not in shown
    assert_says(shown, "fits", "in flight 100")
    assert "batch" not in shown


def test_one_device_is_answered_in_a_sentence() -> None:
    assert_says(
        text(on("T4", 6)), "gpt", "training", "AdamW", "batch 32", "not fit", "T4", "fp32", "8 GiB [7-9]", "6 GiB"
    )


def test_several_are_counted_by_verdict_and_stand_in_a_table() -> None:
    lines = text(on("A", 6), on("B", 8), on("C", 16)).splitlines()
    assert_says(" ".join(lines[:3]), "gpt", "training", "AdamW", "batch 32", "3 devices", "1 fits")
    assert lines[3].split() == ["device", "memory", "precision", "peak", "[range]", "verdict", "largest", "batch"]
    assert lines[5].split() == ["B", "8", "GiB", "fp32", "8", "GiB", "[7-9]", "tight", "28-36"]


def test_the_rows_shown_are_those_around_the_border() -> None:
    devices = [on(f"D{size}", size) for size in range(2, 22)]
    shown = text(*devices, top=4)
    # The largest that is not sure to fit has 8 GiB.
    assert [name for name in (f"D{size}" for size in range(2, 22)) if f"\n{name} " in shown] == ["D6", "D7", "D8", "D9"]
    assert_says(shown, "16 more", "--top 20", "D8", "fp32", "backward")


def test_parts_are_shown_with_their_spread_and_source() -> None:
    lines = [line.split() for line in text(on("T4", 6)).splitlines()]
    assert ["activations", "7", "GiB", "counted"] in lines
    assert ["allocator", "0", "B", "-", "2", "GiB", "by", "hand"] in lines


def test_a_remedy_says_what_it_saves_and_costs() -> None:
    found = " ".join(text(on("T4", 6)).split())
    assert_says(found, "8 GiB", "activation checkpointing", "torch.utils.checkpoint", "12 blocks", "layers.*")
    assert_says(found, "layers.*", "3 GiB", "5 GiB less", "33 %", "fits", "batch 100")


def test_where_there_is_none_that_is_said() -> None:
    assert "no known change" in text(on("T4", 6, remedies=()))


def test_json_holds_the_record_field_by_field() -> None:
    document = json.loads(to_json(answer(on("T4", 6))))
    [device] = document["devices"]
    assert device["peak_low_bytes"] == 7 * GIB
    assert device["remedies"][0]["extra_flops_ratio"] == 0.33
    assert document["schema_version"] == 1


def test_an_answer_shows_itself(monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert repr(answer(on("T4", 6))) == text(on("T4", 6))


def test_every_line_fits_80_columns() -> None:
    long_name = replace(on("NVIDIA RTX 6000 Ada Generation with a long name", 6), precision="amp-bf16")
    assert max(map(len, text(long_name, on("B", 8)).splitlines())) <= 80


def test_names_and_verdicts_are_whole_at_80_columns() -> None:
    one = replace(on("aws p4de.24xlarge", 80), usable_bytes=72.25 * GIB, plan=Plan(tensor=8), precision="bf16")
    two = replace(one, name="h100-sxm5-80gb", verdict="does not fit", largest_batch_at_most=1000)
    generation = Generation(prompt_tokens=8, output_tokens=2, engine=load_catalog().engines["vllm"])
    served = replace(answer(one, two), generation=generation)
    shown = to_text(memory_content(served), View(width=80))
    assert_says(shown, "peak [range]", "most in flight", "aws p4de.24xlarge", "tensor 8", "h100-sxm5-80gb", "tensor 8")
    assert all(len(line) <= 80 for line in shown.splitlines())
