from dataclasses import replace

import numpy as np
import pytest

from advisor.catalog.overlay import load_catalog
from advisor.predict.step_time import predict
from advisor.records.device import Device
from advisor.records.prediction import Scaling
from advisor.records.scale import Plan
from advisor.records.workload import Workload
from advisor.scale.memory_notes import memory_notes
from tests.predict.toys import device, efficiency
from tests.says import assert_says
from tests.scale.test_remedies import GB, net, served

VLLM = load_catalog().engines["vllm"]


def notes(*devices: Device) -> tuple[str, ...]:
    predictions = predict(net(), devices=devices, efficiencies=(efficiency(),), batches=np.array([8]), precision="fp32")
    return memory_notes(lambda batch: net(), predictions)


def test_the_largest_that_is_too_small_is_named_with_the_numbers_and_what_would_fit() -> None:
    small, larger = (device(id=name, name=name, memory_bytes=size) for name, size in (("A", 4 * GB), ("B", 8 * GB)))
    [note] = notes(small, larger, device())
    # 11 GB and a CUDA context of 0.48 GB are 10.7 GiB; B has 8 GB, 7.45 GiB.
    assert_says(note, "B", "7.45 GiB", "batch 8", "10.7 GiB", "fp32")
    # Of 3 GB and 8 x 0.4 GB, with the context, are 6.22 GiB.
    assert "activation checkpointing (6.22 GiB)" in note
    assert "8-bit optimizer" not in note  # 9.5 GB


def test_what_may_or_may_not_fit_is_no_remedy() -> None:
    # Checkpoints need 6.22 GiB, within the error of 6.2 GiB; the ranking takes what fits by the estimate itself.
    [note] = notes(device(memory_bytes=6.2 * 2**30))
    assert "activation checkpointing" not in note


def planned(plan: Plan, *, memory_bytes: float, batch: int) -> str:
    """Say what would help a step of `net()` under the plan on machines of four GPUs."""
    four = device(memory_bytes=memory_bytes, gpu_count=4, network_bytes_per_s=1e9)
    alone = predict(net(), devices=[four], efficiencies=(efficiency(),), batches=np.array([batch]), precision="fp32")
    scaling = Scaling(plans=(plan,), plan=np.zeros((1, 1), dtype=np.intp), efficiency_ratio=np.ones((1, 1)))
    too_much = replace(alone, scaling=scaling, fits=np.zeros((1, 1), dtype=np.bool_))
    [note] = memory_notes(lambda batch: net(), replace(too_much, peak_memory_bytes=np.array([[1.5 * memory_bytes]])))
    return note


def test_a_plan_over_several_gpus_has_the_remedies_of_each() -> None:
    # Each of four holds 8 samples of 1 GB, or with checkpoints of 0.4 GB; each of eight holds 4. Beside them are a
    # shard of 3 GB, the gathered 0.625 GB twice, and the context: 6.1 GB on each of eight.
    note = planned(Plan(data=4, sharding="zero3"), memory_bytes=6.5 * GB, batch=32)
    assert_says(note, "4 of them", "each", "gradient accumulation", "activation checkpointing", "--max-machines 2")
    assert "sharding" not in note  # over four GPUs already


def test_a_plan_on_one_gpu_has_its_remedies() -> None:
    # 8 samples of 1 GB in a pass, or with checkpoints of 0.4 GB; 3 GB of states, 1 GB of gradients and the context.
    note = planned(Plan(accumulate=2), memory_bytes=8 * GB, batch=16)
    assert "each" not in note
    assert "activation checkpointing" in note


def test_nothing_is_said_where_all_fit() -> None:
    assert notes(device()) == ()


def test_where_nothing_helps_that_is_said() -> None:
    # Even sharded over 64 GPUs 0.625 GB of parameters are whole on each, beside the context.
    [note] = notes(device(memory_bytes=0.5 * GB))
    assert_says(note, "no known change")


def test_of_gpus_that_share_the_step_the_least_that_each_needs_is_told_and_no_change_for_one() -> None:
    four = device(name="B", memory_bytes=2 * GB, gpu_count=4)
    alone = predict(net(), devices=[four], efficiencies=(efficiency(),), batches=np.array([8]), precision="fp32")
    scaling = Scaling(plans=(Plan(data=4),), plan=np.zeros((1, 1), dtype=np.intp), efficiency_ratio=np.ones((1, 1)))
    shared = replace(alone, peak_memory_bytes=np.array([[3.0 * 2**30]]), scaling=scaling)
    [note] = memory_notes(lambda batch: net(), shared)
    assert_says(note, "B", "1.86 GiB each", "batch 8", "4", "3 GiB each", "fp32")
    assert "activation checkpointing" not in note


@pytest.mark.parametrize(
    ("toy", "gpus", "network_bytes_per_s", "machines"),
    [
        # 3 GiB are 3.22 GB: 1.8 times the 1.8 GB that vLLM uses of 2 GB, and 3.2 times half of the 2 GB.
        (served(engine=VLLM), 4, 1e9, "--max-machines 2"),
        (served(engine=replace(VLLM, memory_ratio=0.5)), 4, 1e9, "--max-machines 4"),
        (net(), 4, 1e9, "--max-machines 2"),
        (net(mode="inference"), 4, 1e9, ""),
        (net(), 2, 1e9, ""),
        (net(), 4, None, ""),
    ],
)
def test_machines_are_advised_to_join_only_if_they_can(
    toy: Workload, gpus: int, network_bytes_per_s: float | None, machines: str
) -> None:
    four = device(memory_bytes=2 * GB, gpu_count=4, network_bytes_per_s=network_bytes_per_s)
    alone = predict(net(), devices=[four], efficiencies=(efficiency(),), batches=np.array([8]), precision="fp32")
    scaling = Scaling(
        plans=(Plan(tensor=gpus),), plan=np.zeros((1, 1), dtype=np.intp), efficiency_ratio=np.ones((1, 1))
    )
    peak_bytes = np.array([[3.0 * 2**30]])
    [note] = memory_notes(lambda batch: toy, replace(alone, peak_memory_bytes=peak_bytes, scaling=scaling))
    assert machines in note
    assert ("--max-machines" in note) == bool(machines)


def test_what_cannot_be_divided_is_not_too_small() -> None:
    alone = predict(net(), devices=[device()], efficiencies=(efficiency(),), batches=np.array([8]), precision="fp32")
    none = replace(alone, fits=np.zeros((1, 1), dtype=np.bool_), peak_memory_bytes=np.full((1, 1), np.inf))
    assert memory_notes(lambda batch: net(), none) == ()
