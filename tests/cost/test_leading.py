"""Which offers may lead the answer."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.cost.leading import Purchases, candidates_of, may_lead, purchases_of, trial_usd
from advisor.cost.offer_terms import offer_terms
from advisor.records.price import PricedOffer
from tests.cost.toys import billing, job, offer, price

MEASURED = np.array([True, True, True])


def amounts(*mid: float, spread: float = 2.0) -> np.ndarray:
    return np.stack([np.array(mid), np.array(mid) / spread, np.array(mid) * spread])


def purchases(rents: np.ndarray, *, devices: tuple[int, ...] = (1, 1, 1), started: Any = (1.0, 1.0, 1.0)) -> Purchases:
    return Purchases(usd_per_hour=rents, device_count=np.array(devices), started_usd=np.array(started))


def leads_of(amounts: np.ndarray, *, purchases: Purchases | None = None, **known: Any) -> np.ndarray:
    return may_lead(candidates_of(amounts, purchases=purchases, **known), amounts[0], purchases=purchases)


def test_an_offer_whose_price_is_not_trusted_does_not_lead() -> None:
    leads = leads_of(amounts(1, 2, 3), is_trusted=[False, True, True], is_measured=MEASURED)
    assert leads.tolist() == [False, True, True]


def test_a_prediction_from_the_datasheet_leads_by_its_upper_end_alone() -> None:
    unmeasured = np.array([False, True, True])
    # Its upper end is 2 x 1, against the other's 1.9 and 2.1.
    assert leads_of(amounts(1, 1.9, 3), is_trusted=[True] * 3, is_measured=unmeasured).tolist() == [False, True, True]
    assert leads_of(amounts(1, 2.1, 3), is_trusted=[True] * 3, is_measured=unmeasured).tolist() == [True, True, True]


def test_what_was_not_measured_has_to_save_the_hour_that_it_takes_to_time_a_step_there() -> None:
    def leads(least_of_others: float, trial: float) -> bool:
        found = leads_of(
            amounts(1, least_of_others, 99),
            is_trusted=[True] * 3,
            is_measured=np.array([False, True, True]),
            trial_usd=np.array([trial, 0.0, 0.0]),
        )
        return bool(found[0])

    # Its upper end is $2.
    assert leads(50.1, 48.0)
    assert not leads(49.9, 48.0)
    # As long on the best of the others costs $40: eight more dollars.
    rented = {"is_measured": np.array([False, True, True]), "trial_usd": np.array([48.0, 40.0, 0.0])}
    assert leads_of(amounts(1, 10.1, 99), is_trusted=[True] * 3, **rented)[0]
    assert not leads_of(amounts(1, 9.9, 99), is_trusted=[True] * 3, **rented)[0]
    # A trial of an hour, on all machines of the plan; none where dollars are not ranked.
    terms = replace(
        offer_terms([PricedOffer(offer=offer(), price=price(2.5))], billing=billing(), job=job()),
        machine_count=np.array([4.0]),
    )
    assert trial_usd(terms, job=job()).tolist() == [10.0]
    assert trial_usd(terms, job=job(objective="time")).tolist() == [0.0]


def test_it_is_compared_with_offers_of_trusted_prices() -> None:
    leads = leads_of(amounts(1, 1.9, 3), is_trusted=[True, False, True], is_measured=np.array([False, True, True]))
    assert leads.tolist() == [True, False, True]


def test_where_nothing_was_measured_datasheets_lead() -> None:
    leads = leads_of(amounts(1, 2, 3), is_trusted=[True, True, False], is_measured=~MEASURED)
    assert leads.tolist() == [True, True, False]


def test_an_offer_does_not_lead_one_that_costs_about_the_same_and_rents_for_less_than_half() -> None:
    rents = np.array([22.0, 0.7, 0.4])
    leads = leads_of(amounts(1, 1.09, 1.2), is_trusted=[True] * 3, is_measured=MEASURED, purchases=purchases(rents))
    assert leads.tolist() == [False, True, True]  # 1.09 is within 10 % of 1; 0.4 is more than half of 0.7
    leads = leads_of(amounts(1, 1.11, 1.3), is_trusted=[True] * 3, is_measured=MEASURED, purchases=purchases(rents))
    assert leads.tolist() == [True, True, True]


def test_an_offer_that_yields_to_a_lower_rent_is_still_compared_and_a_node_that_costs_more_once_started_is_not() -> (
    None
):
    rented = purchases(np.array([22.0, 48.0, 0.7]), devices=(1, 8, 1), started=(2.0, 6.0, 1.0))
    found = candidates_of(amounts(1, 1.02, 1.05), is_trusted=[True] * 3, is_measured=MEASURED, purchases=rented)
    assert found.tolist() == [True, False, True]
    assert may_lead(found, np.array([1, 1.02, 1.05]), purchases=rented).tolist() == [False, False, True]


def test_a_machine_that_may_not_lead_itself_takes_the_lead_from_none() -> None:
    rents = np.array([22.0, 0.7, 0.4])
    leads = leads_of(
        amounts(1, 1.05, 9), is_trusted=[True, False, True], is_measured=MEASURED, purchases=purchases(rents)
    )
    assert leads.tolist() == [True, False, True]


def test_a_node_of_eight_leads_only_if_it_is_cheaper_with_its_start_up_too() -> None:
    rents, eight = np.array([48.0, 1.8, 1.0]), (8, 1, 1)

    def leads(*started: float) -> list[bool]:
        rented = purchases(rents, devices=eight, started=started)
        found = leads_of(amounts(0.3, 0.5, 2), is_trusted=[True] * 3, is_measured=MEASURED, purchases=rented)
        return [bool(one) for one in found]

    assert leads(6.0, 0.6, 3.0) == [False, True, True]
    assert leads(0.5, 0.6, 3.0) == [True, True, True]


def test_one_device_is_not_passed_over_because_it_computes_fast() -> None:
    rented = purchases(np.array([2.0, 1.8, 1.7]), started=(3.0, 2.0, 1.0))
    leads = leads_of(amounts(1, 2, 3), is_trusted=[True] * 3, is_measured=MEASURED, purchases=rented)
    assert leads.tolist() == [True, True, True]


def test_what_has_to_be_rented_for_a_rate_includes_its_start_up() -> None:
    # A million samples in steps of 0.1 ms: 100 s, and 80 s to start, at a tenth of a cent a second: 18 cents.
    one = offer()
    priced = [PricedOffer(offer=one, price=price(), marks=(), log_spread=0.0, is_trusted=True)]
    rate = job(1_000_000, assumed=True)
    started = offer_terms(priced, billing=billing(start_up_s=80), job=job())
    steps = {"batch": np.array([1]), "device_count": np.array([1]), "started": started}
    found = purchases_of(np.array([1e-4]), job=rate, **steps)
    assert found is not None
    assert found.started_usd.tolist() == [pytest.approx(0.18)]
    assert found.usd_per_hour.tolist() == [3.6]
    assert purchases_of(np.array([1e-4]), job=job(1_000_000), **steps) is None


def test_two_offers_never_take_the_lead_from_each_other() -> None:
    # Four small devices rent for less than half of one large, which does the job for less once started: it leads.
    rented = purchases(np.array([4.0, 1.9, 9.0]), devices=(1, 4, 8), started=(1.0, 2.0, 3.0))
    leads = leads_of(amounts(1, 1, 9), is_trusted=[True] * 3, is_measured=MEASURED, purchases=rented)
    assert leads.tolist() == [True, False, False]
