from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from advisor.cost.selection import Selection, mark_warnings, price_marks, select_offers
from advisor.errors import UsageError
from advisor.records.options import DropPrices, Options
from advisor.records.price import Offer, PriceErrors, PriceSource
from tests.cost.toys import offer, price, said, selection
from tests.report.toys import L4, T4
from tests.says import assert_says

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


def test_an_architecture_is_that_of_the_cpu_and_x86_where_it_is_not_known() -> None:
    arm, x86, unknown = (offer(name, architecture=one) for name, one in (("a1", "arm"), ("x1", "x86"), ("u1", None)))
    assert kept(selection(arm, x86, unknown, arch=("arm",))) == ["acme/us-1/a1"]
    assert kept(selection(arm, x86, unknown, arch=("x86",))) == ["acme/us-1/x1", "acme/us-1/u1"]
    assert codes(selection(arm, x86, arch=("x86",))) == ["other-arch"]


@pytest.mark.parametrize("name", ["g1", "G1", "acme/us-1/g1"])
def test_an_instance_is_a_type_or_an_offer(name: str) -> None:
    chosen = selection(HERE, GPU, instance=(name,))
    assert kept(chosen) == ["acme/us-1/g1"]
    assert codes(chosen) == ["other-instance"]


def test_a_marketplace_is_ranked_if_its_instance_is_named() -> None:
    host = offer("h1", tier="marketplace")
    assert kept(selection(host)) == []
    assert kept(selection(host, instance=("h1",))) == ["acme/us-1/h1"]


def test_an_instance_that_no_provider_rents_is_an_error_with_the_closest_name() -> None:
    with pytest.raises(UsageError) as caught:
        selection(offer("g5.xlarge"), instance=("g5.xlagre",))
    assert "g5.xlarge" in caught.value.hint


def test_a_gpu_that_no_wheel_of_pytorch_has_code_for_is_left_out() -> None:
    chosen = selection(HERE, replace(GPU, no_wheel="Tesla T4G (sm_75) on Arm"))
    assert kept(chosen) == ["acme/us-1/m1"]
    ((instance, code, reason),) = said(chosen.rejected)
    assert (instance, code) == ("g1", "no-torch-wheel")
    assert "Tesla T4G (sm_75) on Arm" in reason


@pytest.mark.parametrize(
    ("candidate", "code", "reason"),
    [
        (offer(prices=(price(kind="spot"),)), "no-price", "has no on-demand price"),
        (offer(prices=(price(stale=True, note="cut since"),)), "stale-price", "cut since"),
        (offer(prices=(price(suspect=True),)), "suspect-price", "not credible"),
    ],
)
def test_what_cannot_be_priced_honestly_is_rejected_with_its_reason(candidate: Offer, code: str, reason: str) -> None:
    chosen = selection(candidate)
    assert kept(chosen) == []
    assert codes(chosen) == [code]
    assert reason in said(chosen.rejected)[0][2]


def test_machines_with_fewer_gpus_than_asked_for_are_left_out() -> None:
    eight, four = offer("m8", gpu="t4", gpu_count=8), offer("m4", gpu="t4", gpu_count=4)
    chosen = selection(HERE, four, eight, gpus=8)
    assert [one.offer.instance for one in chosen.priced] == ["m8"]
    assert said(chosen.rejected) == [
        ("m1", "too-few-gpus", "has 0 GPUs, needs 8"),
        ("m4", "too-few-gpus", "has 4 GPUs, needs 8"),
    ]


def test_machines_with_several_gpus_are_selected() -> None:
    assert kept(selection(offer(gpu="t4", gpu_count=8))) != []


TODAY = date(2026, 7, 1)


@pytest.mark.parametrize(
    ("drop_prices", "left_out"),
    [
        ("none", []),
        ("flagged", ["stale-price", "suspect-price"]),
        ("old", ["old-price", "stale-price", "suspect-price"]),
    ],
)
def test_doubtful_prices_are_marked_and_left_out_as_asked(drop_prices: DropPrices, left_out: list[str]) -> None:
    offers = (
        offer("fine", prices=(price(date="2026-01-02"),)),  # 180 days before 1 July
        offer("old", prices=(price(date="2026-01-01"),)),
        offer("stale", prices=(price(date="2026-06-01", stale=True),)),
        offer("suspect", prices=(price(date="2026-06-01", suspect=True),)),
    )
    options = Options(drop_prices=drop_prices, max_price_age=180)
    chosen = select_offers(offers, options=options, price_kind="on_demand", errors=PriceErrors(), today=TODAY)
    assert sorted(codes(chosen)) == left_out
    marks = {"fine": (), "old": ("OLD",), "stale": ("STALE",), "suspect": ("SUSPECT",)}
    assert all(priced.marks == marks[priced.offer.instance] for priced in chosen.priced)
    assert len(chosen.priced) == 4 - len(left_out)


