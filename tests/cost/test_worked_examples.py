"""From the price of an hour to the cost of a job, with the arithmetic beside it."""

from typing import Any

import pytest

from advisor.records.answer import Quote
from advisor.records.billing import Billing
from advisor.records.price import PriceKind
from tests.cost.toys import billing, device, fleet, job, offer, predictions, price, rank, selection

XEON = device("xeon")


def quoted(
    *,
    step_s: float,
    usd_per_hour: float,
    bill: Billing | None = None,
    kind: PriceKind = "on_demand",
    batch: int = 1,
    offered: dict[str, Any] | None = None,
    **size: Any,
) -> Quote:
    """The only offer there is, of a job on the only device."""
    one = offer(prices=(price(usd_per_hour, kind=kind),), **(offered or {}))
    (quote,) = rank(
        selection(one, price_kind=kind),
        fleet=fleet(0, devices=(XEON,)),
        predictions=predictions(XEON, step_s=[[step_s]], batches=(batch,)),
        job=job(price=kind, **size),
        billing=bill,
    ).quotes
    return quote


def test_1_hours_of_computing_at_the_price_of_an_hour() -> None:
    # 90 epochs of 50,000 samples, 4,500,000, in batches of 256: 17,579 steps (17,578.1) of 0.2 s are 3,515.8 s,
    # 0.97661 h at $3.00.
    quote = quoted(step_s=0.2, usd_per_hour=3.0, batch=256, samples=4_500_000, epochs=90)

    assert quote.job_s.mid == pytest.approx(3515.8)
    assert quote.job_usd.mid == pytest.approx(2.929833, rel=1e-6)
    assert quote.covers == ("compute",)


def test_2_start_up_is_paid_for() -> None:
    # 1,000 s of computing and 80 s of start-up: 1,080 s = 0.3 h at $2.00.
    quote = quoted(step_s=1.0, usd_per_hour=2.0, samples=1000, bill=billing(start_up_s=80))

    assert quote.job_usd.mid == pytest.approx(0.60)
    assert (quote.job_s.mid, quote.start_up_s, quote.start_up_measured) == (1080.0, 80.0, True)
    assert quote.job_parts_usd.start_up == pytest.approx(80 / 3600 * 2)
    # The interval: 100 s either way for the 1,000 s. The start-up's 10th and 90th percentile are 40 and 160 s, a factor
    # of two at 1.2816 standard deviations, so of 2^(1.6449/1.2816) = 2.4342 at 1.6449: 32.86 s, 47.14 less than the 80,
    # and 194.74 s, 114.74 more. Both together: the root of 100^2 + 47.14^2 = 110.55 s less, of 100^2 + 114.74^2 =
    # 152.20 s more.
    assert quote.job_s.low == pytest.approx(1080 - 110.55, abs=0.01)
    assert quote.job_s.high == pytest.approx(1080 + 152.20, abs=0.01)
    assert quote.job_usd.high == pytest.approx((1080 + 152.20) / 3600 * 2, rel=1e-5)


def test_3_a_provider_that_bills_by_the_minute_rounds_up() -> None:
    # 100 s are two minutes of $0.60 an hour: 120 / 3600 x 0.60 = $0.02, of which 20 s, $0.003333, are not used.
    quote = quoted(step_s=0.1, usd_per_hour=0.6, samples=1000, bill=billing(increment_s=60))

    assert quote.job_usd.mid == pytest.approx(0.02)
    assert quote.job_parts_usd.billing_increments == pytest.approx(0.0033333, rel=1e-4)
    assert "billing-increments" in quote.covers


def test_4_a_job_shorter_than_the_minimum_costs_the_minimum() -> None:
    # 5 s of computing and 20 s of start-up are 25 s; 60 s at least, at $3.60: 6 cents.
    quote = quoted(
        step_s=0.005, usd_per_hour=3.6, samples=1000, bill=billing(increment_s=1, minimum_s=60, start_up_s=20)
    )

    assert quote.job_usd.mid == pytest.approx(0.06)
    assert quote.job_s.mid == pytest.approx(25.0)


