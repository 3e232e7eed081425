"""Laws of the cost: it never falls when the price, the time or the idle share rises."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from advisor.cost.job_cost import JobCosts, billed_s, cost_job
from advisor.cost.offer_terms import offer_terms
from advisor.records.price import PricedOffer, PriceKind
from tests.cost.toys import billing, job, offer, price

BILLS = st.builds(
    billing,
    increment_s=st.sampled_from([0.0, 1.0, 60.0, 3600.0]),
    minimum_s=st.sampled_from([0.0, 60.0]),
    start_up_s=st.floats(0.0, 300.0),
    storage_usd_per_month=st.floats(0.0, 100.0),
    egress_usd=st.floats(0.0, 100.0),
    tax_percent=st.floats(0.0, 25.0),
)
KINDS: st.SearchStrategy[PriceKind] = st.sampled_from(["on_demand", "spot", "commit_1y"])
MORE = st.floats(1.0, 20.0)


def cost(*, step_s: float, usd_per_hour: float, kind: PriceKind = "on_demand", bill: Any, **size: Any) -> JobCosts:
    one = offer(prices=(price(usd_per_hour, kind=kind),), interruption="5-10 %")
    work = job(price=kind, **size)
    terms = offer_terms([PricedOffer(offer=one, price=one.prices[0])], billing=bill, job=work)
    return cost_job(np.array([step_s]), batch=np.array([4]), terms=terms, job=work)


@given(st.floats(1e-4, 100), MORE, st.floats(0.01, 100), MORE, KINDS, BILLS)
def test_the_cost_of_a_job_never_falls_when_price_or_time_rises(
    step_s: float, more_time: float, usd_per_hour: float, more_price: float, kind: PriceKind, bill: Any
) -> None:
    least = cost(step_s=step_s, usd_per_hour=usd_per_hour, kind=kind, bill=bill).job_usd
    slower = cost(step_s=step_s * more_time, usd_per_hour=usd_per_hour, kind=kind, bill=bill).job_usd
    dearer = cost(step_s=step_s, usd_per_hour=usd_per_hour * more_price, kind=kind, bill=bill).job_usd

    assert slower >= least * (1 - 1e-9)
    assert dearer >= least * (1 - 1e-9)


@given(st.floats(1e-4, 10), MORE, st.integers(1, 10_000_000), BILLS)
def test_a_service_never_costs_less_when_its_steps_take_longer(
    step_s: float, more_time: float, requests_per_day: int, bill: Any
) -> None:
    quick, slow = (
        cost(step_s=seconds, usd_per_hour=1.0, bill=bill, requests_per_day=requests_per_day)
        for seconds in (step_s, step_s * more_time)
    )

    assert slow.job_usd >= quick.job_usd * (1 - 1e-9)


@given(st.floats(1e-3, 10), st.integers(1000, 10_000_000), st.floats(0.01, 1.0))
def test_a_request_never_costs_less_when_the_instances_idle_more(
    step_s: float, requests_per_day: int, share: float
) -> None:
    fewer = max(1, int(requests_per_day * share))
    many, few = (
        cost(step_s=step_s, usd_per_hour=1.0, bill=billing(), requests_per_day=requests)
        for requests in (requests_per_day, fewer)
    )

    if few.idle_ratio >= many.idle_ratio:
        assert few.job_usd / fewer >= many.job_usd / requests_per_day * (1 - 1e-9)


@given(st.floats(1e-4, 10), st.integers(1, 10_000_000))
def test_the_instances_carry_the_load_and_one_fewer_would_not(step_s: float, requests_per_day: int) -> None:
    costs = cost(step_s=step_s, usd_per_hour=1.0, bill=billing(), requests_per_day=requests_per_day)
    (count,), per_s = costs.instance_count, 4 / step_s

    assert count * per_s * 86400 * 0.7 >= requests_per_day * (1 - 1e-9)
    assert (count - 1) * per_s * 86400 * 0.7 < requests_per_day * (1 + 1e-9)


@given(st.floats(0.0, 1e6), st.sampled_from([0.0, 1.0, 60.0, 3600.0]), st.floats(0.0, 3600.0))
def test_what_is_billed_is_the_time_or_more_by_less_than_an_increment(
    running_s: float, increment_s: float, minimum_s: float
) -> None:
    (paid_s,) = billed_s(np.array([running_s]), increment_s=np.array([increment_s]), minimum_s=np.array([minimum_s]))

    assert paid_s >= max(running_s, minimum_s)
    assert paid_s <= max(running_s + increment_s, minimum_s)
