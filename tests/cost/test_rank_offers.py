from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.cost.rank_offers import Ranking, why_too_small
from advisor.records.answer import JobLimits
from advisor.records.generation import Generation
from advisor.records.options import Objective
from advisor.records.price import Offer
from advisor.records.rejection import sentence_of
from tests.cost.toys import billing, device, fleet, job, offer, predictions, rank, said, selection
from tests.says import assert_says
from tests.scale.test_served import ENGINE

SLOW, FAST = device("slow"), device("fast", kind="gpu")
DEAR, CHEAP = offer("m1", usd_per_hour=7.2), offer("m2", usd_per_hour=3.6)


def ranked(*offers: Offer, device_index: tuple[int, ...], samples: int = 1000, **options: Any) -> Ranking:
    """Every offer on `SLOW` (1 s a sample) or `FAST` (0.1 s a sample)."""
    return rank(
        selection(*offers, **options),
        fleet=fleet(*device_index, devices=(SLOW, FAST)),
        predictions=predictions(SLOW, FAST, step_s=[[1.0], [0.1]]),
        job=job(samples),
    )


def instances(ranking: Ranking) -> list[str]:
    return [quote.instance for quote in ranking.quotes]


def codes(ranking: Ranking) -> dict[str, str]:
    return {rejection.offer.id: rejection.code for rejection in ranking.rejected}


def test_a_quote_is_time_and_price_of_the_job() -> None:
    quote = ranked(CHEAP, device_index=(1,), samples=1000).quotes[0]
    assert quote.job_s.mid == pytest.approx(100.0)  # 1,000 samples x 0.1 s
    assert quote.job_usd.mid == pytest.approx(0.1)  # 100 s x 3.6 $/h
    assert quote.job_usd.low == pytest.approx(0.09)
    assert quote.job_usd.high == pytest.approx(0.11)
    assert quote.samples_per_s == pytest.approx(10.0)
    assert quote.usd_per_million_samples == pytest.approx(100.0)  # 100,000 s x 0.001 $/s
    assert (quote.device.id, quote.device.kind, quote.gpus_used) == ("fast", "gpu", 1)


def test_the_cheapest_job_is_first_not_the_cheapest_hour() -> None:
    # 7.2 $/h for 100 s cost 0.2 $; 3.6 $/h for 1,000 s cost 1 $.
    assert instances(ranked(CHEAP, DEAR, device_index=(0, 1))) == ["m1", "m2"]


def test_the_best_batch_finishes_the_job_soonest() -> None:
    # 1,000 samples: 1,000 steps of 1 s, 125 of 2 s (250 s), 16 of 20 s (320 s).
    quotes = rank(
        selection(CHEAP),
        fleet=fleet(0, devices=(SLOW,)),
        predictions=predictions(SLOW, step_s=[[1.0, 2.0, 20.0]], batches=(1, 8, 64)),
        job=job(1000),
    ).quotes
    assert quotes[0].batch == 8
    assert quotes[0].job_s.mid == pytest.approx(250.0)
    assert quotes[0].peak_memory_bytes == 8e9


def test_a_last_step_that_is_not_full_takes_as_long() -> None:
    quotes = rank(
        selection(CHEAP),
        fleet=fleet(0, devices=(SLOW,)),
        predictions=predictions(SLOW, step_s=[[2.0]], batches=(8,)),
        job=job(17),
    ).quotes
    assert quotes[0].job_s.mid == pytest.approx(6.0)  # 3 steps


def test_a_batch_that_does_not_fit_is_not_chosen() -> None:
    quotes = rank(
        selection(CHEAP),
        fleet=fleet(0, devices=(SLOW,)),
        predictions=predictions(
            SLOW, step_s=[[1.0, 1.0]], batches=(1, 8), fits=np.array([[True, False]], dtype=np.bool_)
        ),
        job=job(),
    ).quotes
    assert quotes[0].batch == 1


