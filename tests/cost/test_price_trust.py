import math
from datetime import date

import numpy as np
import pytest

from advisor.catalog.overlay import load_catalog
from advisor.cost.cheapest import chances_by_device
from advisor.cost.leading import best_by_tier, best_of
from advisor.cost.price_trust import price_trust
from advisor.cost.rank_offers import Ranking
from advisor.cost.selection import select_offers
from advisor.records.options import Options
from advisor.records.price import Offer, PriceErrors, PriceSpread
from tests.cost.toys import device, fleet, job, offer, predictions, price, rank

TODAY = date(2026, 6, 1)


def spread(log_spread: float) -> PriceSpread:
    return PriceSpread(log_spread=log_spread, n=1, basis="measured", source="by hand")


ERRORS = PriceErrors(
    drift={"hyperscaler": spread(0.05), "neocloud": spread(0.2), "spot": spread(0.5)},
    listing={"list": spread(0.0), "published": spread(0.15)},
    trusted=spread(0.058),
)


def test_the_variance_of_a_price_grows_with_its_age() -> None:
    trust = price_trust([offer(prices=(price(date="2026-06-01"),))], errors=ERRORS, today=TODAY)
    year_ago, four_years_ago = price(date="2025-06-01"), price(date="2022-06-02")
    assert trust(year_ago, "neocloud")[0] == pytest.approx(0.2)
    assert trust(four_years_ago, "neocloud")[0] == pytest.approx(0.4, rel=1e-3)  # 1,460 days: sqrt(4) x 0.2
    assert trust(year_ago, "hyperscaler")[0] == pytest.approx(0.05)


def test_a_third_partys_list_adds_an_error_of_its_own() -> None:
    trust = price_trust([offer(prices=(price(date="2026-06-01"),))], errors=ERRORS, today=TODAY)
    found, _ = trust(price(date="2025-06-01", basis="published"), "neocloud")
    assert found == pytest.approx(math.hypot(0.2, 0.15))


def test_own_rates_and_own_hardware_have_no_error() -> None:
    trust = price_trust([offer(prices=(price(date="2026-06-01"),))], errors=ERRORS, today=TODAY)
    assert trust(price(date="2020-01-01", basis="own_rate"), "neocloud") == (0.0, True)
    assert trust(price(date="2020-01-01", basis="own_hardware"), "owned") == (0.0, True)


def test_a_price_is_trusted_by_its_age_to_the_newest_price_not_to_today() -> None:
    # 0.2 x sqrt(days / 365) <= 0.058 up to 30 days.
    old = price(date="2026-02-01")
    alone = price_trust([offer(prices=(old,))], errors=ERRORS, today=TODAY)
    beside_newer = price_trust([offer(prices=(old, price(date="2026-04-01")))], errors=ERRORS, today=TODAY)
    assert alone(old, "neocloud")[1]
    assert not beside_newer(old, "neocloud")[1]
    assert beside_newer(old, "hyperscaler")[1]


def test_a_spot_price_drifts_faster_than_the_list_prices_of_its_tier() -> None:
    listed, spot = price(date="2025-06-01"), price(kind="spot", date="2025-06-01")
    trust = price_trust([offer(prices=(listed, price(date="2026-06-01")))], errors=ERRORS, today=TODAY)
    assert trust(listed, "hyperscaler") == (pytest.approx(0.05), True)
    assert trust(spot, "hyperscaler") == (pytest.approx(0.5), False)


GPU, OTHER = device("gpu", kind="gpu"), device("other", kind="gpu")


def ranked(*offers: Offer, device_index: tuple[int, ...]) -> Ranking:
    """1,000 samples of 0.1 s: 100 s, so that 3.6 $/h are $0.10."""
    return rank(
        select_offers(offers, options=Options(), price_kind="on_demand", today=TODAY, errors=ERRORS),
        fleet=fleet(*device_index, devices=(GPU, OTHER)),
        predictions=predictions(GPU, OTHER, step_s=[[0.1], [0.1]], own_log_spread=np.full((2, 1), 0.1)),
        job=job(1000),
    )


