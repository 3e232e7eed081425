"""Options of fine-tuning: what is refused, and how a job is sized and run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.answers.ranking import rank
from advisor.errors import UsageError
from advisor.question.fine_tuning import as_fine_tuned, check_fine_tuning
from advisor.question.from_source import question_from_source
from advisor.records.fine_tuning import FineTuning
from advisor.records.options import Options
from advisor.records.workload import MemoryLine, StoredBytes
from tests.answers.test_tuning_validation import TINY
from tests.predict.toys import row
from tests.predict.toys import workload as toy


@pytest.mark.parametrize(
    ("source", "given", "named"),
    [
        ("hf:a.json", {"lora_rank": 8}, "--lora-rank"),
        ("hf:a.json", {"finetune": "full", "lora_rank": 8}, "--lora-rank"),
        ("hf:a.json", {"finetune": "lora", "prompt_tokens": 8}, "--finetune"),
        ("timm:resnet50", {"finetune": "full", "sequence": 8}, "--sequence"),
        ("workload.json", {"finetune": "lora"}, "--finetune"),
    ],
)
def test_options_that_contradict_the_source_are_refused(source: str, given: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        check_fine_tuning(source, Options(**given))


def test_a_script_says_itself_what_it_trains() -> None:
    with pytest.raises(UsageError, match="script"):
        check_fine_tuning("train.py", Options(finetune="lora"), run=True)


def tuned(**how: Any) -> Any:
    return replace(toy(mode="training"), fine_tuning=FineTuning(**{"method": "lora", **how}))


def test_trainers_recompute_activations_and_hold_16_bits() -> None:
    _, options = as_fine_tuned(tuned(), Options(finetune="lora"))
    assert (options.mode, options.precision, options.batch) == ("training", "half", "auto")
    assert options.checkpoint_activations
    _, options = as_fine_tuned(
        tuned(), Options(finetune="lora", keep_activations=True, precision="amp-bf16", batch="4")
    )
    assert (options.precision, options.batch, options.checkpoint_activations) == ("amp-bf16", "4", False)


@pytest.mark.parametrize("given", [{"mean_tokens": 100.0}, {"packing": True, "samples": 10}])
def test_packing_needs_the_tokens_of_a_sample(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"--packing|--mean-tokens"):
        as_fine_tuned(tuned(), Options(finetune="lora", **given))


def test_the_state_of_a_paged_optimizer_crosses_the_link_instead_of_filling_the_gpu() -> None:
    nothing = StoredBytes()
    line = MemoryLine(
        phase="optimizer", parameters=nothing, buffers=nothing, gradients=nothing,
        optimizer_state=StoredBytes(other=(1000.0, 0.0)), activations=nothing, temporaries=nothing,
    )  # fmt: skip
    optimizer = row("optimizer", family="optimizer", phase="optimizer", attributes={"element_count": 100.0})
    step = replace(tuned(optimizer="paged-adamw-8bit"), memory=(line,), rows=(optimizer,))
    found, _ = as_fine_tuned(step, Options())
    assert found.memory[0].optimizer_state == nothing
    assert found.inputs == step.inputs
    assert found.rows[0].attributes["paged_bytes_per_element"] == 20.0  # 1000 bytes of 100 elements, in and out


@pytest.mark.parametrize(
    ("asked", "differs"),
    [
        ({}, True),
        ({"lengths": "100,200", "samples": 100}, True),
        ({"gpus": 1}, False),
        ({"sharding": "zero3"}, False),
        ({"sharding": "zero2"}, False),
        ({"precision": "bf16"}, False),
    ],
)
def test_plans_with_fsdp_have_the_trace_of_fsdp_under_autocast(
    tmp_path: Path, asked: dict[str, Any], differs: bool
) -> None:
    pytest.importorskip("transformers")
    config = tmp_path / "tiny.json"
    config.write_text(TINY)
    options = Options(**({"finetune": "full", "precision": "amp-bf16", "no_local": True} | asked))
    found = question_from_source(f"hf:{config}", options).workload.under_fsdp
    assert (found is not None) == differs
    if found is not None:
        assert found.is_half
        assert found.fine_tuning is not None
        assert found.fine_tuning.fp32_shards


def test_a_packed_job_has_as_many_sequences_as_its_tokens_fill(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = tmp_path / "tiny.json"
    config.write_text(TINY)
    options = Options(
        finetune="lora",
        sequence=128,
        packing=True,
        samples=1000,
        epochs=3,
        mean_tokens=32,
        no_local=True,
        device=("l4",),
    )
    question = question_from_source(f"hf:{config}", options)
    assert rank(question).job.samples == 750  # 1,000 x 3 x 32 / 128
    assert question.workload.fine_tuning is not None
    # q_proj 64 -> 64 and v_proj 64 -> 32 in two layers, rank 16.
    assert question.workload.fine_tuning.trained_count == 2 * 16 * (64 + 64 + 64 + 32)
