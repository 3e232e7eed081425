"""The running cost of a training, and the predicted cost of its rest elsewhere."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import advisor
from advisor.answers.observation import Observed
from advisor.answers.run_cost import RunCost
from advisor.errors import UsageError
from advisor.question.from_source import catalog_of
from advisor.records.answer import Interval, Recommendation
from advisor.records.options import Options
from tests.calibrate.test_observer import Clock
from tests.says import assert_says

MODEL = nn.Linear(8, 4)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("advisor.answers.run_cost.time.perf_counter", clock)
    return clock


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def answer() -> Recommendation:
    found: Recommendation = advisor.recommend(
        MODEL, torch.zeros(16, 8), mode="training", samples=1000, provider="aws", no_local=True
    )
    assert found.best is not None
    return found


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch, clock: Clock, answer: Recommendation) -> Iterator[dict[str, Any]]:
    """Steps of batch 16 are observed in place of hooks; the advice takes 50 s. Yields what it was asked."""
    asked: dict[str, Any] = {}

    def recommend(observed: Observed, **options: Any) -> Recommendation:
        asked.update(options)
        clock.now_s += 50.0
        return answer

    monkeypatch.setattr(Observed, "recommend", recommend)
    monkeypatch.setattr(Observed, "timing", type("Timing", (), {"batch": 16}))
    monkeypatch.setattr("advisor.answers.run_cost._observer_of", lambda observers: observers[0])
    return asked


def run(cost: RunCost, clock: Clock, *, until: int, step: int = 0, step_count: int | None = 100, **how: Any) -> None:
    """Two steps of 10 s, which warm up, then steps of 1 s."""
    cost.begin([MODEL], step=step, step_count=step_count, **how)
    for done in range(1, until - step + 1):
        clock.now_s += 10.0 if done <= 2 else 1.0
        cost.step_ended(step + done)


def test_time_and_dollars_spent_and_remaining_by_hand(clock: Clock) -> None:
    cost = RunCost(usd_per_hour=3.6)  # $0.001 a second
    run(cost, clock, until=10)
    # 2 x 10 s + 8 x 1 s; the other 90 steps take 1 s each, as all but the first two.
    assert cost.figures() == pytest.approx(
        {
            "advisor/seconds_spent": 28.0,
            "advisor/seconds_remaining": 90.0,
            "advisor/usd_spent": 0.028,
            "advisor/usd_remaining": 0.09,
        }
    )
    for text in (repr(cost), cost._repr_html_()):
        assert_says(text, "10 steps", "28 s", "$0.028", "$3.60", "1.5 min", "$0.09")


def test_the_sentences_are_in_the_currency_and_the_figures_in_dollars(
    clock: Clock, advised: dict[str, Any], said: list[str], tmp_path: Path
) -> None:
    (tmp_path / "rates.yaml").write_text("exchange_rates: {EUR: {usd: 1.25, date: 2026-11-01}}\n")
    cost = RunCost(usd_per_hour=3.6, say=said.append, prices=[tmp_path / "rates.yaml"], currency="EUR")
    run(cost, clock, until=30)
    cost.end()
    advice, total = said
    assert cost.figures()["advisor/usd_spent"] == pytest.approx(0.001 * 98)
    # 2 x 10 s, 28 x 1 s and 50 s of advice at $3.60, which are EUR 2.88, per hour
    assert_says(total, "EUR 0.078", "EUR 2.88")
    assert "$" not in advice + total


def test_a_resumed_run_counts_its_own_steps(clock: Clock) -> None:
    cost = RunCost()
    run(cost, clock, step=50, until=55)
    assert (cost.spent_s, cost.remaining_s) == (23.0, 45.0)
    assert set(cost.figures()) == {"advisor/seconds_spent", "advisor/seconds_remaining"}  # no price is known


def test_a_run_without_an_end_says_only_what_is_spent(clock: Clock, said: list[str]) -> None:
    cost = RunCost(usd_per_hour=3.6, say=said.append)
    run(cost, clock, until=30, step_count=None)
    assert set(cost.figures()) == {"advisor/seconds_spent", "advisor/usd_spent"}
    assert (said, cost.recommendation) == ([], None)


def test_before_the_run_there_are_no_figures() -> None:
    assert RunCost(usd_per_hour=1.0).figures() == {}
    assert_says(repr(RunCost()), "not begun")


def test_the_clock_stops_at_the_end(clock: Clock, said: list[str]) -> None:
    cost = RunCost(usd_per_hour=3.6, say=said.append)
    run(cost, clock, until=10)
    cost.end()
    clock.now_s += 1000.0
    cost.end()
    assert (cost.spent_s, cost.remaining_s) == (28.0, 0.0)
    (text,) = said
    assert_says(text, "10 steps", "28 s", "$0.028")


def test_the_advice_is_for_the_other_steps_of_all_processes(
    clock: Clock, advised: dict[str, Any], answer: Recommendation, said: list[str]
) -> None:
    cost = RunCost(usd_per_hour=3.6, say=said.append, provider="aws")
    run(cost, clock, until=30, process_count=4)
    assert advised["samples"] == 80 * 16 * 4  # 80 steps after the first 20
    assert (advised["provider"], advised["no_calibrate"], advised["real_step"]) == ("aws", True, False)
    assert cost.recommendation is answer
    assert answer.best is not None
    (text,) = said
    assert_says(text, "80 steps", "1.33 min", "$0.08", "90 %", answer.best.instance)


def test_a_run_that_counts_several_steps_at_once_is_advised_once(
    clock: Clock, advised: dict[str, Any], said: list[str]
) -> None:
    cost = RunCost(say=said.append)
    cost.begin([MODEL], step=0, step_count=100)
    for step in range(3, 31, 3):  # three optimizers step after each batch
        clock.now_s += 3.0
        cost.step_ended(step)
    assert (advised["samples"], len(said)) == (79 * 16, 1)
    assert not MODEL._forward_pre_hooks


def test_the_seconds_of_the_advice_are_spent_but_foretell_no_step(clock: Clock, advised: dict[str, Any]) -> None:
    cost = RunCost()
    run(cost, clock, until=30)
    # 2 x 10 s + 28 x 1 s + 50 s of advice; 70 steps remain.
    assert (cost.spent_s, cost.remaining_s) == (98.0, 70.0)


@pytest.mark.parametrize(
    ("here_usd", "low", "mid", "high", "expected"),
    [
        (1.0, 0.5, 0.6, 0.7, "40 % less"),
        (1.0, 0.9, 1.0, 1.1, "too close to call"),
        (1.0, 1.1, 1.2, 1.3, "stay here"),
        (None, 0.5, 0.6, 0.7, ""),
    ],
)
def test_the_costs_are_compared_by_the_interval(
    answer: Recommendation, here_usd: float | None, low: float, mid: float, high: float, expected: str
) -> None:
    assert answer.best is not None
    best = replace(answer.best, job_usd=Interval(low=low, mid=mid, high=high))
    assert expected in RunCost()._compared(best, here_usd)
    assert "this run" in RunCost(instance=best.instance)._compared(best, here_usd)


def test_other_processes_than_the_main_one_neither_observe_nor_speak(
    clock: Clock, advised: dict[str, Any], said: list[str]
) -> None:
    cost = RunCost(say=said.append)
    cost.begin([MODEL], step=0, step_count=100, is_main=False)
    assert not MODEL._forward_pre_hooks
    for step in range(1, 31):
        clock.now_s += 1.0
        cost.step_ended(step)
    cost.end()
    assert (said, advised) == ([], {})


def price(offer_id: str, kind: str) -> float:
    offers = {one.id: one for one in catalog_of(Options()).offers}
    return next(one.usd_per_hour for one in offers[offer_id].prices if one.kind == kind)


def test_an_instance_has_the_price_of_its_cheapest_region_or_of_the_one_named() -> None:
    every = [one for one in catalog_of(Options()).offers if one.instance == "g5.xlarge"]
    regions = {one.id: price(one.id, "on_demand") for one in every}
    assert len(set(regions.values())) > 1
    dearest = max(regions, key=lambda name: regions[name])
    assert RunCost(instance="g5.xlarge").usd_per_hour == min(regions.values())
    assert RunCost(instance=dearest).usd_per_hour == regions[dearest]
    assert RunCost(instance=dearest, price="commit-1y").usd_per_hour == price(dearest, "commit_1y")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"instance": "g5.huge"}, UsageError),
        ({"instance": "g5.xlarge", "usd_per_hour": 1.0}, UsageError),
        ({"usd_per_hour": 0}, UsageError),
        ({"usd_per_hour": float("nan")}, UsageError),
        ({"provider": 3}, UsageError),
        ({"epochs": 3}, TypeError),  # the run has its own
        ({"colour": 3}, TypeError),
    ],
)
def test_what_cannot_be_used_is_refused_before_the_run(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        RunCost(**given)


def train(model: nn.Module, cost: RunCost | None, *, steps: int = 25, batch: int = 4) -> None:
    """A loop of one's own that tells `cost` of its steps."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if cost is not None:
        cost.begin([model], step=0, step_count=steps)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        model(torch.randn(batch, 8)).square().mean().backward()
        optimizer.step()
        if cost is not None:
            cost.step_ended(step)


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 4))