def old_and_new(old_usd_per_hour: float = 1.8) -> Ranking:
    """A neocloud's list of a year ago at half the price, and a hyperscaler's of today."""
    listed = price(old_usd_per_hour, date="2025-06-01")
    old = offer("old", provider="neo", tier="neocloud", prices=(listed,))
    new = offer("new", prices=(price(3.6, date="2026-06-01"),))
    return ranked(old, new, device_index=(0, 1))


def test_the_best_offer_has_a_trusted_price_and_the_ranking_stays_by_cost() -> None:
    ranking = old_and_new()
    assert [(quote.instance, quote.price_is_trusted) for quote in ranking.quotes] == [("old", False), ("new", True)]
    best = best_of(ranking.quotes)
    assert best is not None
    assert best.instance == "new"
    assert [quote.indistinguishable for quote in ranking.quotes] == [False, False]


def test_without_a_trusted_price_the_first_is_the_best() -> None:
    quotes = old_and_new().quotes[:1]
    assert best_of(quotes) is quotes[0]
    assert best_of(()) is None


def test_the_error_of_the_price_widens_the_cost() -> None:
    # The time has log(1.1) either way, the price 1.645 x 0.2: together sqrt(0.0953^2 + 0.329^2) = 0.3425.
    old, new = old_and_new().quotes
    assert old.job_usd.high / old.job_usd.mid == pytest.approx(math.exp(0.3425), rel=1e-3)
    assert new.job_usd.high / new.job_usd.mid == pytest.approx(1.1)
    assert old.job_s.high / old.job_s.mid == pytest.approx(1.1)


def test_the_error_of_the_price_is_in_the_chance() -> None:
    # $0.09 and $0.10: log(0.9) = -0.1054, spreads 0.1, 0.1 and 0.2: Phi(0.1054 / 0.2449) = Phi(0.430) = 0.666.
    quotes = old_and_new(3.24).quotes
    assert [quote.chance_cheapest for quote in quotes] == pytest.approx([0.666, 0.334], abs=0.02)
    assert [quote.chance_among_trusted for quote in quotes] == [0.0, 1.0]


def test_machines_of_one_device_add_up_to_its_chance() -> None:
    fresh = (price(3.6, date="2026-06-01"),)
    dearer = (price(3.7, date="2026-06-01"),)
    ranking = ranked(
        offer("m1", prices=fresh), offer("m2", prices=dearer), offer("m3", prices=fresh), device_index=(0, 0, 1)
    )
    found = {one.id: one.chance for one in chances_by_device(ranking.quotes)}
    assert found == pytest.approx({"gpu": 0.5, "other": 0.5}, abs=0.02)


def test_each_tier_has_its_best() -> None:
    found = best_by_tier(old_and_new().quotes)
    assert {tier: quote.instance for tier, quote in found.items()} == {"neocloud": "old", "hyperscaler": "new"}


def test_shipped_prices_of_genesis_cloud_are_not_trusted_and_those_of_aws_are() -> None:
    catalog = load_catalog()
    selection = select_offers(
        catalog.offers,
        options=Options(),
        price_kind="on_demand",
        today=date(2026, 11, 23),
        errors=catalog.price_errors,
    )
    found = {one.offer.id: one for one in selection.priced}
    old, new = found["genesis-cloud/global/RTX 3080 10GB PCIe"], found["aws/us-east-1/g6.xlarge"]
    assert (old.price.date, old.is_trusted) == ("2026-05-24", False)
    assert (new.price.date, new.is_trusted) == ("2026-07-20", True)
    # 183 days: sqrt(0.141^2 + 0.215^2 x 183 / 365) = 0.207; 126 days: 0.052 x sqrt(126 / 365) = 0.031.
    assert old.log_spread == pytest.approx(0.207, abs=1e-3)
    assert new.log_spread == pytest.approx(0.031, abs=1e-3)


def test_shipped_spot_prices_older_than_five_days_are_not_trusted() -> None:
    # 0.486 x sqrt(5 / 365) = 0.0569 and 0.486 x sqrt(6 / 365) = 0.0623; trusted up to 0.058.
    catalog = load_catalog()
    trust = price_trust(
        [offer(prices=(price(date="2026-09-06"),))], errors=catalog.price_errors, today=date(2026, 11, 23)
    )
    days = {day: trust(price(kind="spot", date=day), "hyperscaler")[1] for day in ("2026-09-01", "2026-08-31")}
    assert days == {"2026-09-01": True, "2026-08-31": False}