def test_5_a_provider_that_bills_by_the_hour_makes_a_short_job_dear() -> None:
    # 3,601 s begin a second hour: 2 x $0.90.
    assert quoted(step_s=3.601, usd_per_hour=0.9, bill=billing(increment_s=3600)).job_usd.mid == pytest.approx(1.80)
    # 3,600 s do not.
    assert quoted(step_s=3.6, usd_per_hour=0.9, bill=billing(increment_s=3600)).job_usd.mid == pytest.approx(0.90)


def test_6_spot_with_checkpoints_loses_little() -> None:
    # 20 % taken back within 730 h: a rate of -ln(0.8) / 730 = 3.05676e-4 an hour, one in M = 3,271.43 h.
    # 100 h of work in stretches of 1 h, restarts of 36 s = 0.01 h: e^x - 1 = x + x^2/2 = 3.0572272e-4 for x = 1 / M;
    # times 3,271.44 h each stretch takes 1.00015592 h, all of them 100.015592 h. With the first start of 0.01 h
    # 100.025592 h at $1.00.
    quote = quoted(
        step_s=360.0,
        usd_per_hour=1.0,
        kind="spot",
        samples=1000,
        checkpoint_every_s=3600.0,
        offered={"interruption": "15-20 %"},
        bill=billing(start_up_s=36),
    )

    assert quote.job_usd.mid == pytest.approx(100.025592, rel=1e-6)
    assert quote.lost_s == pytest.approx(0.015592 * 3600, rel=1e-3)
    assert quote.interruption == "15-20 %"
    assert "lost-work" in quote.covers


def test_7_spot_without_checkpoints_starts_all_over() -> None:
    # The same 100 h as one stretch: e^(100/3271.43) - 1 = e^0.0305676 - 1 = 0.03103960; x 3,271.44 h = 101.54419 h.
    # With the first start, 101.55419 h at $1.00.
    quote = quoted(
        step_s=360.0,
        usd_per_hour=1.0,
        kind="spot",
        samples=1000,
        offered={"interruption": "15-20 %"},
        bill=billing(start_up_s=36),
    )

    assert quote.job_usd.mid == pytest.approx(101.55419, rel=1e-5)


def test_8_a_commitment_costs_its_share_and_obliges_to_the_whole() -> None:
    # Half an hour at $0.80 costs 40 cents; a year of 8,760 h at $0.80 is $7,008, used or not.
    quote = quoted(step_s=1.8, usd_per_hour=0.8, kind="commit_1y", samples=1000)

    assert quote.job_usd.mid == pytest.approx(0.40)
    assert quote.commitment_usd == pytest.approx(7008.0)


def test_a_service_commits_to_every_one_of_its_instances() -> None:
    # 4 instances (see test 9) for three years of 8,760 h at $0.50: 4 x 26,280 x 0.50 = $52,560.
    quote = quoted(step_s=0.2, usd_per_hour=0.5, kind="commit_3y", batch=8, requests_per_day=8_640_000)

    assert quote.commitment_usd == pytest.approx(52_560.0)


def test_9_a_service_pays_for_whole_instances_all_month() -> None:
    # 8,640,000 requests a day are 100 a second. 8 in 0.2 s are 40 a second, 28 at 70 %: 3.57, so 4 instances, of which
    # 1 - 2.5 / 4 = 0.375 idles. 4 x 730 h x $0.50 = $1,460 a month, $547.50 of it idle.
    quote = quoted(
        step_s=0.2, usd_per_hour=0.5, batch=8, requests_per_day=8_640_000, bill=billing(start_up_s=80, increment_s=3600)
    )

    assert (quote.instance_count, quote.idle_ratio) == (4, pytest.approx(0.375))
    assert quote.job_usd.mid == pytest.approx(1460.0)
    assert quote.job_parts_usd.idle_time == pytest.approx(547.5)
    # A tenth faster, 0.18 s: 31.1 a second, still 4. A tenth slower, 0.22 s: 25.5 a second, still 4.
    assert (quote.job_usd.low, quote.job_usd.high) == (pytest.approx(1460.0), pytest.approx(1460.0))
    assert quote.covers == ("compute", "idle-time")


