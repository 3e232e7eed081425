from typing import Any

import pytest

from advisor.cost.selection import Selection
from advisor.errors import UsageError
from advisor.records.price import Offer
from tests.cost.toys import offer, price, selection

HERE, THERE = offer("m1"), offer("m1", region="eu-1", geo="EU")
GPU = offer("g1", gpu="t4", gpu_count=1)


def kept(chosen: Selection) -> list[str]:
    return [priced.offer.id for priced in chosen.priced[: chosen.may_win_count]]


def codes(chosen: Selection) -> list[str]:
    return [rejection.code for rejection in (*chosen.rejected, *chosen.apart)]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"region": ("eu-1",)}, "other-region"),
        ({"region": ("EU",)}, "other-region"),
        ({"region": ("eu",)}, "other-region"),
    ],
)
def test_a_region_is_a_providers_or_a_part_of_the_world(options: dict[str, Any], code: str) -> None:
    chosen = selection(HERE, THERE, **options)
    assert kept(chosen) == ["acme/eu-1/m1"]
    assert codes(chosen) == [code]


@pytest.mark.parametrize("name", ["gpu", "t4", "T4"])
def test_a_device_is_a_kind_or_an_id(name: str) -> None:
    chosen = selection(HERE, GPU, device=(name,))
    assert kept(chosen) == ["acme/us-1/g1"]
    assert codes(chosen) == ["other-device"]


def test_a_gpu_machine_is_no_cpu_offer() -> None:
    assert kept(selection(HERE, GPU, device=("cpu",))) == ["acme/us-1/m1"]
    assert kept(selection(HERE, GPU, device=("xeon",))) == ["acme/us-1/m1"]


def test_a_provider_or_tier_not_asked_for_is_left_out() -> None:
    other = offer("x1", provider="zeta", tier="neocloud")
    assert codes(selection(HERE, other, provider=("acme",))) == ["other-provider"]
    assert codes(selection(HERE, other, tier=("neocloud",))) == ["other-tier"]


@pytest.mark.parametrize(
    ("candidate", "code", "reason"),
    [
        (offer(gpu="t4", gpu_count=8), "uses-1-of-n", "uses 1 of 8 GPUs"),
        (offer(prices=(price(kind="spot"),)), "no-price", "has no on-demand price"),
        (offer(prices=(price(stale=True, note="cut since"),)), "stale-price", "cut since"),
        (offer(prices=(price(suspect=True),)), "suspect-price", "not credible"),
    ],
)
def test_what_cannot_be_priced_honestly_is_rejected_with_its_reason(candidate: Offer, code: str, reason: str) -> None:
    chosen = selection(candidate)
    assert kept(chosen) == []
    assert codes(chosen) == [code]
    assert reason in chosen.rejected[0].reason


def test_marketplaces_are_set_apart_unless_asked_for() -> None:
    host = offer("h1", tier="marketplace")
    assert codes(selection(HERE, host)) == ["marketplace"]
    assert selection(HERE, host).offers == (HERE, host)
    assert kept(selection(HERE, host, tier=("marketplace",))) == [host.id]


def test_a_provider_that_is_named_is_ranked_though_it_is_a_marketplace() -> None:
    host = offer("h1", provider="bazaar", tier="marketplace")
    assert kept(selection(host, provider=("bazaar",))) == [host.id]


def test_a_price_that_leaves_parts_out_is_set_apart_whatever_the_tier() -> None:
    bare = offer("b1", billed_separately="CPU and RAM")
    chosen = selection(bare, tier=("hyperscaler",))
    assert codes(chosen) == ["billed-separately"]
    assert "CPU and RAM" in chosen.apart[0].reason


def test_every_offer_is_kept_or_rejected_or_set_apart_once() -> None:
    offers = (HERE, THERE, GPU, offer("h1", tier="marketplace"), offer("s1", prices=()))
    chosen = selection(*offers, region=("US",))
    ids = [priced.offer.id for priced in chosen.priced] + [rejection.id for rejection in chosen.rejected]
    assert sorted(ids) == sorted(one.id for one in offers)


@pytest.mark.parametrize(("flag", "name", "hint"), [("provider", "acmee", "acme"), ("region", "us-2", "us-1")])
def test_a_name_that_no_offer_has_is_an_error_with_a_guess(flag: str, name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"--{flag} {name}") as caught:
        selection(HERE, **{flag: (name,)})
    assert hint in caught.value.hint