def test_what_fits_at_no_batch_is_rejected_with_the_numbers() -> None:
    ranking = rank(
        selection(CHEAP),
        fleet=fleet(0, devices=(SLOW,)),
        predictions=predictions(
            SLOW,
            step_s=[[1.0, 1.0]],
            batches=(40, 80),  # 1 GB a sample: 40e9 / 2^30 = 37.25 GiB, and 32e9 / 2^30 = 29.8 GiB
            fits=np.zeros((1, 2), dtype=np.bool_),
        ),
        job=job(),
    )
    assert ranking.quotes == ()
    ((name, code, reason),) = said(ranking.rejected)
    assert (name, code) == ("m2", "does-not-fit")
    assert_says(reason, "37.3 GiB", "batch 40", "29.8 GiB")


def test_what_no_plan_can_spread_is_rejected_without_numbers() -> None:
    nothing = replace(
        predictions(SLOW, step_s=[[np.inf]], fits=np.zeros((1, 1), dtype=np.bool_)),
        peak_memory_bytes=np.array([[np.inf]]),
    )
    ranking = rank(selection(CHEAP), fleet=fleet(0, devices=(SLOW,)), predictions=nothing, job=job())
    reason = "the batch cannot be divided among its GPUs as requested"
    assert said(ranking.rejected) == [("m2", "does-not-fit", reason)]


def test_a_served_model_may_use_the_memory_that_its_engine_takes() -> None:
    served = Generation(prompt_tokens=8, output_tokens=8, engine=replace(ENGINE, cpu_memory_ratio=0.75))
    found = predictions(SLOW, step_s=[[1.0]], batches=(30,), fits=np.zeros((1, 1), dtype=np.bool_))
    cause = why_too_small(0, predictions=found, generation=served)
    # 30 requests of 1 GB, of the 32 GB the engine takes 24; 24e9 / 2^30 = 22.4 GiB.
    assert (cause.code, cause.needed, cause.available, cause.batch) == ("does-not-fit", 30e9, 24e9, 30)
    assert cause.ratio == pytest.approx(30 / 24)
    assert_says(sentence_of(cause, served), "27.9 GiB", "30 requests in flight", "toy", "22.4 GiB")


def test_more_requests_than_the_engine_takes_are_rejected_with_its_limit() -> None:
    served = Generation(prompt_tokens=8, output_tokens=8, engine=ENGINE)
    nothing = replace(
        predictions(SLOW, step_s=[[np.inf, np.inf]], batches=(65, 130), fits=np.zeros((1, 2), dtype=np.bool_)),
        peak_memory_bytes=np.full((1, 2), np.inf),
    )
    cause = why_too_small(0, predictions=nothing, generation=served)
    assert (cause.code, cause.needed, cause.available) == ("over-engine-limit", 65, 64)
    assert_says(sentence_of(cause, served), "toy", "64 requests", "65")


def test_a_device_without_the_precision_is_rejected() -> None:
    nothing = predictions(SLOW, step_s=[[np.inf]], precisions=np.array([[None]]), fits=np.zeros((1, 1), dtype=np.bool_))
    ranking = rank(selection(CHEAP), fleet=fleet(0, devices=(SLOW,)), predictions=nothing, job=job())
    assert codes(ranking) == {CHEAP.id: "no-native-precision"}


def test_an_offer_without_a_device_is_rejected_with_the_problem() -> None:
    ranking = ranked(CHEAP, DEAR, device_index=(-1, 0))
    assert instances(ranking) == ["m1"]
    assert [found[1:] for found in said(ranking.rejected)] == [("no-device-profile", "it is a riddle")]


def test_a_type_is_quoted_once_in_its_cheapest_region() -> None:
    here, there = offer("m1", usd_per_hour=2.0), offer("m1", usd_per_hour=1.0, region="eu-1", geo="EU")
    ranking = ranked(here, there, device_index=(0, 0))
    assert [quote.region for quote in ranking.quotes] == ["eu-1"]
    assert codes(ranking) == {here.id: "pricier-region"}


