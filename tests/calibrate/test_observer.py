"""Steps timed in the user's own training loop, with a clock set by hand."""

from typing import Any

import pytest
import torch
from torch import nn

from advisor.calibrate import observer as module
from advisor.calibrate.observer import Observer
from advisor.errors import UsageError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> "Clock":
    clock = Clock()
    monkeypatch.setattr(module.time, "perf_counter", clock)
    return clock


class Clock:
    """Seconds that pass only where a loop says so."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def model_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout())
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, clock: Clock, *, waits_s: list[float], step_s: float = 0.1
) -> None:
    """A loop that waits for its data and then computes."""
    for wait_s in waits_s:
        clock.now_s += wait_s
        optimizer.zero_grad()
        loss = model(torch.zeros(4, 3)).sum()
        clock.now_s += step_s
        loss.backward()
        optimizer.step()


def test_a_training_step_lasts_from_the_models_call_to_the_optimizers_step(clock: Clock) -> None:
    model, optimizer = model_and_optimizer()
    observer = Observer(model)

    with observer.following():
        train(model, optimizer, clock, waits_s=[9.0, 9.0, 0.2, 0.4, 0.6])

    timing = observer.timing()
    # The first two warm up; the waits before the other three are 0.2, 0.4 and 0.6 s, 0.4 s at the mean.
    assert (timing.batch, timing.step_count) == (4, 3)
    assert timing.step_s == pytest.approx(0.1)
    assert timing.loader_wait_s == pytest.approx(0.4)
    assert observer.mode == "training"
    assert observer.optimizer is optimizer


def test_an_inference_step_is_a_call(clock: Clock) -> None:
    class Slow(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            clock.now_s += 0.5
            return super().forward(x)

    model = Slow(3, 2)
    observer = Observer(model)
    with observer.following(), torch.no_grad():
        for _ in range(6):
            clock.now_s += 0.25
            model(torch.zeros(4, 3))

    timing = observer.timing()
    assert (observer.mode, timing.step_count) == ("inference", 4)
    assert (timing.step_s, timing.loader_wait_s) == (pytest.approx(0.5), pytest.approx(0.25))


def test_accumulated_passes_are_one_step_of_their_samples_together(clock: Clock) -> None:
    model, optimizer = model_and_optimizer()
    observer = Observer(model)
    with observer.following():
        for _ in range(5):
            for _ in range(3):
                model(torch.zeros(4, 3)).sum().backward()
                clock.now_s += 0.1
            optimizer.step()

    timing = observer.timing()
    assert (timing.batch, timing.step_s) == (12, pytest.approx(0.3))


def test_an_evaluation_between_steps_is_neither_a_step_nor_a_wait(clock: Clock) -> None:
    model, optimizer = model_and_optimizer()
    observer = Observer(model)
    with observer.following():
        for _ in range(4):
            train(model, optimizer, clock, waits_s=[0.2, 0.2])
            with torch.no_grad():
                model(torch.zeros(100, 3))
                clock.now_s += 50.0

    timing = observer.timing()
    assert (timing.batch, timing.step_count) == (4, 6)
    assert timing.loader_wait_s == pytest.approx(0.2)


def test_an_evaluation_before_training_does_not_count(clock: Clock) -> None:
    model, optimizer = model_and_optimizer()
    observer = Observer(model)
    with observer.following():
        with torch.no_grad():
            for _ in range(7):
                model(torch.zeros(100, 3))
        train(model, optimizer, clock, waits_s=[0.0] * 5)

    assert (observer.timing().batch, observer.timing().step_count) == (4, 3)


def test_an_evaluation_before_training_does_not_say_how_training_runs(clock: Clock) -> None:
    model, optimizer = model_and_optimizer()
    observer = Observer(model)
    with observer.following():
        with torch.no_grad():
            model(torch.zeros(100, 3))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            train(model, optimizer, clock, waits_s=[0.0] * 5)

    assert observer.run is not None
    assert observer.run.precision == "amp-bf16"
    assert observer.run.inputs[0][0].shape == (4, 3)


def test_steps_of_which_no_three_have_the_same_batch_are_too_few(clock: Clock) -> None:
    model, optimizer = model_and_optimizer()
    observer = Observer(model)
    with observer.following():
        for size in (4, 4, 4, 4, 5, 5, 6):
            model(torch.zeros(size, 3)).sum().backward()
            optimizer.step()

    with pytest.raises(UsageError, match=r"\b7 steps\b.*\b2 of one batch size\b.*\bfirst 2\b"):
        observer.timing()


def test_the_optimizer_of_another_model_ends_no_step(clock: Clock) -> None:
    model, optimizer = model_and_optimizer()
    other, others_optimizer = model_and_optimizer()
    observer = Observer(model)
    with observer.following():
        for _ in range(5):
            loss = model(torch.zeros(4, 3)).sum()
            clock.now_s += 0.1
            other(torch.zeros(4, 3)).sum().backward()
            others_optimizer.step()
            clock.now_s += 0.1
            loss.backward()
            optimizer.step()

    assert observer.timing().step_s == pytest.approx(0.2)


def test_batches_that_come_most_often_are_timed(clock: Clock) -> None:
    model, optimizer = model_and_optimizer()
    observer = Observer(model)
    with observer.following():
        for size in (4, 4, 4, 4, 4, 3):  # the last batch of an epoch is short
            model(torch.zeros(size, 3)).sum().backward()
            clock.now_s += 0.1
            optimizer.step()

    assert (observer.timing().batch, observer.timing().step_count) == (4, 3)


def test_the_hooks_are_gone_afterwards_also_where_the_loop_fails() -> None:
    model, _ = model_and_optimizer()
    before = hooks_of(model)
    observer = Observer(model)

    with pytest.raises(RuntimeError, match="mat1 and mat2"), observer.following():
        model(torch.zeros(4, 5))

    assert hooks_of(model) == before


def hooks_of(model: nn.Module) -> list[int]:
    from torch.optim.optimizer import _global_optimizer_post_hooks

    on_modules = [len(hooks) for part in model.modules() for hooks in (part._forward_hooks, part._forward_pre_hooks)]
    return [*on_modules, len(_global_optimizer_post_hooks)]


def test_what_the_loop_computes_is_what_it_computes_without() -> None:
    results = []
    for is_observed in (False, True):
        torch.manual_seed(0)
        model, optimizer = model_and_optimizer()
        observer = Observer(model)
        with observer.following() if is_observed else torch.enable_grad():
            for _ in range(6):
                optimizer.zero_grad()
                model(torch.ones(4, 3)).sum().backward()
                optimizer.step()
        results.append([parameter.detach().clone() for parameter in model.parameters()])

    assert all(torch.equal(plain, observed) for plain, observed in zip(*results, strict=True))


@pytest.mark.parametrize("calls", [0, 4])
def test_too_few_steps_say_how_many_are_needed(calls: int) -> None:
    model, _ = model_and_optimizer()
    observer = Observer(model)
    with observer.following(), torch.no_grad():
        for _ in range(calls):
            model(torch.zeros(4, 3))

    with pytest.raises(
        UsageError,
        match=rf"\b{calls} steps\b.*\b3 of one batch size\b.*\bfirst 2\b",
    ):
        observer.timing()


def test_calls_with_gradients_and_no_optimizer_are_neither_training_nor_inference() -> None:
    model = nn.Linear(3, 2).eval()
    observer = Observer(model)
    with observer.following():
        for _ in range(8):
            model(torch.zeros(4, 3))
    with pytest.raises(UsageError, match="gradients enabled") as refused:
        observer.timing()
    assert "torch.no_grad()" in refused.value.hint


def test_after_many_steps_no_more_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_COUNT", 6)
    model, _ = model_and_optimizer()
    observer = Observer(model)
    with observer.following(), torch.no_grad():
        for _ in range(20):
            model(torch.zeros(4, 3))

    assert observer.timing().step_count == 4


def test_how_the_model_runs_is_seen_at_its_first_call() -> None:
    model = nn.Conv2d(3, 2, 1)
    observer = Observer(model)
    images = torch.zeros(4, 3, 8, 8).to(memory_format=torch.channels_last)
    with observer.following(), torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        model(images)

    assert observer.run is not None
    assert (observer.run.device, observer.run.precision) == ("cpu", "amp-bf16")
    assert (observer.run.layout, observer.run.compile) == ("nhwc", "eager")


def test_autocast_inside_the_models_forward_is_seen() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Linear(3, 2))
    model.forward = torch.autocast("cpu", dtype=torch.bfloat16)(model.forward)  # type: ignore[method-assign]
    observer = Observer(model)
    with observer.following(), torch.no_grad():
        model(torch.zeros(4, 3))

    assert observer.run is not None
    assert observer.run.precision == "amp-bf16"


def test_no_hook_is_put_inside_a_compiled_model() -> None:
    inner = nn.Linear(3, 2)
    model = torch.compile(nn.Sequential(inner), backend="eager")
    with Observer(model).following():
        assert not inner._forward_pre_hooks
        assert model._forward_pre_hooks


def test_a_model_in_half_runs_in_half() -> None:
    model = nn.Linear(3, 2).bfloat16()
    observer = Observer(model)
    with observer.following(), torch.no_grad():
        model(torch.zeros(4, 3, dtype=torch.bfloat16))

    assert observer.run is not None
    assert observer.run.precision == "bf16"


def test_on_a_gpu_moments_are_events_of_its_own_and_the_host_waits_once_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded = iter(range(100))
    waits: list[Any] = []

    class Event:
        """Passed 100 ms after the one before."""

        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: Any) -> None:
            assert stream == "stream of cuda:1"
            self.at_ms = 100.0 * next(recorded)

        def elapsed_time(self, other: Any) -> float:
            return float(other.at_ms) - self.at_ms

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", waits.append)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(module, "gpu_uuid", lambda index: f"GPU-{index}")
    model, _ = model_and_optimizer()
    observer = Observer(model)
    monkeypatch.setattr(module, "_device_of", lambda *_: torch.device("cuda:1"))
    with observer.following(), torch.no_grad():
        for _ in range(6):
            model(torch.zeros(4, 3))
        assert waits == []

    timing = observer.timing()
    assert (timing.step_s, timing.loader_wait_s) == (pytest.approx(0.1), pytest.approx(0.1))
    assert waits == [torch.device("cuda:1")]
    assert observer.run is not None
    assert (observer.run.device, observer.run.gpu_uuid) == ("cuda:1", "GPU-1")


def test_the_load_of_others_is_that_of_the_steps_that_count(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    class Load:
        def __init__(self) -> None:
            self.begin_s = clock()

        def cpu_count(self) -> float:
            return clock() - self.begin_s

    monkeypatch.setattr(module, "OthersLoad", Load)
    model, optimizer = model_and_optimizer()
    observer = Observer(model)

    with observer.following():
        train(model, optimizer, clock, waits_s=[0.0] * 6, step_s=0.5)
    clock.now_s += 9.0

    assert observer.timing().others_cpu_count == pytest.approx(2.0)  # four steps after the first two
