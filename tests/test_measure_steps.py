"""The script that times whole steps: its clockwork, its rows and its models."""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest
import torch

from scripts.measure_steps import (
    FOLDER,
    MODELS,
    Kind,
    Rows,
    Runner,
    Series,
    Sweep,
    Timing,
    batches_to_measure,
    load_with_weights,
    measure,
    time_step,
)

CALM = Timing(step_s=0.5, block_count=7, iqr_ratio=0.01, others_cpu_count=0.04, taken_ratio=0.02)
NOISY = Timing(step_s=0.7, block_count=7, iqr_ratio=0.01, others_cpu_count=0.8, taken_ratio=0.4)

TINY = """
import torch

model = torch.nn.Linear(3, 2)
example_inputs = torch.ones(4, 3)


def loss(output, batch):
    return output.sum()
"""


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    """What measuring sets for the whole process is put back."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    cudnn = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = cudnn


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


def test_a_step_takes_the_median_of_its_fastest_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    seconds = (9.0, 0.5, 0.4, 0.8, 0.5, 0.4, 0.6, 0.9, 0.7)  # two that warm up, then seven blocks of one step
    others = iter((10.0, 19.46))
    step, clock = scripted(seconds.__getitem__)
    timing = time_step(step, thread_count=2, clock=clock, others_s=lambda: next(others))
    assert timing.block_count == 7
    # 0.4 0.4 0.5 0.6 are the fastest half of seven; quartiles 0.4, 0.6 and 0.8
    assert timing.step_s == pytest.approx(0.45)
    assert timing.iqr_ratio == pytest.approx(0.4 / 0.6)
    # 9.46 s of CPU in 4.3 s are 2.2 CPUs; 2 of 4 were spare, so 0.2 of the 2 that were needed are missing
    assert timing.others_cpu_count == pytest.approx(2.2)
    assert timing.taken_ratio == pytest.approx(0.1)


def test_quick_steps_are_repeated_within_blocks_for_a_second() -> None:
    step, clock = scripted(lambda call: 2**-10)
    timing = time_step(step, thread_count=1, clock=clock, others_s=lambda: 0.0)
    # 0.05 s hold 51 steps; 20 blocks of 51/1024 s are 0.996 s, so there is one more: 2 + 21 x 51 calls
    assert timing.block_count == 21
    assert clock() == 1073 / 1024
    assert timing.step_s == 2**-10
    assert timing.iqr_ratio == 0


def test_rows_are_read_back_and_only_a_calmer_one_takes_their_place(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    Rows(path).keep_calmer(series(), 4, NOISY, machine="a machine")
    Rows(path).keep_calmer(series(), 4, CALM, machine="a machine")
    Rows(path).keep_calmer(series(), 4, NOISY, machine="a machine")
    with path.open(encoding="utf-8", newline="") as lines:
        (row,) = csv.DictReader(lines)
    assert float(row["step_s"]) == 0.5
    assert row["source"].endswith("a machine; IQR 1.0% of 7 blocks; others on 0.04 CPUs, 2.0% of those needed")
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
    runner = Runner(series(model=str(file), mode=mode))
    weight = runner._model.weight
    before = weight.detach().clone()
    runner.step(1)()
    assert weight.grad is not None
    assert torch.equal(weight, before) != changes


def test_a_series_that_cannot_run_is_reported_and_leaves_no_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "steps.csv"
    measure(series(mode="training"), Rows(path), machine="", again=False, is_over=lambda: False)
    assert "mlp.py names no loss to train with" in capsys.readouterr().err
    assert not path.exists()


def test_a_measured_series_has_a_row_for_each_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.measure_steps.REPEATED_S", 0.0)
    rows = Rows(tmp_path / "steps.csv")
    measure(series(batches=(1, 2)), rows, machine="a machine", again=False, is_over=lambda: False)
    for batch in (1, 2):
        row = rows.find(series(), batch)
        assert row is not None
        assert float(row["step_s"]) > 0