def test_a_cheaper_region_with_an_untrusted_price_hides_no_trusted_one() -> None:
    regions = {"us-1": (2.0, True), "us-2": (1.5, True), "eu-1": (1.0, False), "eu-2": (1.2, False)}
    chosen = selection(*(offer("m1", usd_per_hour=usd, region=region) for region, (usd, _) in regions.items()))
    priced = tuple(replace(one, is_trusted=regions[one.offer.region][1]) for one in chosen.priced)
    ranking = rank(
        replace(chosen, priced=priced),
        fleet=fleet(0, 0, 0, 0, devices=(SLOW,)),
        predictions=predictions(SLOW, step_s=[[1.0]]),
        job=job(1000),
    )
    assert [(quote.region, quote.may_lead) for quote in ranking.quotes] == [("eu-1", False), ("us-2", True)]
    assert [(one.offer.region, one.causes[0].what) for one in ranking.rejected] == [("us-1", "eu-1"), ("eu-2", "eu-1")]


def test_a_quota_that_leaves_only_untrusted_prices_does_not_change_the_batch() -> None:
    # 3,200 samples take 102 s at batch 8 and 100 s at batch 32: 2 % more, so the smaller batch is chosen.
    chosen = selection(offer("m1", quota_instances=0), offer("m1", region="eu-1"))
    us, eu = chosen.priced
    ranking = rank(
        replace(chosen, priced=(us, replace(eu, is_trusted=False))),
        fleet=fleet(0, 0, devices=(SLOW,)),
        predictions=predictions(SLOW, step_s=[[0.255, 1.0]], batches=(8, 32)),
        job=job(3200),
    )
    assert [(quote.region, quote.batch) for quote in ranking.quotes] == [("eu-1", 8)]


def test_overlapping_costs_are_indistinguishable_from_the_best() -> None:
    # Within a factor of 1.1, 100 s at 3.6 $/h cost 0.091 to 0.11 $, 1,000 s at 0.42 $/h 0.106 to 0.128 $: they overlap.
    # At 0.5 $/h they do not: 0.126 to 0.153 $.
    close = ranked(offer("m1"), offer("m2", usd_per_hour=0.42), device_index=(1, 0))
    assert [quote.indistinguishable for quote in close.quotes] == [False, True]
    apart = ranked(offer("m1"), offer("m2", usd_per_hour=0.5), device_index=(1, 0))
    assert [quote.indistinguishable for quote in apart.quotes] == [False, False]


def test_only_the_error_that_a_device_has_of_its_own_is_compared() -> None:
    # 0.1 $ against 1,000 s at 0.42 $/h, 0.117 $: the times may be off by e^0.5, but all by the same factor.
    own = np.full((2, 1), 0.01)
    quotes = rank(
        selection(offer("m1"), offer("m2", usd_per_hour=0.42)),
        fleet=fleet(1, 0, devices=(SLOW, FAST)),
        predictions=predictions(SLOW, FAST, step_s=[[1.0], [0.1]], log_spread=np.full((2, 1), 0.5), own_log_spread=own),
        job=job(),
    ).quotes
    assert [quote.indistinguishable for quote in quotes] == [False, False]
    assert quotes[0].chance_cheapest == pytest.approx(1.0)


def test_an_error_of_the_time_counts_by_the_share_of_the_cost_that_is_time() -> None:
    # $3.60 for (900 + 100) s are $1.00, a tenth of the 100 s is 1 % of it. (900 + 1,000) s at $2.084 an hour are $1.10,
    # a tenth of the 1,000 s is 5.3 %: at least $1.04. For computing alone, a tenth either way would overlap.
    # Within 90 % of start-ups 900 s are 370 to 2,190 s, and the intervals overlap.
    def of(start_up_s: float, second_usd_per_hour: float, *, start_up_ratio: float = 1.0) -> bool:
        quotes = rank(
            selection(offer("m1"), offer("m2", usd_per_hour=second_usd_per_hour)),
            fleet=fleet(1, 0, devices=(SLOW, FAST)),
            predictions=predictions(SLOW, FAST, step_s=[[1.0], [0.1]]),
            job=job(1000),
            billing=billing(start_up_s=start_up_s, start_up_ratio=start_up_ratio),
        ).quotes
        assert quotes[1].job_usd.mid / quotes[0].job_usd.mid == pytest.approx(1.1, rel=1e-3)
        return quotes[1].indistinguishable

    assert not of(900.0, 2.0842)
    assert of(900.0, 2.0842, start_up_ratio=2.0)
    assert of(0.0, 0.396)


