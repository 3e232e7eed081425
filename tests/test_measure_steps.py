"""The script that times whole steps: its clockwork, its rows and its models."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
import torch

from advisor.calibrate.repeat_timing import time_step
from advisor.calibrate.run_step import step_of
from advisor.calibrate.step_process import MeasureRequest
from advisor.records.timing import StepTiming
from scripts.measure_steps import (
    FOLDER,
    MODELS,
    REPEATED_S,
    REPEATS,
    Kind,
    Rows,
    Series,
    Sweep,
    batches_to_measure,
    disturbance_ratio,
    load_to_time,
    load_with_weights,
    measure,
    mode_of,
    taken_ratio,
)
from tests.says import assert_says


def timing(*, step_s: float, others_cpu_count: float) -> StepTiming:
    return StepTiming(
        batch=1,
        step_s=step_s,
        low_s=step_s,
        high_s=step_s,
        step_count=7,
        iqr_ratio=0.01,
        others_cpu_count=others_cpu_count,
    )


# of a series with two threads on two CPUs: 2 % and 40 % of what it needs are taken
CALM = timing(step_s=0.5, others_cpu_count=0.04)
NOISY = timing(step_s=0.7, others_cpu_count=0.8)

TINY = """
import torch

model = torch.nn.Linear(3, 2)
example_inputs = torch.ones(4, 3)


def loss(output, batch):
    return output.sum()