def test_a_price_that_is_left_out_for_its_age_says_its_date() -> None:
    options = Options(drop_prices="old", max_price_age=30)
    chosen = select_offers([HERE], options=options, price_kind="on_demand", errors=PriceErrors(), today=TODAY)
    assert said(chosen.rejected) == [("m1", "old-price", "the price dates from 2026-01-01")]


def test_what_the_user_excludes_is_out_with_the_line_that_does_it() -> None:
    chosen = selection(HERE, offer("x1", excluded="advisor.yaml:1: exclude.family rules it out"))
    assert kept(chosen) == [HERE.id]
    assert said(chosen.rejected) == [("x1", "excluded", "advisor.yaml:1: exclude.family rules it out")]


def test_the_users_line_is_named_only_for_what_the_flags_let_in() -> None:
    offers = [offer("x1", provider=name, excluded="advisor.yaml:1") for name in ("aws", "gcp")]
    chosen = select_offers(
        offers, options=Options(provider=("gcp",)), price_kind="on_demand", errors=PriceErrors(), today=TODAY
    )
    assert [(one.offer.provider, one.causes[0].code) for one in chosen.rejected] == [
        ("aws", "other-provider"),
        ("gcp", "excluded"),
    ]


def test_owned_hardware_is_ranked_whatever_price_is_asked_for() -> None:
    box = offer("box", tier="owned", prices=(price(kind="owned"),))
    for kind in ("on_demand", "spot"):
        chosen = selection(box, price_kind=kind)  # type: ignore[arg-type]
        assert kept(chosen) == [box.id]


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
    assert "CPU and RAM" in said(chosen.apart)[0][2]


def test_every_offer_is_kept_or_rejected_or_set_apart_once() -> None:
    offers = (HERE, THERE, GPU, offer("h1", tier="marketplace"), offer("s1", prices=()))
    chosen = selection(*offers, region=("US",))
    ids = [priced.offer.id for priced in chosen.priced] + [rejection.offer.id for rejection in chosen.rejected]
    assert sorted(ids) == sorted(one.id for one in offers)


@pytest.mark.parametrize(("flag", "name", "hint"), [("provider", "acmee", "acme"), ("region", "us-2", "us-1")])
def test_a_name_that_no_offer_has_is_an_error_with_a_guess(flag: str, name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"--{flag} {name}") as caught:
        selection(HERE, **{flag: (name,)})
    assert hint in caught.value.hint


OF_JANUARY = price(date="2026-01-01")


def test_a_price_is_old_from_the_day_after_its_last() -> None:
    # 1 January + 30 days is 31 January
    assert price_marks(OF_JANUARY, today=date(2026, 1, 31), max_age_days=30) == ()
    assert price_marks(OF_JANUARY, today=date(2026, 2, 1), max_age_days=30) == ("OLD",)


def test_a_price_can_have_every_mark() -> None:
    doubtful = replace(OF_JANUARY, stale=True, suspect=True)
    assert price_marks(doubtful, today=date(2026, 12, 1), max_age_days=30) == ("STALE", "SUSPECT", "OLD")


def test_a_price_announced_ahead_is_not_old() -> None:
    assert price_marks(OF_JANUARY, today=date(2025, 12, 1), max_age_days=1) == ()


def test_doubtful_prices_in_the_ranking_are_one_warning_and_none_where_there_are_none() -> None:
    assert mark_warnings([L4, T4], max_age_days=180, sources={}) == ()
    (warning,) = mark_warnings([L4, replace(T4, price_marks=("OLD",))], max_age_days=180, sources={})
    assert_says(warning, "1 of 2", "180 days", "OLD")
    assert "STALE" not in warning
    (warning,) = mark_warnings([replace(L4, price_marks=("OLD", "STALE"))], max_age_days=180, sources={})
    assert_says(warning, "1 of 1", "OLD", "STALE", "best", "2025-11-02")


def test_the_remedy_for_old_prices_names_what_can_be_fetched_and_the_pages_of_the_rest() -> None:
    sources = {
        "aws": PriceSource(page="https://aws.example", refresh="command"),
        "neo": PriceSource(page="https://neo.example/pricing"),
    }
    old = [replace(L4, price_marks=("OLD",)), replace(T4, provider="neo", price_marks=("OLD",))]
    (warning,) = mark_warnings(old, max_age_days=180, sources=sources)
    assert_says(warning, "`advise prices refresh`", "aws", "neo https://neo.example/pricing", "--drop-prices old")
    assert "https://aws.example" not in warning


def test_an_accelerator_with_software_of_its_own_is_set_apart_unless_it_is_named() -> None:
    core = offer("n1", gpu="core", gpu_count=2, stack="compiler")
    asked: tuple[dict[str, Any], ...] = ({}, {"device": ("gpu",)}, {"provider": ("acme",)})
    for options in asked:
        chosen = selection(GPU, core, **options)
        assert kept(chosen) == ["acme/us-1/g1"]
        assert codes(chosen) == ["other-stack"]
    assert kept(selection(GPU, core, device=("Core",))) == ["acme/us-1/n1"]
    assert kept(selection(GPU, core, instance=("n1",))) == ["acme/us-1/n1"]