def test_a_real_run_is_advised_and_ends_with_the_weights_that_it_has_without(said: list[str]) -> None:
    plain, followed = net(), net()
    cost = RunCost(usd_per_hour=1.0, provider="aws", say=said.append)
    train(plain, None)
    train(followed, cost)
    pairs = zip(plain.state_dict().values(), followed.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert followed.training
    assert cost.recommendation is not None
    job, (step,) = cost.recommendation.job, cost.recommendation.measured
    assert (job.mode, job.samples, job.loader_s_per_sample) == ("training", 5 * 4, None)
    assert (step.batch, step.step_count) == (4, 18)  # all but the first two
    assert len(said) == 1


class NeedsValues(nn.Linear):
    """A model that cannot be traced on fake tensors."""

    real_count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.real_count += type(x) is torch.Tensor
        return super().forward(x) * float(x.detach().numpy().max())


def test_a_model_that_cannot_be_traced_trains_on_without_a_real_step_of_ours(said: list[str]) -> None:
    model, cost = NeedsValues(8, 4), RunCost(say=said.append)
    train(model, cost)
    assert model.real_count == 25
    assert cost.recommendation is None
    (text,) = said
    assert_says(text, "No advice", "numpy")


def test_a_bug_of_ours_does_not_end_the_training(
    advised: dict[str, Any], monkeypatch: pytest.MonkeyPatch, clock: Clock, said: list[str]
) -> None:
    def fail(*args: Any, **options: Any) -> Recommendation:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Observed, "recommend", fail)
    run(RunCost(say=said.append), clock, until=30)
    (text,) = said
    assert_says(text, "No advice", "ZeroDivisionError", "a bug")


