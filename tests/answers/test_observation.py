"""`advisor.observe`: a loop of one's own, and the recommendation that rests on it."""

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import advisor
from advisor.answers import observation as observing
from advisor.answers.observation import Observed
from advisor.calibrate.noise import OthersLoad
from advisor.calibrate.observer import Observer
from advisor.errors import UsageError
from advisor.question.from_model import question_from_model
from advisor.records.timing import StepTiming
from tests.machines import gpu, machine
from tests.says import assert_says


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x) * scale
        return result


def loop(model: nn.Module, *, steps: int = 6, batch: int = 16) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(batch, 8), scale=torch.ones(batch, 1)).square().mean().backward()
        optimizer.step()


class AnyInputs(TwoInputs):
    def forward(self, x: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
        return super().forward(x, scale=others["scale"])


def observed(*, worker_count: int | None, wait_s: float | None, step_s: float = 0.2) -> Observed:
    """Steps of 100 samples."""
    timing = StepTiming(
        batch=100, step_s=step_s, low_s=step_s, high_s=step_s, step_count=9, iqr_ratio=0.0, loader_wait_s=wait_s
    )
    watching: Any = SimpleNamespace(timing=lambda: timing)
    return Observed(watching, worker_count=worker_count)


def test_a_training_loop_is_ranked_as_training_at_its_batch_with_its_optimizer() -> None:
    model = TwoInputs()
    with advisor.observe(model) as seen:
        loop(model)

    answer = seen.recommend(samples=1000, no_calibrate=True, device="cpu")

    assert (answer.job.mode, answer.job.batch, answer.job.precision) == ("training", "16", "fp32")
    assert answer.workload.optimizer == "SGD"
    (step,) = answer.measured
    assert (step.batch, step.step_count) == (16, 4)
    assert step.step_s.mid == seen.timing.step_s
    assert step.loader_wait_s == seen.timing.loader_wait_s
    assert answer.at_hand is not None
    assert (answer.at_hand.time_source, answer.at_hand.step_s.mid) == ("measured", step.step_s.mid)


def test_steps_that_others_disturbed_are_shown_but_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OthersLoad, "cpu_count", lambda _: 1000.0)
    model = TwoInputs()
    with advisor.observe(model) as seen:
        loop(model)

    answer = seen.recommend(samples=1000, no_calibrate=True, device="cpu")

    assert seen.timing.others_cpu_count == 1000
    assert [step.is_disturbed for step in answer.measured] == [True]
    assert answer.at_hand is not None
    assert answer.at_hand.time_source != "measured"
    assert any("other processes" in warning for warning in answer.warnings)


def test_inputs_that_the_model_takes_by_any_name_keep_their_names() -> None:
    model = AnyInputs()
    with advisor.observe(model) as seen:
        loop(model)

    assert seen.recommend(samples=1000, no_calibrate=True, device="cpu").workload.method == "fake"


