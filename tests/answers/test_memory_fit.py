"""`advise memory` and `advisor.memory`, on toy devices and from a model file to the verdict."""

import json
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import nn

import advisor
from advisor.answers.memory_fit import memory_fit
from advisor.answers.ranking import rank
from advisor.cli.main import run
from advisor.errors import ExitCode, NothingFitsError, UsageError
from advisor.question.from_source import question_of
from advisor.records.device_memory import DeviceMemory, MemoryAnswer
from advisor.records.options import Options
from advisor.records.price import Catalog
from tests.answers.test_break_even import CPU, GPU, catalog
from tests.cost.toys import offer
from tests.model_files import TWO_LAYERS
from tests.says import assert_says
from tests.scale.test_remedies import GB, net

STEP = net(batch=8, parameter_bytes=GB)
"""11 GB of tensors at batch 8, and on a GPU a context of 0.29 to 0.67 GB."""
SMALL = replace(GPU, id="p4", name="P4", memory_bytes=8e9)
BIG = replace(GPU, id="a100", name="A100", memory_bytes=80e9)
TIGHT = replace(GPU, id="rtx", name="RTX", memory_bytes=11.5e9)


def gpus() -> Catalog:
    named = {gpu.id: gpu for gpu in (BIG, SMALL, TIGHT)}
    offers = tuple(offer(f"with-{name}", gpu=name, gpu_count=1, cpu=None) for name in named)
    return replace(catalog(), gpus=named, offers=offers)


def answer(*on: str, of: Catalog | None = None, **options: Any) -> MemoryAnswer:
    settings = Options(**({"mode": "training", "precision": "fp32"} | options))
    return memory_fit(question_of(STEP, settings, catalog=of or gpus()), on=on)


def only(found: MemoryAnswer) -> DeviceMemory:
    (device,) = found.devices
    return device


def test_devices_come_from_the_smallest_memory_with_a_verdict_each() -> None:
    found = [(device.name, device.verdict) for device in answer().devices]
    assert found == [("P4", "does not fit"), ("RTX", "tight"), ("A100", "fits")]


def test_the_peak_and_the_largest_batch_by_hand() -> None:
    device = only(answer("A100"))
    assert (device.peak_low_bytes, device.peak_high_bytes) == (11 * GB + 287_047_680, 11 * GB + 666_632_192)
    # 80 GB less 3 GB and 0.67 GB leave 76 samples of 1 GB; so do 80 GB less 3.29 GB.
    assert (device.largest_batch, device.largest_batch_at_most) == (76, 76)
    assert device.phase == "loss"
    assert {term.part: term.mid_bytes for term in device.terms}["optimizer state"] == 2 * GB


def test_another_batch_needs_no_other_trace() -> None:
    assert only(answer("A100", batch="20")).peak_low_bytes == 23 * GB + 287_047_680


def test_the_machine_may_be_named_by_its_offer() -> None:
    assert only(answer("with-p4")).name == "acme with-p4"


def test_remedies_are_of_the_device_they_are_for() -> None:
    remedies = {remedy.name: remedy for remedy in only(answer("P4")).remedies}
    # Two P4 hold 1.5 GB of all there is once, 4 samples, and what FSDP keeps whole: 0.625 GB.
    assert remedies["sharding"].peak_bytes == pytest.approx(6.125 * GB + (287_047_680 + 666_632_192) / 2)
    assert remedies["sharding"].verdict == "fits"
    assert remedies["8-bit optimizer"].verdict == "does not fit"


def test_host_memory_of_cpu_instances_counts_too() -> None:
    small, large = offer("small", memory_bytes=8e9), offer("large", memory_bytes=64e9)
    found = answer(of=replace(catalog(), cpus={"xeon": CPU}, offers=(small, large)))
    assert [(device.name, device.memory_bytes, device.verdict) for device in found.devices] == [
        ("CPU instance", 8e9, "does not fit"),
        ("CPU instance", 64e9, "fits"),
    ]


def test_a_precision_that_no_device_has_is_refused() -> None:
    with pytest.raises(NothingFitsError, match=r"no device .*\bbf16"):
        answer("cpu", of=catalog(), precision="bf16")


def test_limits_that_leave_no_offer_are_refused() -> None:
    with pytest.raises(NothingFitsError, match="limits"):
        answer(device=("cpu",))


def test_the_ranking_marks_what_is_tight_and_says_what_would_make_the_rest_fit() -> None:
    recommendation = rank(
        question_of(STEP, Options(mode="training", precision="fp32", batch="8", device=("gpu",)), catalog=gpus())
    )
    assert {quote.device.name: quote.is_tight for quote in recommendation.quotes} == {"A100": False, "RTX": True}
    [note] = [note for note in recommendation.notes if "too little memory" in note]
    assert "P4 (7.45 GiB)" in note
    assert "sharding" in note
    [left_out] = [each for each in recommendation.rejected if each.code == "does-not-fit"]
    assert_says(left_out.reason, "10.7 GiB", "batch 8", "7.45 GiB")


@pytest.fixture
def source(tmp_path: Path) -> str:
    file = tmp_path / "net.py"
    file.write_text(dedent(TWO_LAYERS))
    return str(file)


def test_the_command_and_python_agree(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", source, "--mode", "training", "--batch", "32", "--on", "t4", "-o", "json"]) == ExitCode.ANSWER
    document = json.loads(capsys.readouterr().out)
    [device] = document["devices"]
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
    found = only(advisor.memory(model, torch.zeros(16, 512), mode="training", batch=32, on="t4"))
    assert device["peak_bytes"] == found.peak_bytes
    assert (document["batch"], device["largest_batch"]) == (32, found.largest_batch)


def test_the_table_names_all_devices_on_offer(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", source, "--device", "gpu", "--top", "3"]) == ExitCode.ANSWER
    out = capsys.readouterr().out
    assert_says(out, "net", "inference", "batch 16", "devices")
    assert "more (--top" in out
    assert "CUDA context" in out


def test_what_fits_nowhere_is_told_with_another_exit_code(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", source, "--batch", "900000000", "--on", "t4"]) == ExitCode.NOTHING_FITS
    assert "does not fit t4" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        ("1..8", "memory takes one batch size"),
        ("auto", "memory takes one batch size"),
        ("0", "not a positive whole number"),
    ],
)
def test_memory_is_of_one_batch(source: str, batch: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", source, "--batch", batch]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert f"--batch {batch}: " in error
    assert reason in error


def test_a_batch_that_the_model_cannot_have_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\b8\b.*\b16\b"):
        memory_fit(question_of(replace(STEP, batch_is_affine=False), Options(batch="16"), catalog=gpus()), on=("A100",))
