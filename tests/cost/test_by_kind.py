"""The cheapest of each kind, without ranking the others."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from advisor.cost.by_kind import KindMarket
from advisor.cost.market import Market
from advisor.cost.selection import Selection, select_offers
from advisor.records.answer import Job, JobLimits
from advisor.records.billing import Billing
from advisor.records.break_even_curves import KindCost
from advisor.records.device import DeviceKind
from advisor.records.options import Options
from advisor.records.prediction import Fleet, Predictions
from advisor.records.price import PriceErrors, PriceSpread
from tests.cost.test_power import CARD, ENERGY, SHARES, gpu_offer
from tests.cost.toys import billing, device, fleet, job, offer, predictions, price, rank, selection

SLOW, QUICK, FAST = device("slow"), device("quick"), device("fast", kind="gpu")
OFFERS = (
    offer("slow", usd_per_hour=1.0),
    offer("quick", usd_per_hour=1.5),
    offer("fast", usd_per_hour=8.0, gpu="l4", gpu_count=1),
)
FLEET = fleet(0, 1, 2, devices=(SLOW, QUICK, FAST))
UNMEASURED = np.array([["fitted"], ["datasheet"], ["fitted"]], dtype=np.object_)
"""Only the quick one is known from its datasheet."""


def cheapest_by_kind(
    offers: Selection, *, fleet: Fleet, predictions: Predictions, job: Job, billing: Billing
) -> Mapping[DeviceKind, KindCost]:
    return KindMarket(Market(offers, fleet=fleet, billing=billing)).cheapest(predictions, job)


def cheapest(*, samples: int = 3600, limits: JobLimits | None = None, bill: Billing | None = None, spread: float = 0.0
             ) -> dict[DeviceKind, KindCost]:  # fmt: skip
    """1 s, 0.5 s and 0.1 s a sample; the slow one errs by `spread` of its own, nothing else does."""
    own = np.array([[spread], [0.0], [0.0]])
    return dict(
        cheapest_by_kind(
            selection(*OFFERS),
            fleet=FLEET,
            predictions=predictions(
                SLOW, QUICK, FAST, step_s=[[1.0], [0.5], [0.1]], log_spread=own, own_log_spread=own
            ),
            job=job(samples, limits=limits or JobLimits()),
            billing=bill or Billing(),
        )
    )


def test_they_are_the_first_of_their_kind_in_the_ranking() -> None:
    found = cheapest()
    ranking = rank(
        selection(*OFFERS),
        fleet=FLEET,
        predictions=predictions(SLOW, QUICK, FAST, step_s=[[1.0], [0.5], [0.1]]),
        job=job(3600),
    )
    for kind in ("cpu", "gpu"):
        first = next(quote for quote in ranking.quotes if quote.device.kind == kind)
        assert (found[kind].quote().id, found[kind].quote().job_usd.mid) == (first.id, first.job_usd.mid)
    # 1,800 s of $1.50 beat 3,600 s of $1; 360 s of $8 are 80 cents.
    assert (found["cpu"].quote().job_usd.mid, found["gpu"].quote().job_usd.mid) == pytest.approx((0.75, 0.8))


def test_when_predictions_err_another_one_may_be_the_cheapest() -> None:
    # The slow one costs $1. If it were twice as fast it would cost 50 cents; if slower, the quick one is there.
    own = cheapest(spread=math.log(2) / 1.645)["cpu"].own_usd
    assert (own.mid, own.low, own.high) == pytest.approx((0.75, 0.5, 0.75))


def test_the_error_that_all_share_is_apart() -> None:
    found = cheapest_by_kind(
        selection(*OFFERS),
        fleet=FLEET,
        predictions=predictions(
            SLOW, QUICK, FAST, step_s=[[1.0], [0.5], [0.1]],
            log_spread=np.full((3, 1), 0.5), own_log_spread=np.full((3, 1), 0.3),
        ),
        job=job(3600),
        billing=Billing(),
    )["cpu"]  # fmt: skip
    # 0.3^2 + 0.4^2 = 0.5^2.
    assert (found.own_log_spread, found.shared_log_spread) == pytest.approx((0.3, 0.4))
    assert found.shared_usd.high == pytest.approx(0.75 * math.exp(1.645 * 0.4))
    assert found.own_usd.high == pytest.approx(0.75 * math.exp(1.645 * 0.3))


def test_the_error_of_a_price_reaches_as_far_as_an_offer_whose_price_is_known() -> None:
    # $0.75 at the listed price, whose 90 % ends are half and twice as much. An own rate has no error: it stays at $1.
    errors = PriceErrors(
        listing={"list": PriceSpread(log_spread=math.log(2) / 1.645, n=9, basis="measured", source="by hand")}
    )
    own_rate = offer("slow", prices=(price(1.0, basis="own_rate"),))
    found = cheapest_by_kind(
        select_offers((own_rate, *OFFERS[1:]), options=Options(), price_kind="on_demand", errors=errors),
        fleet=FLEET,
        predictions=predictions(SLOW, QUICK, FAST, step_s=[[1.0], [0.5], [0.1]]),
        job=job(3600),
        billing=Billing(),
    )
    ends = {kind: (one.price_usd.low, one.price_usd.mid, one.price_usd.high) for kind, one in found.items()}
    assert ends["cpu"] == pytest.approx((0.375, 0.75, 1.0))
    assert ends["gpu"] == pytest.approx((0.4, 0.8, 1.6))


def test_start_up_has_no_error() -> None:
    # 3,600 s of the quick one's start-up more than double its cost, and halve what an error of its time does to that:
    # 1,800 s may be 900 s; together 5,400 s or 4,500 s at $1.50 an hour.
    spread = math.log(2) / 1.645
    found = cheapest_by_kind(
        selection(OFFERS[1]),
        fleet=fleet(0, devices=(QUICK,)),
        predictions=predictions(
            QUICK, step_s=[[0.5]], log_spread=np.full((1, 1), spread), own_log_spread=np.full((1, 1), spread)
        ),
        job=job(3600),
        billing=billing(start_up_s=3600.0),
    )["cpu"]
    assert (found.own_usd.mid, found.own_usd.low) == pytest.approx((2.25, 1.875))


def test_a_kind_without_an_offer_within_the_limits_is_left_out() -> None:
    assert set(cheapest(limits=JobLimits(deadline_s=1000.0))) == {"gpu"}
    assert set(cheapest(limits=JobLimits(max_usd=0.79))) == {"cpu"}
    assert cheapest(limits=JobLimits(max_usd=0.1)) == {}


def test_an_unmeasured_cpu_leads_the_cpus_whatever_a_gpu_costs() -> None:
    # The quick CPU is known from its datasheet: $75, at most $90, and $1.50 for an hour to time a step. The measured
    # CPU costs $100, so the quick one leads the CPUs. The measured GPU costs $80; that does not matter here.
    found = cheapest_by_kind(
        selection(*OFFERS),
        fleet=FLEET,
        predictions=predictions(
            SLOW, QUICK, FAST, step_s=[[1.0], [0.5], [0.1]], step_high_s=np.array([[1.2], [0.6], [0.12]]),
            time_sources=UNMEASURED,
        ),
        job=job(360_000),
        billing=Billing(),
    )  # fmt: skip
    assert {kind: one.quote().job_usd.mid for kind, one in found.items()} == pytest.approx({"cpu": 75, "gpu": 80})
    # Among both kinds, $90 for the quick CPU is more than the measured GPU's $80.
    assert {kind: one.quote().is_candidate for kind, one in found.items()} == {"cpu": False, "gpu": True}


def test_the_errors_of_price_and_start_up_keep_an_unmeasured_offer_from_leading() -> None:
    # The quick CPU costs $75, at most $82.50 by its time, and the measured one $100, so the quick one leads by its
    # time. By a list price that is known within a factor of 1.5 it costs up to 75 x e^hypot(ln 1.1, ln 1.5) = $113.74.
    # With a start-up of 5,000 s it costs $77.08 and the other $101.39; that may take e^(1.2834 ln 10) = 19.2 times as
    # long: $116.
    priced = PriceErrors(
        listing={"list": PriceSpread(log_spread=math.log(1.5) / 1.645, n=9, basis="measured", source="by hand")}
    )
    cpus, known = OFFERS[:2], fleet(0, 1, devices=(SLOW, QUICK))
    times = predictions(SLOW, QUICK, step_s=[[1.0], [0.5]], time_sources=UNMEASURED[:2])

    def leader(errors: PriceErrors, bill: Billing) -> str:
        listed = select_offers(cpus, options=Options(), price_kind="on_demand", errors=errors)
        given: dict[str, Any] = {"fleet": known, "predictions": times, "job": job(360_000), "billing": bill}
        found = cheapest_by_kind(listed, **given)["cpu"].quote()
        (lead,) = (quote for quote in rank(listed, **given).quotes if quote.id == found.id)
        assert (lead.may_lead, lead.is_candidate) == (True, found.is_candidate)
        return found.instance

    assert leader(PriceErrors(), Billing()) == "quick"
    assert leader(priced, Billing()) == "slow"
    assert leader(PriceErrors(), billing(start_up_s=5000.0, start_up_ratio=10.0)) == "slow"


def test_the_error_of_the_watts_of_an_owned_machine_is_one_of_its_price() -> None:
    own = gpu_offer(
        tier="owned",
        prices=(price(0.4, kind="owned", basis="own_hardware"),),
        running_usd_per_hour=0.4,
        electricity_usd_per_kwh=0.5,
    )
    found = cheapest_by_kind(
        selection(own),
        fleet=fleet(0, devices=(CARD,)),
        predictions=predictions(CARD, step_s=[[36.0]], **SHARES),
        job=job(100),
        billing=Billing(energy=ENERGY),
    )["gpu"]
    # An hour at 302 W, of which 292 W have a spread of 0.1 and 10 W one of 0.2, at 0.5 $/kWh.
    spread = math.hypot(29.2, 2.0) / 302
    assert (found.price_usd.mid, found.price_usd.high) == pytest.approx((0.151, 0.151 * math.exp(1.645 * spread)))
