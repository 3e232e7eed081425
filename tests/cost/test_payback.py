from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.cost.batch_choice import choose_batches
from advisor.cost.market import Market
from advisor.cost.payback import best_rented, life_hours, owned_notes, payback_hours
from advisor.cost.rank_offers import rank
from advisor.records.answer import CostParts, Interval, Quote
from tests.cost.toys import device, fleet, job, offer, predictions, price, selection
from tests.report.toys import L4
from tests.says import assert_says


def owned(*, job_s: float, **costs: float) -> tuple[Quote, Any]:
    """A machine whose hour costs $0.12, with its share of the purchase."""
    interval = Interval(mid=job_s, low=job_s, high=job_s)
    quote = replace(L4, id="own/own/box", provider="own", instance="box", tier="owned", job_s=interval)
    quote = replace(quote, usd_per_hour=0.12)
    return quote, offer("box", id="own/own/box", tier="owned", usd_per_hour=0.12, **costs)


def test_a_purchase_pays_back_when_the_rent_saved_less_the_electricity_has_paid_it() -> None:
    # 2,000 $ / (1.20 - 0.20) $/h = 2,000 h
    assert payback_hours(purchase_usd=2000, running_usd_per_hour=0.2, rent_usd_per_hour=1.2) == 2000


@pytest.mark.parametrize("rent_usd_per_hour", [0.2, 0.1])
def test_a_purchase_whose_electricity_costs_as_much_as_renting_never_pays_back(rent_usd_per_hour: float) -> None:
    assert payback_hours(purchase_usd=2000, running_usd_per_hour=0.2, rent_usd_per_hour=rent_usd_per_hour) is None


def test_renting_is_counted_for_the_work_that_the_owned_machine_does_in_an_hour() -> None:
    quote, box = owned(job_s=3600.0, purchase_usd=1600.0, running_usd_per_hour=0.02)
    # L4's job costs 0.42 $; the box does it in an hour: 1,600 / (0.42 - 0.02) = 4,000 h
    (note,) = owned_notes((L4, quote), [box], rented=L4, job=job())
    assert_says(note, "own box", "4,000 hours", "$0.42", "aws g6.xlarge", "$0.02")
    # In two hours: 0.21 $ of rent for an hour of its work: 1,600 / (0.21 - 0.01) = 8,000 h
    quote, box = owned(job_s=7200.0, purchase_usd=1600.0, running_usd_per_hour=0.01)
    assert_says(owned_notes((quote, L4), [box], rented=L4, job=job())[0], "own box", "8,000 hours")


def test_an_hour_of_rented_work_has_no_start_up_and_no_egress() -> None:
    # 0.42 $ of computing in an hour, and as much of start-up and of egress; storage is for both, and tax on everything:
    # (0.42 + 0.04 / 2) x 1.25 = 0.55 $/h, and 1,060 / (0.55 - 0.02) = 2,000 h.
    parts = CostParts(compute=0.42, start_up=0.22, billing_increments=0.2, egress=0.42, storage=0.04, tax=0.325)
    usd = Interval(mid=1.625, low=1.0, high=2.0)
    quote, box = owned(job_s=3600.0, purchase_usd=1060.0, running_usd_per_hour=0.02)
    rented = replace(L4, job_usd=usd, job_parts_usd=parts)
    assert_says(owned_notes((rented, quote), [box], rented=rented, job=job())[0], "2,000 hours", "$0.55")


def test_a_machine_that_would_pay_back_after_its_life_never_does() -> None:
    # An hour of use costs 0.12 $, of it 0.02 $ of electricity: 40 $ are spread over 40 / 0.10 = 400 h.
    assert life_hours(purchase_usd=40, running_usd_per_hour=0.02, usd_per_hour=0.12) == pytest.approx(400)
    # Renting L4 for its work costs 0.42 $ per job of 5 h: 0.084 $/h. 40 / (0.084 - 0.02) = 625 h, and it lives 400 h.
    quote, box = owned(job_s=5 * 3600.0, purchase_usd=40.0, running_usd_per_hour=0.02)
    (note,) = owned_notes((L4, quote), [box], rented=L4, job=job())
    assert_says(note, "never", "life", "400 hours")
    assert "625" not in note


def test_a_service_uses_all_hours_of_a_machine_s_life() -> None:
    # 0.10 $/h in 40 % of the hours are 0.04 $/h in all: 40 $ are spread over 1,000 h, of which jobs would use 400 h.
    # Renting costs 0.42 $ in 5 h: 40 / (0.084 - 0.02) = 625 h.
    quote, box = owned(job_s=5 * 3600.0, purchase_usd=40.0, running_usd_per_hour=0.02, used_ratio=0.4)
    (note,) = owned_notes((L4, replace(quote, usd_per_hour=0.06)), [box], rented=L4, job=job(requests_per_day=1))
    assert_says(note, "after 625 hours")


def test_a_slow_machine_says_that_it_never_pays_back() -> None:
    quote, box = owned(job_s=36000.0, purchase_usd=100.0, running_usd_per_hour=0.05)
    (note,) = owned_notes((L4, quote), [box], rented=L4, job=job())
    assert_says(note, "own box", "never")
    assert "hours" not in note


def test_renting_at_a_doubtful_price_says_so() -> None:
    old = replace(L4, price_is_trusted=False, price_date="2025-05-24")
    quote, box = owned(job_s=3600.0, purchase_usd=1600.0, running_usd_per_hour=0.02)
    for machine in (box, replace(box, purchase_usd=None)):
        assert_says(owned_notes((old, quote), [machine], rented=old, job=job())[0], "price of 2025-05-24")
        assert "2025-05-24" not in owned_notes((L4, quote), [machine], rented=L4, job=job())[0]


def test_the_best_rented_offer_is_judged_without_the_owned_machine() -> None:
    # Unmeasured, m2 does 1,000 s of work for 0.1 $, at most 0.11 $; its trial of an hour costs less than one on m1.
    # That is below the 0.2 $ of m1, the best measured rented offer, but not below the 0.05 $ of the owned box.
    box = offer("box", tier="owned", usd_per_hour=0.18, running_usd_per_hour=0.18, prices=(price(0.18, kind="owned"),))
    offers = selection(box, offer("m1", usd_per_hour=0.72), offer("m2", usd_per_hour=0.36))
    devices = device("slow"), device("quick", kind="gpu")
    unmeasured = np.array([["fitted"], ["datasheet"]], dtype=np.object_)
    market, asked = Market(offers, fleet=fleet(0, 0, 1, devices=devices)), job(1000)
    steps = predictions(*devices, step_s=[[1.0], [1.0]], time_sources=unmeasured)
    given: dict[str, Any] = {
        "predictions": steps,
        "job": asked,
        "choice": choose_batches(steps, job=asked, terms=market.on_devices(asked)),
    }
    quotes = rank(market, **given).quotes
    assert [(one.instance, one.may_lead) for one in quotes] == [("box", True), ("m2", False), ("m1", True)]
    rented = best_rented(market, quotes, **given)
    assert rented is not None
    assert (rented.instance, rented.may_lead) == ("m2", True)
    assert best_rented(market, quotes[1:], **given) is None


def test_without_a_rented_or_an_owned_machine_there_is_nothing_to_compare() -> None:
    quote, box = owned(job_s=3600.0, purchase_usd=1600.0, running_usd_per_hour=0.02)
    assert owned_notes((quote,), [box], rented=None, job=job()) == ()
    assert owned_notes((L4,), [offer("m1")], rented=L4, job=job()) == ()
