"""The curve over the machines, on an offer that costs 3.6 $/h: 0.001 $/s of each machine."""

from dataclasses import astuple
from typing import Any

import numpy as np
import pytest

from advisor.records.answer import JobLimits, MachineSweep
from advisor.records.billing import Billing
from advisor.records.prediction import Scaling
from advisor.records.scale import Plan
from advisor.scale.machine_sweep import machine_sweep
from tests.cost.toys import device, fleet, job, offer, predictions, rank, selection

GPU = device("gpu", kind="gpu")
OFFERS = selection(offer("c", gpu="gpu", gpu_count=8, cpu=None))
PLANS = (Plan(data=8), Plan(machines=2, data=16), Plan(machines=4, data=32))


def sweep(*, fits: tuple[bool, ...] = (True, True, True), **limits: Any) -> MachineSweep:
    """Steps of 8 s, 5 s and 3 s on 1, 2 and 4 machines; the ranking takes 2."""
    scaling = Scaling(plans=PLANS, plan=np.array([[0], [1], [2]]), efficiency_ratio=np.array([[1.0], [0.8], [0.6]]))
    predicted = predictions(
        GPU, GPU, GPU, step_s=[[8.0], [5.0], [3.0]], batches=(32,), fits=np.array(fits)[:, np.newaxis], scaling=scaling
    )
    ranked = predictions(
        GPU,
        step_s=[[5.0]],
        batches=(32,),
        scaling=Scaling(plans=PLANS, plan=np.array([[1]]), efficiency_ratio=np.array([[0.8]])),
    )
    work = job(3200, mode="training", limits=JobLimits(**limits))
    (quote,) = rank(OFFERS, fleet=fleet(0, devices=(GPU,)), predictions=ranked, job=job(3200)).quotes
    return machine_sweep(quote, OFFERS.priced[0], predictions=predicted, job=work, billing=Billing())


def test_each_number_of_machines_has_its_time_and_cost() -> None:
    found = sweep()
    assert (found.instance, found.instance_count) == ("c", 2)
    assert [(one.instance_count, one.gpus_used) for one in found.points] == [(1, 8), (2, 16), (4, 32)]
    # 100 steps: 800 s on one machine are $0.80, 500 s on two $1.00, 300 s on four $1.20.
    assert [one.job_s.mid for one in found.points] == pytest.approx([800.0, 500.0, 300.0])
    assert [one.job_usd.mid for one in found.points] == pytest.approx([0.8, 1.0, 1.2])
    assert [one.scaling_efficiency_ratio for one in found.points] == [1.0, 0.8, 0.6]
    assert [one.plan for one in found.points] == list(PLANS)
    # 10 % either way, as the steps.
    assert astuple(found.points[0].job_s) == pytest.approx((800.0, 720.0, 880.0))


def test_the_points_that_keep_the_deadline_say_so() -> None:
    assert [one.keeps_deadline for one in sweep(deadline_s=500.0).points] == [False, True, True]
    assert [one.keeps_deadline for one in sweep().points] == [True, True, True]


def test_numbers_of_machines_that_the_step_does_not_fit_are_left_out() -> None:
    assert [one.instance_count for one in sweep(fits=(False, True, True)).points] == [2, 4]