def test_the_model_is_as_its_loop_left_it() -> None:
    model = TwoInputs()
    with advisor.observe(model) as seen:
        loop(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    seen.recommend(samples=1000, no_calibrate=True, device="cpu")

    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not model._forward_pre_hooks


def test_what_was_seen_gives_way_to_what_is_asked_for() -> None:
    model = TwoInputs()
    with advisor.observe(model) as seen:
        loop(model)

    answer = seen.recommend(samples=1000, no_calibrate=True, device="cpu", precision="auto", batch=32)

    assert (answer.job.precision, answer.job.batch) == ("auto", "32")
    assert [step.batch for step in answer.measured] == [16]


def test_timed_steps_say_nothing_of_steps_that_run_in_another_way() -> None:
    model = TwoInputs()
    with advisor.observe(model) as seen:
        loop(model)

    seen.recommend(samples=1000, no_calibrate=True, device="cpu", mode="training", layout="nchw", compile="eager")
    for other in ({"mode": "inference"}, {"layout": "nhwc"}, {"compile": "compile"}):
        (name,) = other
        with pytest.raises(UsageError, match=f"^{name}: "):
            seen.recommend(**other)


@pytest.mark.parametrize(
    ("worker_count", "wait_s", "expected"),
    [
        (0, 0.3, 0.003),  # without workers the loop itself loads 100 samples in 0.3 s
        (4, 0.3, 0.02),  # four workers make a batch in 0.2 + 0.3 s: 2 s of their time for 100 samples
        (4, 0.005, None),  # they keep up: how much faster they could be is not seen
        (None, 0.3, None),  # how many work is not known
        (4, None, None),
    ],
)
def test_what_the_device_waited_tells_how_long_a_sample_takes_to_load(
    worker_count: int | None, wait_s: float | None, expected: float | None
) -> None:
    assert observed(worker_count=worker_count, wait_s=wait_s).loader_s_per_sample == (
        None if expected is None else pytest.approx(expected)
    )


def test_the_loader_that_is_named_prices_the_waiting_of_the_rented() -> None:
    model = nn.Linear(8, 4)
    loader = torch.utils.data.DataLoader(SlowRows(), batch_size=4)
    with advisor.observe(model, loader=loader) as seen, torch.no_grad():
        for rows in loader:
            model(rows)

    answer = seen.recommend(samples=1000, no_calibrate=True, device="cpu")

    # Each row takes 2 ms of the loop's own process, and something more.
    assert seen.loader_s_per_sample is not None
    assert seen.loader_s_per_sample >= 0.002
    assert answer.job.loader_s_per_sample == seen.loader_s_per_sample


class SlowRows(torch.utils.data.IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        import time

        for _ in range(32):
            time.sleep(0.002)
            yield torch.zeros(8)


def test_a_model_that_was_not_called_says_so() -> None:
    with advisor.observe(nn.Linear(8, 4)) as seen:
        pass

    with pytest.raises(UsageError, match=r"\b0 steps\b"):
        seen.recommend()


def test_flags_that_do_not_exist_are_refused_as_by_recommend() -> None:
    model = TwoInputs()
    with advisor.observe(model) as seen:
        loop(model)

    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        seen.recommend(colour=4)
    with pytest.raises(UsageError, match=r"^prompt_tokens: "):
        seen.recommend(prompt_tokens=8, output_tokens=2)


def test_the_observer_keeps_the_inputs_of_one_call_without_their_graph() -> None:
    model = nn.Linear(8, 4)
    observer = Observer(model)
    rows = torch.zeros(4, 8, requires_grad=True)
    with observer.following():
        model(rows)

    assert observer.run is not None
    ((kept,), kwargs) = observer.run.inputs
    assert (kept.requires_grad, kept.data_ptr(), kwargs) == (False, rows.data_ptr(), {})


def test_a_loop_on_fewer_threads_than_cores_says_nothing_of_the_whole_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    here = partial(question_from_model, read_machine=lambda: machine(core_count=4.0, thread_count=4))
    monkeypatch.setattr("advisor.answers.observation.question_from_model", here)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    model = TwoInputs()
    with advisor.observe(model) as seen:
        loop(model)

    answer = seen.recommend(samples=1000, no_calibrate=True, device="cpu")

    assert answer.measured == ()
    (warning,) = [text for text in answer.warnings if "not measured" in text]
    assert_says(warning, "3 of 4 cores")


def test_a_gpu_that_torch_counts_differently_is_known_by_its_uuid() -> None:
    run: Any = SimpleNamespace(device="cuda:0", gpu_uuid="GPU-b")
    here = machine(gpus=(gpu("Tesla T4", uuid="GPU-a"), gpu("Tesla P4", id="cuda:1", uuid="GPU-b")))

    assert observing._name_here(run, here) == "cuda:1"
    assert observing._name_here(run, machine()) == "cuda:0"


def test_what_was_seen_prints_its_steps_or_what_is_missing() -> None:
    timing = StepTiming(
        batch=32, step_s=0.02, low_s=0.018, high_s=0.03, step_count=12, iqr_ratio=0.1, loader_wait_s=0.005
    )
    watching: Any = SimpleNamespace(timing=lambda: timing)
    shown = repr(Observed(watching, worker_count=2))
    for figure in ("12 steps", "batch 32", "20 ms [18-30]", "5 ms"):
        assert figure in shown
        assert figure in Observed(watching, worker_count=2)._repr_html_()

    with advisor.observe(nn.Linear(2, 2)) as seen:
        pass
    assert "0 steps" in repr(seen)
    assert "0 steps" in seen._repr_html_()
