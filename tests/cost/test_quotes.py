from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.cost.standing import pareto_front
from advisor.records.prediction import Scaling
from advisor.records.scale import Plan
from tests.cost.toys import billing, device, fleet, job, offer, predictions, rank, selection

PLANS = (Plan(), Plan(data=16, machines=2, sharding="zero3"))
SPREAD = Scaling(plans=PLANS, plan=np.array([[0, 1]], dtype=np.intp), efficiency_ratio=np.array([[1.0, 0.9]]))
EIGHT = device("eight", kind="gpu", gpu_count=8)
OFFERS = selection(offer(gpu="eight", gpu_count=8))
AMOUNTS = st.integers(min_value=1, max_value=6).map(float)


def test_without_plans_every_step_runs_on_one_gpu() -> None:
    alone = predictions(EIGHT, step_s=[[1.0]])
    (quote,) = rank(OFFERS, fleet=fleet(0, devices=(EIGHT,)), predictions=alone, job=job()).quotes
    assert (quote.plan, quote.scaling_efficiency_ratio) == (None, None)
    assert (quote.gpus_used, quote.instance_count) == (1, 1)


def test_a_quote_names_the_host_that_dispatches() -> None:
    for host_cpu in ("xeon", None):
        own = replace(EIGHT, host_cpu=host_cpu)
        alone = predictions(own, step_s=[[1.0]])
        (quote,) = rank(OFFERS, fleet=fleet(0, devices=(own,)), predictions=alone, job=job()).quotes
        assert quote.host_cpu == host_cpu


def test_the_plan_of_a_step_is_told_with_its_efficiency_unless_it_is_one_device_alone() -> None:
    for fits, plan, ratio, gpus, machines in (([True, False], None, None, 1, 1), ([False, True], PLANS[1], 0.9, 16, 2)):
        spread = predictions(EIGHT, step_s=[[1.0, 2.0]], batches=(1, 2), scaling=SPREAD, fits=np.array([fits]))
        (quote,) = rank(OFFERS, fleet=fleet(0, devices=(EIGHT,)), predictions=spread, job=job()).quotes
        assert (quote.plan, quote.scaling_efficiency_ratio) == (plan, ratio)
        assert (quote.gpus_used, quote.instance_count) == (gpus, machines)


def test_every_machine_of_a_plan_is_paid_for() -> None:
    # 2 samples a step, 1,000 in all: 500 steps of 2 s = 1,000 s and 100 s of start-up, on 2 machines at 0.001 $/s.
    spread = predictions(EIGHT, step_s=[[1.0, 2.0]], batches=(1, 2), scaling=SPREAD, fits=np.array([[False, True]]))
    ranking = rank(
        OFFERS,
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


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=12))
def test_the_front_is_what_no_other_beats(points: list[tuple[float, float]]) -> None:
    cost, time = (np.array(values) for values in zip(*points, strict=True))

    def beaten(one: tuple[float, float]) -> bool:
        return any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in points)

    assert pareto_front(cost, time) == [not beaten(point) for point in points]