@pytest.mark.parametrize("objective", ["cost", "time", "cost-time"])
def test_the_error_of_start_up_counts_in_the_chance_of_being_the_cheapest(objective: Objective) -> None:
    # The first costs $3.60 for (r x 900 + 100) s and the second $2.0842 for (r x 900 + 1,000) s, so the first is
    # cheaper up to r = 1.264. One start-up in ten takes twice the median: Phi(ln(1.264) / (ln(2) / 1.2816)) = 0.667.
    exact = predictions(SLOW, FAST, step_s=[[1.0], [0.1]], log_spread=np.full((2, 1), 0.0))
    quotes = rank(
        selection(offer("m1"), offer("m2", usd_per_hour=2.0842)),
        fleet=fleet(1, 0, devices=(SLOW, FAST)),
        predictions=exact,
        job=replace(job(1000), objective=objective),
        billing=billing(start_up_s=900.0),
    ).quotes
    assert quotes[0].chance_cheapest == pytest.approx(0.667, abs=0.04)


def test_on_the_same_device_the_price_decides() -> None:
    ranking = ranked(offer("m1", usd_per_hour=1.00), offer("m2", usd_per_hour=1.01), device_index=(0, 0))
    assert [quote.indistinguishable for quote in ranking.quotes] == [False, False]
    assert [quote.chance_cheapest for quote in ranking.quotes] == [1.0, 0.0]


def test_a_device_errs_alike_on_every_cloud() -> None:
    here, there = (device("t4", kind="gpu", host_to_device_bytes_per_s=rate) for rate in (6e9, 12e9))
    quotes = rank(
        selection(offer("m1", usd_per_hour=1.00), offer("m2", usd_per_hour=1.01)),
        fleet=fleet(0, 1, devices=(here, there)),
        predictions=predictions(here, there, step_s=[[1.0], [1.0]]),
        job=job(),
    ).quotes
    assert [quote.chance_cheapest for quote in quotes] == [1.0, 0.0]


def test_devices_that_cost_the_same_are_the_cheapest_by_even_chances() -> None:
    # 100 s at 3.6 $/h and 1,000 s at 0.36 $/h both cost 0.1 $; 1,000 s at 3.6 $/h cost ten times as much.
    ranking = ranked(offer("m1"), offer("m2", usd_per_hour=0.36), offer("m3", usd_per_hour=3.6), device_index=(1, 0, 0))
    assert [quote.chance_cheapest for quote in ranking.quotes] == pytest.approx([0.5, 0.5, 0.0], abs=0.02)


def test_marketplaces_never_win_but_what_they_would_save_is_told() -> None:
    host = offer("h1", usd_per_hour=0.9, tier="marketplace")
    ranking = ranked(CHEAP, host, device_index=(0, 0))
    assert instances(ranking) == ["m2"]
    assert codes(ranking) == {host.id: "marketplace"}
    (note,) = ranking.notes
    assert_says(note, "75 %", "acme h1")  # 0.9 against 3.6 $/h


def test_marketplaces_that_save_nothing_are_not_praised() -> None:
    assert ranked(CHEAP, offer("h1", usd_per_hour=9.0, tier="marketplace"), device_index=(0, 0)).notes == ()


def test_nothing_on_offer_is_an_empty_ranking() -> None:
    assert ranked(device_index=()).quotes == ()


@given(st.permutations(range(5)))
def test_the_order_of_the_offers_does_not_matter(order: list[int]) -> None:
    offers = [
        DEAR, CHEAP, offer("m3", usd_per_hour=3.6), offer("m3", usd_per_hour=3.6, region="eu-1"),
        offer("h1", tier="marketplace"),
    ]  # fmt: skip
    on = [1, 0, 0, 0, 1]
    # The fleet follows the selection, which puts what is set apart last.
    shuffled = sorted(order, key=lambda index: offers[index].tier == "marketplace")
    ranking = ranked(*(offers[index] for index in order), device_index=tuple(on[index] for index in shuffled))
    straight = ranked(*offers, device_index=tuple(on))
    assert ranking.quotes == straight.quotes
    assert set(ranking.rejected) == set(straight.rejected)


