from dataclasses import replace
from typing import Any

import pytest

from advisor.records.scale import Plan
from advisor.report.quote_notes import plan_label, scaling_notes
from tests.report.toys import L4, recommendation


def notes(plan: Plan | None, *, mode: Any = "training", gpus: int = 8, **changes: Any) -> list[str]:
    quote = replace(
        L4, batch=64, plan=plan, gpus_used=gpus, peak_memory_bytes=20 * 2**30, scaling_efficiency_ratio=0.97, **changes
    )
    return list(scaling_notes(quote, replace(recommendation(L4).job, mode=mode)))


def test_one_device_in_one_pass_needs_no_words() -> None:
    assert notes(None, gpus=1) == []


@pytest.mark.parametrize(
    ("plan", "how"),
    [
        (Plan(data=8), "data parallel (DDP)"),
        (Plan(data=8, sharding="zero3"), "fully sharded (FSDP)"),
        (Plan(tensor=8), "tensor parallel, which the model's code must support,"),
        (Plan(pipeline=8), "in a pipeline, which the model's code must support,"),
        (
            Plan(tensor=2, data=4, sharding="zero3"),
            "tensor parallel in groups of 2, which the model's code must support, and fully sharded (FSDP) "
            "between the groups,",
        ),
    ],
)
def test_training_says_how_and_how_well_it_scales(plan: Plan, how: str) -> None:
    assert notes(plan) == [
        f"it runs {how} on 8 GPUs at a scaling efficiency of 97 %, 20 GiB on each; its batch of 64 is for all GPUs."
    ]


def test_passes_and_checkpoints_are_told() -> None:
    (note,) = notes(Plan(data=8, accumulate=4, checkpoint_activations=True))
    assert note.endswith("its batch of 64 is for all GPUs and runs in 4 passes and uses activation checkpointing.")
    assert notes(Plan(accumulate=2), gpus=1) == ["its batch of 64 runs in 2 passes."]


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
    assert notes(Plan(data=8), mode="inference") == [
        "each of 8 GPUs runs a copy of the model; its batch of 64 is for all GPUs."
    ]
