"""The instances of a service, its utilization and its latency."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.cost.job import job_for
from advisor.cost.job_cost import cost_job
from advisor.cost.offer_terms import offer_terms
from advisor.cost.service import (
    P99_TAIL,
    instance_counts,
    latencies_s,
    machines_together,
    server_counts,
    utilizations,
    with_spare,
)
from advisor.errors import UsageError
from advisor.records.answer import JobLimits
from advisor.records.generation import Generation
from advisor.records.options import Objective, Options
from advisor.records.prediction import Scaling
from advisor.records.price import PricedOffer
from advisor.records.scale import Plan
from tests.cost.toys import billing, device, job, offer, predictions, price
from tests.predict.toys import workload


def service(per_second: float, **changes: Any) -> Any:
    return job(requests_per_day=round(per_second * 86400), **changes)


@given(st.floats(0.001, 1.0), st.floats(0.1, 1e5), st.floats(1.0, 30.0), st.sampled_from([1, 4, 32]))
def test_the_fewest_instances_keep_the_limit(step_s: float, per_second: float, spare: float, batch: int) -> None:
    one = service(per_second, limits=JobLimits(p99_s=step_s * spare))
    steps, servers = np.array([step_s]), np.ones(1)
    load: dict[str, Any] = {"batch": np.array([batch]), "servers": servers, "job": one}
    counts = instance_counts(steps, **load)

    def p99_s(count: float) -> float:
        return float(latencies_s(steps, **load, instance_counts=np.array([count]), tail=P99_TAIL)[0])

    (count,) = counts.tolist()
    (least,) = instance_counts(steps, batch=np.array([batch]), servers=servers, job=service(per_second)).tolist()
    if p99_s(8 * least) > step_s * spare:
        assert count == least
        return
    assert count >= least
    assert p99_s(count) <= step_s * spare
    if count > least:
        assert p99_s(count - 1) > step_s * spare


def test_if_time_is_the_objective_a_service_has_as_many_instances_as_shorten_the_latency() -> None:
    # 5 a second of 0.1 s each: half an instance. On c of them u = 0.5 / c are busy, and u^(sqrt(2 (c + 1)) - 1) of the
    # requests wait: 1.1 % on four and 0.3 % on five, where the 99th percentile is the step.
    steps, load = np.array([0.1]), {"batch": np.array([1]), "servers": np.ones(1)}

    def counts(objective: Objective, *, most: float = np.inf) -> list[float]:
        one = service(5, objective=objective)
        found = instance_counts(steps, **load, job=one)
        return with_spare(found, steps, **load, most=np.array([most]), job=one).tolist()

    assert counts("cost") == [1.0]
    assert counts("time") == [5.0]
    assert counts("time", most=3.0) == [3.0]


def test_utilization_is_the_load_over_what_the_instances_serve() -> None:
    # 100 a second, 8 in 0.2 s are 40: 62.5 % of four.
    found = utilizations(
        np.array([0.2, np.inf]), batch=np.array([8]), instance_counts=np.array([4.0, np.inf]), job=service(100)
    )
    assert found.tolist() == pytest.approx([0.625, 0.0])


def test_an_instance_works_on_a_batch_for_each_copy_and_a_language_model_on_each_request() -> None:
    scaling = Scaling(plans=(Plan(), Plan(data=4)), plan=np.array([[0, 1]]), efficiency_ratio=np.ones((1, 2)))
    found = predictions(device("gpu"), step_s=[[0.1, 0.1]], batches=(1, 8), scaling=scaling)
    assert server_counts(found, job=job()).tolist() == [[1.0, 4.0]]
    served = job(generation=Generation(prompt_tokens=8, output_tokens=8))
    assert server_counts(found, job=served).tolist() == [[1.0, 8.0]]


def test_groups_of_machines_serve_together() -> None:
    # 100 requests a second, 8 in flight for 0.2 s: 2.5 groups, so 3 of two machines. At $2 an hour: 6 x 730 x $2.
    scaling = Scaling(plans=(Plan(machines=2, tensor=2),), plan=np.array([[0]]), efficiency_ratio=np.ones((1, 1)))
    found = predictions(device("gpu"), step_s=[[0.2]], batches=(8,), scaling=scaling)
    assert np.array(machines_together(found)).tolist() == [[2.0]]
    one, work = offer(prices=(price(2.0),)), service(100, max_utilization=1.0)
    terms = offer_terms([PricedOffer(offer=one, price=one.prices[0])], billing=billing(), job=work)
    terms = replace(terms, machine_count=np.array([2.0]))
    costs = cost_job(np.array([0.2]), batch=np.array([8]), terms=terms, job=work)
    assert costs.instance_count.tolist() == [6.0]
    assert costs.job_usd.tolist() == pytest.approx([6 * 730 * 2.0])
    assert costs.idle_ratio.tolist() == pytest.approx([1 - 2.5 / 3])


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        (Options(p99=0.1, samples=1000), "--p99"),
        (Options(p99=0.1, mode="training"), "--p99"),
        (Options(max_latency=0.1, requests_per_second=5.0), "--max-latency"),
    ],
)
def test_a_limit_that_the_job_does_not_have_is_refused(options: Options, flag: str) -> None:
    with pytest.raises(UsageError, match=flag) as raised:
        job_for(workload(), options)
    assert "--p99" in raised.value.hint or "--requests-per-second" in raised.value.hint