@given(st.floats(0.01, 100), st.floats(1.001, 10))
def test_cost_grows_with_the_price(usd_per_hour: float, more: float) -> None:
    ranking = ranked(
        offer("m1", usd_per_hour=usd_per_hour), offer("m2", usd_per_hour=usd_per_hour * more), device_index=(0, 0)
    )
    first, second = (quote.job_usd.mid for quote in ranking.quotes)
    assert second == pytest.approx(first * more)
    assert instances(ranking) == ["m1", "m2"]


def test_of_two_that_cost_the_same_the_faster_is_first() -> None:
    # 36 $/h for 100 s and 3.6 $/h for 1,000 s both cost 1 $; by their names "a" would be first.
    slow, fast = offer("a", usd_per_hour=3.6), offer("b", usd_per_hour=36.0)

    assert instances(ranked(slow, fast, device_index=(0, 1))) == ["b", "a"]


def test_the_fastest_service_keeps_the_budget_and_the_quota() -> None:
    # 5 requests a second of 0.1 s each: five instances at $2,628 a month have the lowest latency (see test_service.py).
    def count(*, quota: float = np.inf, **limits: float) -> float:
        (quote,) = rank(
            selection(replace(CHEAP, quota_instances=quota)),
            fleet=fleet(0, devices=(FAST,)),
            predictions=predictions(FAST, step_s=[[0.1]]),
            job=job(requests_per_day=5 * 86400, objective="time", limits=JobLimits(**limits)),
        ).quotes
        return quote.instance_count

    assert count() == 5
    assert count(max_usd=10_000.0) == 3
    assert count(max_usd_per_hour=7.2) == 2
    assert count(quota=4) == 4


@pytest.mark.parametrize("objective", ["time", "cost-time"])
@pytest.mark.parametrize(("measured_s", "leader"), [(0.105, "m2"), (0.115, "m1")])
def test_a_service_by_time_is_led_by_an_unmeasured_device_only_if_it_is_surely_faster(
    objective: Objective, measured_s: float, leader: str
) -> None:
    # The unmeasured step takes 0.1 s, at most 0.11 s; at one request a day each latency is that of the step.
    quotes = rank(
        selection(offer("m1"), offer("m2")),
        fleet=fleet(1, 0, devices=(SLOW, FAST)),
        predictions=predictions(
            SLOW,
            FAST,
            step_s=[[measured_s], [0.1]],
            time_sources=np.array([["fitted"], ["datasheet"]], dtype=np.object_),
        ),
        job=job(requests_per_day=1, objective=objective),
    ).quotes
    assert [quote.instance for quote in quotes] == ["m1", "m2"]
    assert next(quote.instance for quote in quotes if quote.may_lead) == leader


@pytest.mark.parametrize("limits", [{}, {"deadline_s": 500.0}, {"max_latency_s": 0.5}])
@pytest.mark.parametrize(("measured_usd_per_hour", "leads"), [(5.7, False), (5.9, True)])
def test_an_unmeasured_device_does_not_lead_because_limits_leave_out_the_measured_ones(
    limits: dict[str, float], measured_usd_per_hour: float, leads: bool
) -> None:
    # 1,000 samples take the unmeasured device 100 s: $0.20, at most $0.22. The measured one takes 1,000 s, which costs
    # $1.583 or $1.639; an hour's trial costs $1.50 or $1.30 less there: $1.72 or $1.52 in all.
    quotes = rank(
        selection(offer("m1", usd_per_hour=7.2), offer("m2", usd_per_hour=measured_usd_per_hour)),
        fleet=fleet(1, 0, devices=(SLOW, FAST)),
        predictions=predictions(
            SLOW,
            FAST,
            step_s=[[1.0], [0.1]],
            time_sources=np.array([["fitted"], ["datasheet"]], dtype=np.object_),
        ),
        job=job(limits=JobLimits(**limits)),
    ).quotes
    assert [quote.instance for quote in quotes] == (["m1"] if limits else ["m1", "m2"])
    assert quotes[0].may_lead == leads
