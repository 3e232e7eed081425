"""A script's job is priced as the script runs, except for what the user gives."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.answers.ranking import rank
from advisor.cost.job import SIZES
from advisor.question.early_trace import request_of
from advisor.question.from_source import as_script, question_from_source
from advisor.records.options import Options, ScriptOptions
from advisor.records.script import Script
from advisor.workload.file import workload_from_json, workload_to_json
from tests.predict.toys import operand, row, workload

SCRIPT = Script(
    gpu_precision="amp-fp16", cpu_precision="fp32", compile="compile", layout="nhwc", passes=2, worker_count=4,
    loader_s_per_sample=0.001, sample_count=3000,
)  # fmt: skip
IMAGES = operand((0.0, 1.0), 1000)
STEP = workload(row("aten.relu", (IMAGES,), (IMAGES,), family="pointwise"), mode="training", script=SCRIPT)


def test_the_script_sets_what_the_user_does_not() -> None:
    step, options = as_script(STEP, ScriptOptions(mode="inference", top=3))
    assert step is STEP
    found = (options.mode, options.compile, options.layout, options.loader_s_per_sample, options.loader_workers)
    assert found == ("training", "compile", "nhwc", 0.001, 4)
    assert (options.precision, options.top) == ("auto", 3)


def test_what_the_user_gives_counts_also_where_it_is_the_default() -> None:
    given = frozenset({"compile", "precision", "loader_workers"})
    step, options = as_script(STEP, ScriptOptions(loader_workers=0, given=given))
    assert (options.compile, options.loader_workers, options.layout) == ("eager", 0, "nhwc")
    assert step.script is not None
    assert (step.script.gpu_precision, step.script.cpu_precision) == (None, None)


@pytest.mark.parametrize(("given", "noted"), [(frozenset(), True), (frozenset({"precision"}), False)])
def test_autocast_that_was_off_is_noted_unless_the_precision_is_given(given: frozenset[str], noted: bool) -> None:
    off = replace(STEP, script=replace(SCRIPT, unused_autocast="the script has autocast"))
    step, _ = as_script(off, ScriptOptions(given=given))
    assert ("the script has autocast" in step.assumptions) == noted


@pytest.mark.parametrize(
    ("given", "samples"),
    [({}, 3000), ({"samples": 50}, 50), *(({name: 10}, None) for name in SIZES if name != "samples")],
)
def test_the_job_is_what_the_script_trains_unless_the_user_gives_its_size(given: dict[str, Any], samples: int) -> None:
    _, options = as_script(STEP, ScriptOptions(**given, given=frozenset(given)))
    assert options.samples == samples


def test_a_script_that_is_timed_in_inference_does_not_say_how_much_is_inferred() -> None:
    _, options = as_script(replace(STEP, mode="inference"), ScriptOptions())
    assert options.samples is None


@pytest.mark.parametrize(
    ("options", "finds"),
    [(ScriptOptions(), True), (ScriptOptions(given=frozenset({"mode"})), False), (Options(), False)],
)
def test_the_mode_is_looked_for_unless_it_is_given(options: Options, finds: bool) -> None:
    assert request_of("train.py", options, batch=None, run=True).finds_mode is finds


def test_a_saved_workload_keeps_what_the_script_sets() -> None:
    assert workload_from_json(workload_to_json(STEP)) == STEP


@pytest.mark.parametrize("autocast", [True, False])
def test_fp32_is_priced_as_fp32_and_the_cheaper_precision_is_named(tmp_path: Path, autocast: bool) -> None:
    path = tmp_path / "train.py"
    context = "torch.autocast('cuda', dtype=torch.bfloat16)" if autocast else "torch.enable_grad()"
    path.write_text(
        "import torch\n"
        "model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(4)))\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(9):\n"
        f"    with {context}:\n"
        "        loss = model(torch.rand(512, 4096)).mean()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
    )
    options = ScriptOptions(device=("h100-sxm5-80gb",), drop_prices="none", max_price_age=10**6)
    answer = rank(question_from_source(str(path), options, run=True, read_machine=None))
    assert answer.job.mode == "training"
    assert {quote.precision for quote in answer.quotes} == {"amp-bf16" if autocast else "fp32"}
    if autocast:
        assert answer.best_in_auto is None
        return
    # Matmuls of this size run at 989 TFLOP/s in bf16 and at 67 in fp32 (H100's datasheet), so a step costs far less.
    assert answer.best is not None
    assert answer.best_in_auto is not None
    assert answer.best_in_auto.precision == "amp-bf16"
    assert answer.best_in_auto.job_usd.mid < answer.best.job_usd.mid / 2