def test_steps_that_are_not_observed_are_not_advised(clock: Clock, said: list[str]) -> None:
    run(RunCost(say=said.append), clock, until=30, not_observed="it is compiled")
    assert said == ["No advice: it is compiled"]
    assert not MODEL._forward_pre_hooks


def hooks_of(model: nn.Module) -> int:
    from torch.optim.optimizer import _global_optimizer_post_hooks

    parts = [hooks for part in model.modules() for hooks in (part._forward_hooks, part._forward_pre_hooks)]
    return sum(map(len, parts)) + len(_global_optimizer_post_hooks)


def test_a_step_after_the_advice_has_no_hooks_and_reads_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a step is counted, not timed: 4 hooks and 3 readings until the advice, then none."""
    readings: list[int] = []
    counted: Callable[[], float] = lambda: readings.append(1) or 0.0  # type: ignore[func-returns-value] # noqa: E731
    model, cost, hooks = net(), RunCost(say=lambda text: None), []
    before = hooks_of(model)
    monkeypatch.setattr("advisor.answers.run_cost.time.perf_counter", counted)
    monkeypatch.setattr(Observed, "recommend", lambda *args, **options: (_ for _ in ()).throw(UsageError("no")))
    per_step = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    cost.begin([model], step=0, step_count=40)
    for step in range(1, 41):
        readings.clear()
        hooks.append(hooks_of(model) - before)
        model(torch.zeros(4, 8)).sum().backward()
        optimizer.step()
        cost.step_ended(step)
        per_step.append(len(readings))
    assert hooks == [4] * 20 + [0] * 20
    assert per_step[2:19] == [2] * 17  # the observer's, at the begin and the end of a step
    assert per_step[20:] == [0] * 20


class Parts(nn.Module):
    """A module that calls its parts but is not called itself, as in Lightning."""

    def __init__(self, *used: str) -> None:
        super().__init__()
        self.used = used
        self.body, self.head, self.loss = nn.Linear(8, 8), nn.Linear(8, 4), nn.MSELoss()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(x)

    def step(self, x: torch.Tensor) -> torch.Tensor:
        for name in self.used:
            x = getattr(self, name)(x)
        result: torch.Tensor = self.loss(x, torch.zeros_like(x))
        return result


@pytest.mark.parametrize(("used", "is_advised"), [(("body",), True), (("body", "head"), False), ((), False)])
def test_the_only_part_that_a_step_calls_is_observed_in_place_of_the_whole(
    said: list[str], used: tuple[str, ...], is_advised: bool
) -> None:
    model, cost = Parts(*used), RunCost(provider="aws", say=said.append)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    cost.begin([model, *model.children()], step=0, step_count=25)
    with torch.no_grad():
        model(torch.ones(4, 8))  # an evaluation, which calls the whole
    for step in range(1, 26):
        x = torch.ones(4, 8, requires_grad=True)
        model.step(x).backward()
        optimizer.step()
        cost.step_ended(step)
    assert (cost.recommendation is not None) == is_advised
    (text,) = said
    if not is_advised:
        assert_says(text, "No advice", f"calls {len(used)} submodules of Parts")