"""


@pytest.fixture(autouse=True)
def machine_with_two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)


def series(
    *, model: str = "../../../../examples/mlp.py", mode: str = "inference", batches: tuple[int, ...] = (1, 4, 16)
) -> Series:
    return Series(
        model=model,
        mode=mode,
        precision="fp32",
        layout="nchw",
        compile="eager",
        device="some-cpu@2",
        thread_count=2,
        batches=batches,
    )


def scripted(durations: Callable[[int], float]) -> tuple[Callable[[], None], Callable[[], float]]:
    """A step whose n-th call takes `durations(n)`, and the clock that says so."""
    calls, now = 0, 0.0

    def step() -> None:
        nonlocal calls, now
        now += durations(calls)
        calls += 1

    return step, lambda: now


def test_a_step_takes_the_median_of_its_fastest_half() -> None:
    seconds = (9.0, 0.5, 0.4, 0.8, 0.5, 0.4, 0.6, 0.9, 0.7)  # two that warm up, then seven blocks of one step
    step, clock = scripted(seconds.__getitem__)
    found = time_step(step, budget_s=REPEATED_S, repeats=REPEATS, clock=clock)
    assert found.step_count == 7
    # 0.4 0.4 0.5 0.6 are the fastest half of seven; quartiles 0.4, 0.6 and 0.8
    assert found.step_s == pytest.approx(0.45)
    assert found.iqr_ratio == pytest.approx(0.4 / 0.6)


def test_what_others_take_is_what_the_spare_cpus_do_not_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    # 2 of 4 CPUs are spare, so of 2.2 that others keep busy 0.2 of the 2 that are needed are missing
    assert taken_ratio(timing(step_s=1.0, others_cpu_count=2.2), thread_count=2) == pytest.approx(0.1)
    assert taken_ratio(timing(step_s=1.0, others_cpu_count=1.9), thread_count=2) == 0.0


def test_quick_steps_are_repeated_within_blocks_for_a_second() -> None:
    step, clock = scripted(lambda call: 2**-10)
    found = time_step(step, budget_s=REPEATED_S, repeats=REPEATS, clock=clock)
    # 0.05 s hold 51 steps; 20 blocks of 51/1024 s are 0.996 s, so there is one more: 2 + 21 x 51 calls
    assert found.step_count == 21 * 51
    assert clock() == 1073 / 1024
    assert found.step_s == 2**-10
    assert found.iqr_ratio == 0


def test_rows_are_read_back_and_only_a_calmer_one_takes_their_place(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    Rows(path).keep_calmer(series(), 4, NOISY, machine="a machine")
    Rows(path).keep_calmer(series(), 4, CALM, machine="a machine", remarks=["kernels fill 0.93 of the step"])
    Rows(path).keep_calmer(series(), 4, NOISY, machine="a machine")
    with path.open(encoding="utf-8", newline="") as lines:
        (row,) = csv.DictReader(lines)
    assert float(row["step_s"]) == 0.5
    assert_says(row["source"], "a machine", "IQR 1.0%", "7 steps", "0.04 CPUs", "2.0%", "kernels fill 0.93")
    assert disturbance_ratio(row) == 0.02  # the share of kernels is none
    assert Rows(path).find(series(), 4) == row
    assert Rows(path).find(series(), 16) is None


def test_only_missing_rows_are_measured_then_only_disturbed_ones_again(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "steps.csv")
    rows.keep_calmer(series(), 1, CALM, machine="")
    rows.keep_calmer(series(), 4, NOISY, machine="")
    assert list(batches_to_measure(series(), rows, again=False)) == [16]
    assert list(batches_to_measure(series(), rows, again=True)) == [4]


def test_batches_too_slow_in_proportion_to_the_one_before_are_left_out(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "steps.csv")
    rows.keep_calmer(series(), 1, CALM, machine="")
    # 0.5 s for one sample: 2 s for four, but 8 s for sixteen, more than the 3 s allowed
    assert list(batches_to_measure(series(batches=(1, 4)), rows, again=False)) == [4]
    assert list(batches_to_measure(series(batches=(1, 16)), rows, again=False)) == []


def test_a_sweep_is_every_regime_of_every_model_and_threads_are_cores() -> None:
    sweep = Sweep(models="examples/mlp", precisions=("fp32", "bf16"), thread_counts=(1, 2), batches=(8,))
    assert [(one.precision, one.device) for one in sweep.series("epyc")] == [
        ("fp32", "epyc@1"),
        ("fp32", "epyc@2"),
        ("bf16", "epyc@1"),
        ("bf16", "epyc@2"),
    ]
    (on_gpu,) = Sweep(models="examples/mlp", batches=(8,)).series("some GPU")
    assert (on_gpu.device, on_gpu.thread_count) == ("some GPU", None)


def test_every_model_has_its_file_and_every_kind_its_models() -> None:
    files = [model.removeprefix("hf:") for model in MODELS if model.endswith((".py", ".json"))]
    assert [file for file in files if not (FOLDER / file).is_file()] == []
    assert set(MODELS.values()) == set(get_args(Kind))


def test_models_are_loaded_with_weights() -> None:
    parameters = list(load_with_weights("../../../../examples/lstm.py", mode="inference").model.parameters())
    assert parameters
    assert not any(parameter.is_meta for parameter in parameters)


@pytest.mark.parametrize(("mode", "changes"), [("forward_backward", False), ("training", True)])
def test_only_training_runs_the_optimizer(mode: str, changes: bool, tmp_path: Path) -> None:
    file = tmp_path / "tiny.py"
    file.write_text(TINY, encoding="utf-8")
    loaded = load_to_time(series(model=str(file), mode=mode))
    weight = loaded.model.weight
    before = weight.detach().clone()
    request = MeasureRequest(source="tiny", mode=mode_of(mode), batch=1)
    step_of(loaded, request, device=torch.device("cpu"))()
    assert weight.grad is not None
    assert torch.equal(weight, before) != changes


def test_a_series_that_cannot_run_is_reported_and_leaves_no_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "steps.csv"
    measure(series(mode="training"), Rows(path), machine="", again=False, is_over=lambda: False)
    assert_says(capsys.readouterr().err, "mlp.py", "loss")
    assert not path.exists()


def test_a_measured_series_has_a_row_for_each_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.measure_steps.REPEATED_S", 0.0)
    rows = Rows(tmp_path / "steps.csv")
    measure(series(batches=(1, 2)), rows, machine="a machine", again=False, is_over=lambda: False)
    for batch in (1, 2):
        row = rows.find(series(), batch)
        assert row is not None
        assert float(row["step_s"]) > 0