def test_10_what_the_user_adds_is_in_the_cost_and_taxed() -> None:
    # 73 h at $1.00, disks of $20.00 a month for 73 / 730 of it, $2.00, and egress of $5.00: $80.00, taxed $96.00.
    quote = quoted(
        step_s=262.8,
        usd_per_hour=1.0,
        samples=1000,
        bill=billing(storage_usd_per_month=20.0, egress_usd=5.0, tax_percent=20.0),
    )

    assert quote.job_usd.mid == pytest.approx(96.0)
    assert quote.job_parts_usd.tax == pytest.approx(16.0)
    assert quote.not_covered == ("start-up", "billing-increments", "quota", "availability")


def test_11_a_cloud_whose_start_up_nobody_measured_takes_the_median_of_the_others() -> None:
    # 30, 40 and 90 s: 40 s. 1,000 s + 40 s at $3.60 an hour, a tenth of a cent a second: $1.04.
    start_ups = {
        name: billing(start_up_s=seconds).start_ups["acme"] for name, seconds in zip("abc", (30, 40, 90), strict=True)
    }
    quote = quoted(step_s=1.0, usd_per_hour=3.6, samples=1000, bill=Billing(start_ups=start_ups))

    assert quote.job_usd.mid == pytest.approx(1.04)
    assert not quote.start_up_measured


def test_12_a_machine_of_ones_own_is_on_already() -> None:
    # 1,000 s at $0.36 an hour are 10 cents, whatever clouds take to start.
    quote = quoted(
        step_s=1.0,
        usd_per_hour=0.36,
        kind="owned",
        samples=1000,
        offered={"tier": "owned"},
        bill=billing(start_up_s=80, increment_s=3600, storage_usd_per_month=20.0, egress_usd=5.0, tax_percent=20.0),
    )

    assert quote.job_usd.mid == pytest.approx(0.10)
    assert (quote.covers, quote.not_covered) == (("compute",), ())


def test_13_a_machine_that_has_to_be_waited_for_takes_longer_and_costs_the_same() -> None:
    # 1,000 s of computing after 90 minutes of 60 s: 6,400 s, of which 1,000 s at $3.60 an hour are $1.00.
    quote = quoted(step_s=1.0, usd_per_hour=3.6, samples=1000, offered={"wait_s": 5400.0, "quota_instances": 1})

    assert quote.job_s.mid == pytest.approx(6400.0)
    assert quote.job_usd.mid == pytest.approx(1.0)
    assert quote.covers == ("compute", "quota", "availability")


def test_a_job_of_no_given_size_costs_the_hours_of_computing_alone() -> None:
    quote = quoted(
        step_s=1.0, usd_per_hour=3.6, samples=1000, assumed=True, bill=billing(start_up_s=80, increment_s=3600)
    )

    assert quote.job_usd.mid == pytest.approx(1.0)
    assert quote.covers == ("compute",)
    assert quote.not_covered[:2] == ("start-up", "billing-increments")


def test_a_job_of_no_given_size_ends_in_no_whole_batch() -> None:
    # 1,000 samples in batches of 300: 3.333 steps of 36 s are 120 s, 1/30 h at $3.00; four whole steps would be $0.12.
    quote = quoted(step_s=36.0, usd_per_hour=3.0, batch=300, samples=1000, assumed=True)

    assert quote.job_usd.mid == pytest.approx(0.10)
    assert quote.job_usd.mid == pytest.approx(quote.usd_per_million_samples / 1000)


def test_the_parts_add_up_to_the_cost() -> None:
    quote = quoted(
        step_s=36.0,
        usd_per_hour=1.0,
        kind="spot",
        samples=1000,
        offered={"interruption": ">20 %"},
        bill=billing(start_up_s=36, increment_s=3600, storage_usd_per_month=20.0, egress_usd=5.0, tax_percent=20.0),
    )
    parts = quote.job_parts_usd

    added = (parts.compute, parts.start_up, parts.lost_work, parts.billing_increments, parts.idle_time)
    assert sum((*added, parts.storage, parts.egress, parts.tax)) == pytest.approx(quote.job_usd.mid)
    assert parts.lost_work > 0
    assert parts.billing_increments > 0
