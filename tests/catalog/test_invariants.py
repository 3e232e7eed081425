import math
from dataclasses import replace
from datetime import date

import pytest

from advisor.catalog.invariants import broken_invariants
from advisor.records.price import Catalog, Offer, Price

TODAY = date(2026, 9, 30)


def price(kind: str, usd_per_hour: float, **changes: object) -> Price:
    values: dict[str, object] = {"date": "2026-01-01", "source": "the list"}
    return Price(kind=kind, usd_per_hour=usd_per_hour, **(values | changes))  # type: ignore[arg-type]


def machine(*prices: Price, instance: str = "g1", gpu_count: int = 1) -> Offer:
    return Offer(
        id=f"acme/us/{instance}",
        provider="acme",
        tier="neocloud",
        region="us",
        geo="US",
        instance=instance,
        vcpus=8,
        threads_per_core=2,
        memory_bytes=32e9,
        cpu=None,
        gpu="l4",
        gpu_count=gpu_count,
        prices=prices,
    )


def test_no_shipped_price_breaks_one(shipped: Catalog) -> None:
    assert broken_invariants(shipped.offers, today=TODAY) == ()


@pytest.mark.parametrize(
    ("prices", "problem"),
    [
        ([price("on_demand", 0.0)], "on_demand of 0.0 dollars an hour"),
        ([price("on_demand", math.nan)], "on_demand of nan dollars an hour"),
        ([price("on_demand", math.inf)], "on_demand of inf dollars an hour"),
        ([price("on_demand", -1.0)], "on_demand of -1.0 dollars an hour"),
        ([price("on_demand", 2377.0)], "on_demand of 2377.0 dollars an hour"),  # the total of a year
        ([price("on_demand", 1.0), price("spot", 1.1)], "spot of 1.1 is above on-demand of 1.0"),
        ([price("on_demand", 1.0), price("commit_1y", 1.1)], "commit_1y of 1.1 is above on-demand of 1.0"),
        ([price("on_demand", 1.0), price("commit_3y", 0.1)], "commit_3y of 0.1 is less than 15% of on-demand of 1.0"),
        ([price("on_demand", 1.0, date="2026-10-01")], "on_demand is of 2026-10-01, after today"),
    ],
)
def test_a_price_that_cannot_be_right_is_named_with_its_offer(prices: list[Price], problem: str) -> None:
    assert broken_invariants([machine(*prices)], today=TODAY) == (f"acme/us/g1: {problem}",)


def test_a_price_per_gpu_that_is_taken_for_that_of_the_machine_is_found() -> None:
    one, two = machine(price("on_demand", 2.0)), machine(price("on_demand", 4.0), instance="g2", gpu_count=2)
    # 8 GPUs for the 2.00 of one: 0.25 each
    eight = machine(price("on_demand", 2.0), instance="g8", gpu_count=8)
    assert broken_invariants([one, two, eight], today=TODAY) == (
        "acme/us/g8: on_demand of 0.250 for each of 8 GPUs, where 2.000 is usual",
    )
    assert broken_invariants([one, two, replace(eight, prices=(price("on_demand", 16.0),))], today=TODAY) == ()


def test_a_price_that_says_itself_that_it_is_wrong_breaks_none() -> None:
    doubtful = [price("on_demand", 1.0), price("spot", 3.0, suspect=True), price("commit_3y", 5.0, stale=True)]
    assert broken_invariants([machine(*doubtful)], today=TODAY) == ()
