"""Several GPUs from the flags to the answer, on a small step of training."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from advisor.answers.ranking import rank
from advisor.cost.job import job_for
from advisor.errors import UsageError
from advisor.question.from_source import catalog_of, question_of
from advisor.records.answer import Recommendation
from advisor.records.options import Options
from advisor.records.prediction import Predictions
from advisor.records.scale import Spreading
from advisor.records.workload import Workload
from advisor.scale import predict_on_all as scaling
from advisor.scale.kept_steps import KeptSteps
from advisor.scale.predict_on_all import spreading_of
from advisor.scale.spread_out import PlannedSteps
from tests.predict.toys import device, efficiency
from tests.workload.tracing import traced


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(512), nn.Linear(512, 2048), nn.Linear(2048, 512)

    def forward(self, x: torch.Tensor) -> Any:
        return x + self.down(torch.relu(self.up(self.norm(x))))


@pytest.fixture(scope="module")
def workload() -> Workload:
    return traced(nn.Sequential(*(Block() for _ in range(4))), lambda batch: torch.rand(batch, 512), mode="training")


def ranked(workload: Workload, *, samples: int = 1_000_000, **options: Any) -> Recommendation:
    asked = Options(mode="training", samples=samples, no_local=True, **options)
    return rank(question_of(workload, asked, catalog=catalog_of(asked)))


def test_machines_with_several_gpus_are_ranked(workload: Workload) -> None:
    counts = {quote.device.count for quote in ranked(workload, batch="65536").quotes if quote.device.kind == "gpu"}
    assert {1, 2, 4, 8} <= counts


def test_all_quotes_use_the_gpus_asked_for(workload: Workload) -> None:
    answer = ranked(workload, batch="4096", gpus=8)
    assert {quote.gpus_used for quote in answer.quotes} == {8}
    assert {quote.batch for quote in answer.quotes} == {4096}
    assert all(quote.plan is not None and quote.scaling_efficiency_ratio is not None for quote in answer.quotes)
    assert all(0 < (quote.scaling_efficiency_ratio or 0) <= 1 for quote in answer.quotes)


def test_one_gpu_is_priced_as_a_machine_with_one(workload: Workload) -> None:
    alone, among = ranked(workload, batch="256", max_gpus=1), ranked(workload, batch="256")
    times = {quote.id: quote.step_s for quote in among.quotes if quote.device.count == 1}
    assert times
    assert all(quote.step_s == times[quote.id] for quote in alone.quotes if quote.id in times)


def test_sharding_and_passes_reach_the_plan(workload: Workload) -> None:
    answer = ranked(workload, batch="4096", gpus=4, sharding="zero3", accumulate=2, checkpoint_activations=True)
    assert {
        (quote.plan.sharding, quote.plan.accumulate, quote.plan.checkpoint_activations)
        for quote in answer.quotes
        if quote.plan
    } == {("zero3", 2, True)}


def test_more_machines_are_rented_in_haste_alone(workload: Workload) -> None:
    asked = {"samples": 10**13, "batch": "1048576", "device": ("h100-sxm5-80gb",), "max_machines": 8}
    (at_ease, *_) = ranked(workload, gpus=8, **asked).quotes
    assert at_ease.instance_count == 1
    (hasty, *_) = ranked(workload, gpus=8, deadline=0.6 * at_ease.job_s.mid, **asked).quotes
    assert hasty.instance_count == 2
    assert hasty.job_s.mid <= 0.6 * at_ease.job_s.mid


@pytest.mark.parametrize("limit", ["max_latency", "min_throughput"])
def test_more_machines_are_rented_where_one_is_too_slow(workload: Workload, limit: str) -> None:
    asked = {"samples": 10**13, "batch": "1048576", "device": ("h100-sxm5-80gb",), "max_machines": 8, "gpus": 8}
    (one, *_) = ranked(workload, **asked).quotes
    limits = {"max_latency": 0.6 * one.step_s.mid, "min_throughput": one.samples_per_s / 0.6}
    (quick, *_) = ranked(workload, **asked, **{limit: limits[limit]}).quotes
    assert (one.instance_count, quick.instance_count) == (1, 2)


@pytest.mark.parametrize("objective", ["time", "cost-time"])
@pytest.mark.parametrize("limit", ["max_usd", "max_hourly"])
def test_a_budget_is_kept_by_fewer_machines(workload: Workload, limit: str, objective: str) -> None:
    asked = HASTY | {"objective": objective, "max_machines": 8, "provider": ("aws",)}
    free = ranked(workload, **asked)
    assert free.machine_sweep is not None
    assert free.quotes[0].instance_count > 2
    _, two, *_ = free.machine_sweep.points
    most = {"max_usd": 1.001 * two.job_usd.mid, "max_hourly": 2.5 * free.quotes[0].usd_per_hour}
    (limited, *_) = ranked(workload, **asked, **{limit: most[limit]}).quotes
    assert (limited.instance_count, limited.job_s) == (2, two.job_s)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus": 0}, "--gpus 0: must be 1 or more"),
        ({"accumulate": 0}, "--accumulate 0: must be 1 or more"),
        ({"gpus": 4, "max_gpus": 2}, "--gpus 4 is more than --max-gpus 2"),
        ({"sharding": "zero3", "mode": "inference"}, "--sharding applies only to training"),
        ({"max_machines": 8, "mode": "inference"}, "--max-machines applies only to training"),
        ({"accumulate": 2, "mode": "inference"}, "--accumulate applies only to training"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        spreading_of(Options(**({"mode": "training"} | options)))


HASTY = {"samples": 10**13, "batch": "1048576", "device": ("h100-sxm5-80gb",), "gpus": 8}


def test_the_curve_over_the_machines_holds_the_ranked_quote_and_what_more_would_bring(workload: Workload) -> None:
    at_ease = ranked(workload, **HASTY)
    assert at_ease.machine_sweep is None
    deadline_s = 0.6 * at_ease.quotes[0].job_s.mid
    answer = ranked(workload, max_machines=8, deadline=deadline_s, **HASTY)
    sweep = answer.machine_sweep
    assert sweep is not None
    assert [point.instance_count for point in sweep.points] == [1, 2, 4, 8]
    ranked_at = next(quote for quote in answer.quotes if quote.id == sweep.id)
    (same,) = (point for point in sweep.points if point.instance_count == ranked_at.instance_count)
    assert (same.job_s, same.job_usd, same.plan) == (ranked_at.job_s, ranked_at.job_usd, ranked_at.plan)
    assert [point.keeps_deadline for point in sweep.points] == [point.job_s.mid <= deadline_s for point in sweep.points]
    assert ranked_at.instance_count == min(point.instance_count for point in sweep.points if point.keeps_deadline)


def test_the_curve_ends_where_the_batch_has_too_few_samples(workload: Workload) -> None:
    sweep = ranked(workload, batch="16", gpus=8, max_machines=64, device=("h100-sxm5-80gb",)).machine_sweep
    assert sweep is not None
    assert max(point.gpus_used for point in sweep.points) <= 16 * 8
    assert sweep.points[-1].instance_count < 64


def test_a_mistake_on_the_way_to_more_machines_does_not_end_the_curve(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = scaling.planned_steps

    def fails_on_two(*arguments: Any, asked: Spreading, **more: Any) -> PlannedSteps:
        if asked.machines == 2:
            raise UsageError("the profile names no clock")
        return real(*arguments, asked=asked, **more)

    monkeypatch.setattr(scaling, "planned_steps", fails_on_two)
    with pytest.raises(UsageError, match="names no clock"):
        ranked(workload, max_machines=8, **HASTY)


def test_a_deadline_is_left_less_of_by_the_start_of_the_offers_own_cloud_alone(workload: Workload) -> None:
    # Kept by 2 machines with 1 s to spare: less than clouds differ by in their start-up.
    at_ease = ranked(workload, max_machines=2, **HASTY).machine_sweep
    assert at_ease is not None
    two_s = next(point.job_s.mid for point in at_ease.points if point.instance_count == 2)
    answer = ranked(workload, max_machines=8, deadline=two_s + 1.0, **HASTY)
    quote = next(quote for quote in answer.quotes if quote.id == at_ease.id)
    assert quote.instance_count == 2


def test_kept_steps_serve_other_limits_and_are_predicted_once(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    predicted: list[int] = []
    real = scaling.predict_runs_of

    def counted(*arguments: Any, **more: Any) -> Predictions:
        predicted.append(len(more["batches"]))
        return real(*arguments, **more)

    monkeypatch.setattr(scaling, "predict_runs_of", counted)

    def predicted_with(kept: KeptSteps, **asked: Any) -> tuple[list[Any], list[Any]]:
        options = Options(mode="training", precision="fp32", samples=10**10, max_machines=8, **asked)
        found = scaling.predict_on_all(
            workload,
            devices=[device(), device(gpu_count=8, nvlink_bytes_per_s=1e11, network_bytes_per_s=1e10)],
            efficiencies=[efficiency()],
            batches=np.array([4096, 2**20]),
            options=options,
            job=job_for(workload, options),
            kept=kept,
        )
        assert found.scaling is not None
        return found.step_s.tolist(), [[found.scaling.plans[at] for at in row] for row in found.scaling.plan]

    kept = KeptSteps()
    at_ease = predicted_with(kept)
    count = len(predicted)
    in_haste = predicted_with(kept, deadline=600.0)
    assert len(predicted) == count
    assert in_haste == predicted_with(KeptSteps(), deadline=600.0)
    assert in_haste != at_ease
    # Another layout is another step.
    predicted_with(kept, layout="nhwc")
    assert len(predicted) > 2 * count
