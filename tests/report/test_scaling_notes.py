from dataclasses import replace
from typing import Any

import pytest

from advisor.records.scale import Plan
from advisor.report.quote_notes import plan_label, scaling_notes
from tests.report.toys import L4, recommendation
from tests.says import assert_says


def notes(plan: Plan | None, *, mode: Any = "training", gpus: int = 8, **changes: Any) -> list[str]:
    quote = replace(
        L4, batch=64, plan=plan, gpus_used=gpus, peak_memory_bytes=20 * 2**30, scaling_efficiency_ratio=0.97, **changes
    )
    return list(scaling_notes(quote, replace(recommendation(L4).job, mode=mode)))


def test_one_device_in_one_pass_needs_no_words() -> None:
    assert notes(None, gpus=1) == []


def test_idle_gpus_of_a_machine_are_said() -> None:
    eight = replace(L4.device, count=8)
    assert notes(None, gpus=1, device=eight) == ["it uses 1 of the machine's 8 GPUs."]
    assert len(notes(Plan(data=8), gpus=8, device=eight)) == 1


@pytest.mark.parametrize(
    ("plan", "how"),
    [
        (Plan(data=8), ("DDP",)),
        (Plan(data=8, sharding="zero3"), ("FSDP",)),
        (Plan(tensor=8), ("tensor parallel", "model's code")),
        (Plan(pipeline=8), ("pipeline", "model's code")),
        (
            Plan(tensor=2, data=4, sharding="zero3"),
            ("tensor parallel", "2", "model's code", "FSDP"),
        ),
    ],
)
def test_training_says_how_and_how_well_it_scales(plan: Plan, how: tuple[str, ...]) -> None:
    (note,) = notes(plan)
    assert_says(note, *how, "8 GPUs", "97 %", "20 GiB", "64", "all GPUs")


def test_passes_and_checkpoints_are_told() -> None:
    (note,) = notes(Plan(data=8, accumulate=4, checkpoint_activations=True))
    assert_says(note, "64", "all GPUs", "4 passes", "activation checkpointing")
    (note,) = notes(Plan(accumulate=2), gpus=1)
    assert_says(note, "64", "2 passes")
    assert "GPU" not in note


@pytest.mark.parametrize(
    ("plan", "label"),
    [
        (None, ""),
        (Plan(), ""),
        (Plan(data=8, sharding="zero3"), "FSDP"),
        (Plan(tensor=8), "tensor 8"),
        (Plan(tensor=2, data=4), "tensor 2 x DDP"),
        (Plan(pipeline=4, data=2, sharding="zero1"), "pipeline 4 x ZeRO-1"),
    ],
)
def test_a_table_has_a_short_name_for_a_plan(plan: Plan | None, label: str) -> None:
    assert plan_label(plan) == label


def test_replicas_of_inference_are_told() -> None:
    (note,) = notes(Plan(data=8), mode="inference")
    assert_says(note, "each", "8 GPUs", "copy", "64", "all GPUs")
