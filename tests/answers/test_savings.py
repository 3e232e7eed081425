"""The settings that save most, at the cost that `advise` gives with their flags."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from advisor.answers.explanation import explain
from advisor.catalog.overlay import load_catalog
from advisor.cli.main import run
from advisor.errors import ExitCode
from advisor.question.from_source import profile_source, question_of
from advisor.records.fine_tuning import FineTuning
from advisor.records.options import Options
from advisor.records.workload import Workload
from advisor.workload.file import workload_to_json
from tests.answers.test_break_even import catalog, net
from tests.generations import traced

NET = """
    import torch
    from torch import nn

    def get_model():
        return nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU())

    def example_inputs(batch=8):
        return torch.zeros(batch, 64, 32, 32)
"""
TO_THE_DIGIT = 1e-12
"""Sums over one device and over all of them differ in the last bit."""
Json = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("net") / "net.py"
    file.write_text(dedent(NET))
    saved = file.with_suffix(".json")
    workload = profile_source(str(file), Options(mode="training")).workload
    saved.write_text(json.dumps(workload_to_json(workload)))
    return str(saved)


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Json:
    def call(*arguments: str) -> dict[str, Any]:
        assert run([*arguments, "-o", "json"]) == ExitCode.ANSWER
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return call


def flags_of(change: dict[str, Any]) -> list[str]:
    if change["kind"] == "instance":
        return []
    return [f"--{change['kind']}", "auto" if change["kind"] == "batch" else change["to"]]


@pytest.mark.parametrize(("instance", "flags"), [("g5.xlarge", ()), ("c7a.4xlarge", ("--precision", "fp32"))])
def test_every_change_costs_what_the_ranking_says_with_its_flag(
    source: str, answer: Json, instance: str, flags: tuple[str, ...]
) -> None:
    (step,) = answer("explain", source, "--on", instance, "--steps", "1000000", *flags)["steps"]
    samples = 1_000_000 * step["batch"]  # other batches do as many samples in other steps
    assert len(step["changes"]) > 1
    for change in step["changes"]:
        asked = [flag for flag in flags if change["kind"] != "precision" or flag not in ("--precision", "fp32")]
        quotes = answer(source, "--samples", str(samples), *asked, *flags_of(change))["quotes"]
        named = change["to"] if change["kind"] == "instance" else f"aws {instance}"
        (quote,) = (one for one in quotes if f"{one['provider']} {one['instance']}" == named)
        assert quote["job_usd"] == pytest.approx(change["job_usd"], rel=TO_THE_DIGIT)
        assert quote["batch"] == change["batch"]
        assert change["saved_usd"] == pytest.approx(step["job_usd"]["mid"] - quote["job_usd"]["mid"])
        assert change["saved_ratio"] == pytest.approx(change["saved_usd"] / step["job_usd"]["mid"])


def test_the_one_that_saves_most_comes_first(source: str, answer: Json) -> None:
    (step,) = answer("explain", source, "--on", "g5.xlarge")["steps"]
    saved = [change["saved_usd"] for change in step["changes"]]
    assert saved == sorted(saved, reverse=True)
    assert {change["kind"] for change in step["changes"]} >= {"batch", "instance"}


def test_a_larger_batch_and_another_instance_by_hand() -> None:
    # See tests/answers/test_break_even.py. A batch of two costs the GPU $1e-3 x 0.42, half per million of them $210. In
    # batches of 2048 it is 489 steps of 0.4 + 20.48 s, $10.21; a CPU takes 1 s a sample in any batch: $100.
    # Nothing else helps: the toys are as fast in any precision, compiled or not, and there is no convolution.
    # Half per million steps of two stay per million samples in larger batches.
    options = Options(batch="2", precision="fp32", steps=500_000)
    step = explain(question_of(net(), options, catalog=catalog()), on=("gpu",)).steps[0]
    assert step.job_usd is not None
    assert step.job_usd.mid == pytest.approx(210.0)
    larger, other = (change for change in step.changes if change.kind in ("batch", "instance"))
    assert (larger.to, larger.job_usd.mid) == ("2048", pytest.approx(489 * 20.88 * 1e-3))
    assert (other.to, other.job_usd.mid) == ("acme cpu", pytest.approx(100.0))


def test_a_change_that_does_not_save_is_not_recited() -> None:
    # In batches of 4096 the GPU is the best there is at what it does.
    step = explain(question_of(net(), Options(batch="4096", precision="fp32"), catalog=catalog()), on=("gpu",)).steps[0]
    assert {change.kind for change in step.changes} <= {"precision", "compile"}
    assert all(change.saved_ratio >= 0.01 for change in step.changes)


def test_another_precision_of_fine_tuning_needs_another_trace_and_is_not_priced() -> None:
    options = Options(mode="training", batch="2", precision="fp32")
    plain = replace(net(), mode="training")
    tuned = replace(plain, fine_tuning=FineTuning(method="lora"))
    of_plain, of_tuned = (
        explain(question_of(step, options, catalog=catalog()), on=("gpu",)).steps[0] for step in (plain, tuned)
    )
    assert "precision" in {change.kind for change in of_plain.changes}
    assert "precision" not in {change.kind for change in of_tuned.changes}


def test_a_device_by_itself_costs_nothing_that_could_be_saved(source: str, answer: Json) -> None:
    (step,) = answer("explain", source, "--on", "t4")["steps"]
    assert (step["job_usd"], step["changes"]) == (None, [])


@pytest.mark.slow
def test_fused_attention_is_traced_where_scores_travel_through_memory(tmp_path: Path, answer: Json) -> None:
    config = tmp_path / "gpt2.json"
    config.write_text(
        json.dumps(
            {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_embd": 128, "n_head": 4}
        )
    )
    source = f"hf:{config}"
    flags = ("--on", "g5.xlarge", "--batch", "8", "--compile", "compile", "--precision", "amp-fp16")
    (step,) = answer("explain", source, *flags, "--attention", "eager")["steps"]
    (fused,) = answer("explain", source, *flags, "--attention", "fused")["steps"]
    (change,) = (one for one in step["changes"] if one["kind"] == "attention")
    assert change["to"] == "fused"
    assert change["job_usd"] == pytest.approx(fused["job_usd"], rel=TO_THE_DIGIT)
    assert "attention" not in {one["kind"] for one in fused["changes"]}


def test_what_is_fused_already_is_not_traced_again() -> None:
    def trace_fused(batch: int) -> Workload:
        raise AssertionError("traced again")

    explain(question_of(net(), Options(precision="fp32"), catalog=catalog(), trace_fused=trace_fused), on=("gpu",))


def test_a_language_model_in_service_is_offered_narrower_weights() -> None:
    pytest.importorskip("transformers")
    workload = traced("llama3_8b", prompt_tokens=1024, output_tokens=256)
    options = Options(no_local=True, device=("a100-sxm4-80gb",), concurrency="1")
    (step,) = explain(question_of(workload, options, catalog=load_catalog())).steps

    # Alone it reads all weights for each token; another number of requests saves more still, but was not asked for.
    assert [(change.kind, change.to) for change in step.changes if change.kind == "weights"] == [("weights", "int4")]
