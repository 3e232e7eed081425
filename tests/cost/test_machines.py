import numpy as np
import pytest

from advisor.cost.machines import gpu_count, machine_counts, plans_at
from advisor.cost.rank_offers import rank
from advisor.records.prediction import Scaling
from advisor.records.scale import Plan
from tests.cost.toys import billing, device, fleet, job, offer, predictions, selection

PLANS = (Plan(), Plan(data=16, machines=2, sharding="zero3"))
SPREAD = Scaling(plans=PLANS, plan=np.array([[0, 1]], dtype=np.intp), efficiency_ratio=np.array([[1.0, 0.9]]))
EIGHT = device("eight", kind="gpu", gpu_count=8)


def test_without_plans_every_step_runs_on_one_machine() -> None:
    alone = predictions(EIGHT, step_s=[[1.0, 2.0]], batches=(1, 2))
    assert machine_counts(alone, np.array([0, -1]), np.array([1, 0])).tolist() == [1.0, 1.0]
    assert plans_at(alone, np.array([0, 0]), np.array([0, 1])) == ([None, None], [None, None])
    assert gpu_count(None) == 1


def test_the_plan_of_a_step_is_told_with_its_efficiency_unless_it_is_one_device_alone() -> None:
    spread = predictions(EIGHT, step_s=[[1.0, 2.0]], batches=(1, 2), scaling=SPREAD)
    assert machine_counts(spread, np.array([0, 0]), np.array([0, 1])).tolist() == [1.0, 2.0]
    assert plans_at(spread, np.array([0, 0]), np.array([0, 1])) == ([None, PLANS[1]], [None, 0.9])
    assert gpu_count(PLANS[1]) == 16


def test_every_machine_of_a_plan_is_paid_for() -> None:
    # 2 samples a step, 1,000 in all: 500 steps of 2 s = 1,000 s and 100 s of start-up, on 2 machines at 0.001 $/s.
    spread = predictions(EIGHT, step_s=[[1.0, 2.0]], batches=(1, 2), scaling=SPREAD, fits=np.array([[False, True]]))
    ranking = rank(
        selection(offer(gpu="eight", gpu_count=8)),
        fleet=fleet(0, devices=(EIGHT,)),
        predictions=spread,
        job=job(1000),
        billing=billing(start_up_s=100.0),
    )
    (quote,) = ranking.quotes
    assert (quote.instance_count, quote.gpus_used, quote.batch) == (2, 16, 2)
    assert quote.plan == PLANS[1]
    assert quote.scaling_efficiency_ratio == 0.9
    assert quote.job_s.mid == pytest.approx(1100.0)
    assert quote.job_usd.mid == pytest.approx(2.2)
    assert quote.job_parts_usd.compute == pytest.approx(2.0)
    # A million samples take 500,000 steps of 2 s on both.
    assert quote.usd_per_million_samples == pytest.approx(2000.0)
