"""The limits that an offer must keep to be ranked, and by how much it misses them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.cost.rank_offers import Ranking
from advisor.records.answer import JobLimits
from advisor.records.prediction import Scaling
from advisor.records.scale import Plan
from tests.cost.toys import billing, device, fleet, job, offer, predictions, price, rank, said, selection
from tests.says import assert_says

SLOW, FAST = device("slow"), device("fast", kind="gpu")


def ranked(*, samples: int = 1000, bill: Any = None, size: dict[str, Any] | None = None, **limits: float) -> Ranking:
    """1,000 samples: 1,000 s and $1.00 on the slow one at $3.60 an hour, 100 s and $0.20 on the fast one at $7.20."""
    return rank(
        selection(offer("slow", usd_per_hour=3.6), offer("fast", usd_per_hour=7.2)),
        fleet=fleet(0, 1, devices=(SLOW, FAST)),
        predictions=predictions(SLOW, FAST, step_s=[[1.0], [0.1]]),
        job=job(samples, limits=JobLimits(**limits), **(size or {})),
        billing=bill,
    )


def outcome(ranking: Ranking) -> tuple[list[str], list[tuple[str, str, str]]]:
    return [quote.instance for quote in ranking.quotes], said(ranking.rejected)


def test_a_deadline_leaves_out_what_takes_longer_and_says_by_how_much() -> None:
    names, [(name, code, reason)] = outcome(ranked(deadline_s=400.0))
    assert (names, name, code) == (["fast"], "slow", "over-deadline")
    assert_says(reason, "16.7 min", "10 min", "--deadline 6.67 min")


def test_start_up_counts_towards_the_deadline() -> None:
    # 100 s and 50 s of start-up are 150 s.
    assert outcome(ranked(deadline_s=149.0, bill=billing(start_up_s=50)))[0] == []
    assert outcome(ranked(deadline_s=150.0, bill=billing(start_up_s=50)))[0] == ["fast"]


def test_a_spot_job_that_is_interrupted_too_often_to_end_is_left_out() -> None:
    def spot(samples: float, *, checkpoint_every_s: float | None = None) -> tuple[list[str], list[str]]:
        spots = (price(3.6, kind="spot"),)
        ranking = rank(
            selection(offer("slow", prices=spots, interruption=">20 %"), price_kind="spot"),
            fleet=fleet(0, devices=(SLOW,)),
            predictions=predictions(SLOW, step_s=[[1.0]]),
            job=job(int(samples), price="spot", checkpoint_every_s=checkpoint_every_s),
            billing=billing(),
        )
        names, rejected = outcome(ranking)
        return names, [code for _, code, _ in rejected]

    # A rate of -ln(0.8) / 2,628,000 s, 8.49e-8 a second: 5.1 interruptions in 6e7 s of work and 6.8 in 8e7 s.
    assert spot(6e7) == (["slow"], [])
    assert spot(8e7) == ([], ["never-done"])
    assert spot(8e7, checkpoint_every_s=1e6) == (["slow"], [])


def test_a_budget_for_the_job() -> None:
    assert outcome(ranked(max_usd=0.25)) == (
        ["fast"],
        [("slow", "over-max-usd", "costs $1.00, $0.75 more than --max-usd $0.25")],
    )


def test_a_plan_over_several_machines_that_breaks_a_limit_of_an_hour_says_how_many_it_takes() -> None:
    together = Scaling(
        plans=(Plan(machines=2),), plan=np.zeros((1, 1), dtype=np.intp), efficiency_ratio=np.ones((1, 1))
    )
    ranking = rank(
        selection(offer("slow", usd_per_hour=3.6)),
        fleet=fleet(0, devices=(SLOW,)),
        predictions=replace(predictions(SLOW, step_s=[[1.0]]), scaling=together),
        job=job(1000, limits=JobLimits(max_usd_per_hour=5.0)),
    )
    [(_, _, reason)] = said(ranking.rejected)
    assert_says(reason, "$7.20", "--max-hourly $5.00, since its plan takes 2 machines", "--max-machines 1")


def test_a_budget_for_an_hour() -> None:
    assert outcome(ranked(max_usd_per_hour=5.0)) == (
        ["slow"],
        [("fast", "over-max-hourly", "costs per hour $7.20, $2.20 more than --max-hourly $5.00")],
    )


def test_a_free_machine_that_cannot_serve_the_load_has_no_hourly_cost() -> None:
    # Warnings are errors: 0 dollars times infinitely many instances is not a number.
    ranking = rank(
        selection(offer("free", usd_per_hour=0.0), offer("fast", usd_per_hour=3.6)),
        fleet=fleet(0, 1, devices=(SLOW, FAST)),
        predictions=predictions(SLOW, FAST, step_s=[[1.0], [0.1]]),
        job=job(requests_per_day=86_400, limits=JobLimits(p99_s=0.5, max_usd_per_hour=10.0)),
    )
    assert [quote.instance for quote in ranking.quotes] == ["fast"]


@pytest.mark.parametrize(
    ("quota", "reason"),
    [
        (2, "needs 4 instances, but your quota allows 2"),
        (0, "needs 4 instances, but your quota allows 0"),
    ],
)
def test_a_quota_that_the_service_exceeds(quota: int, reason: str) -> None:
    # 216,000 requests a day are 2.5 a second: at 1 s each and 70 % utilization 3.57 instances, so 4.
    ranking = rank(
        selection(offer("slow", quota_instances=quota), offer("free")),
        fleet=fleet(0, 0, devices=(SLOW,)),
        predictions=predictions(SLOW, step_s=[[1.0]]),
        job=job(requests_per_day=216_000),
    )
    assert outcome(ranking) == (["free"], [("slow", "over-quota", reason)])


def test_a_quota_of_none_leaves_out_every_job_and_one_of_one_a_job_of_one_instance_in() -> None:
    def quoted(quota: int) -> int:
        none = offer("slow", quota_instances=quota)
        predicted = predictions(SLOW, step_s=[[1.0]])
        return len(rank(selection(none), fleet=fleet(0, devices=(SLOW,)), predictions=predicted, job=job()).quotes)

    assert (quoted(0), quoted(1)) == (0, 1)


def test_the_wait_for_a_machine_counts_towards_the_deadline() -> None:
    def quoted(deadline_s: float) -> int:
        ranking = rank(
            selection(offer("slow", wait_s=500.0)),
            fleet=fleet(0, devices=(SLOW,)),
            predictions=predictions(SLOW, step_s=[[1.0]]),
            job=job(1000, limits=JobLimits(deadline_s=deadline_s)),
        )
        return len(ranking.quotes)

    # 1,000 s of computing and 500 s of waiting.
    assert (quoted(1499.0), quoted(1500.0)) == (0, 1)


def test_every_limit_that_is_broken_is_named() -> None:
    (_, [_, (_, code, reason)]) = outcome(ranked(deadline_s=50.0, max_usd=0.25))

    assert code == "over-deadline"
    assert_says(reason, "16.7 min", "15.8 min", "--deadline 50 s", "$1.00", "$0.75", "--max-usd $0.25")


def test_what_misses_a_limit_by_least_comes_first() -> None:
    (_, missed) = outcome(ranked(deadline_s=50.0))
    (fast, _, least), (slow, _, most) = missed
    assert (fast, slow) == ("fast", "slow")
    assert_says(least, "1.67 min", "50 s", "--deadline 50 s")
    assert_says(most, "16.7 min", "15.8 min", "--deadline 50 s")


def test_a_step_that_takes_too_long_at_every_batch() -> None:
    names, [(name, code, reason)] = outcome(ranked(max_latency_s=0.5))
    assert (names, name, code) == (["fast"], "slow", "over-latency")
    assert_says(reason, "1 s", "batch 1", "500 ms", "--max-latency 500 ms")


def test_a_throughput_that_is_not_reached() -> None:
    assert outcome(ranked(min_samples_per_s=4.0)) == (
        ["fast"],
        [("slow", "under-throughput", "reaches at most 1 samples/s, 3 fewer than --min-throughput 4")],
    )


def test_the_batch_keeps_the_latency_and_then_is_the_best() -> None:
    # 8 in 0.4 s are 20 a second, 4 in 0.25 s are 16, 1 in 0.1 s is 10: within 0.3 s the best is 4.
    ranking = rank(
        selection(offer()),
        fleet=fleet(0, devices=(FAST,)),
        predictions=predictions(FAST, step_s=[[0.1, 0.25, 0.4]], batches=(1, 4, 8)),
        job=job(1000, limits=JobLimits(max_latency_s=0.3)),
    )

    assert ranking.quotes[0].batch == 4


def test_latency_and_throughput_must_be_kept_at_the_same_batch() -> None:
    ranking = rank(
        selection(offer()),
        fleet=fleet(0, devices=(FAST,)),
        predictions=predictions(FAST, step_s=[[0.1, 0.4]], batches=(1, 8)),
        job=job(1000, limits=JobLimits(max_latency_s=0.3, min_samples_per_s=15.0)),
    )

    names, [(name, code, reason)] = outcome(ranking)
    assert (names, name, code) == ([], "m1", "under-throughput")
    assert_says(reason, "10 samples/s", "--max-latency", "5", "--min-throughput 15")


def test_more_instances_keep_the_99th_percentile_until_a_step_alone_breaks_it() -> None:
    # Steps of 0.1 s, 30 a second: 5 instances at 60 % utilization. All are busy for 0.6^(sqrt(12) - 2) = 47 % of the
    # requests; by Erlang's formula for M/D/1, 1 % / 47 % = 2.1 % wait longer than 3.740 steps. A fifth of that, and
    # the step, are 0.1748 s.
    def of(p99_s: float) -> Ranking:
        return ranked(size={"requests_per_day": 30 * 86400}, p99_s=p99_s)

    loose, tight = of(0.5).quotes[0], of(0.12).quotes[0]
    assert (loose.instance_count, loose.p99_s) == (5, pytest.approx(0.1748, rel=0.001))
    assert 5 < tight.instance_count <= 10
    assert tight.p99_s is not None
    assert tight.p99_s <= 0.12
    names, [(name, code, reason), *_] = outcome(of(0.09))
    assert (names, name, code) == ([], "fast", "over-p99")
    assert_says(reason, "100 ms", "batch 1", "10 ms", "--p99 90 ms")


def test_a_service_takes_the_quickest_of_the_batches_that_need_the_fewest_instances() -> None:
    # 10 a second: at 70 % batch 1 does 7, so 2 instances; 4 does 11.2 and 8 does 14, so 1, and of these 4 is quicker:
    # a request waits for about two steps of 0.25 s or one of 0.4 s before its own.
    ranking = rank(
        selection(offer()),
        fleet=fleet(0, devices=(FAST,)),
        predictions=predictions(FAST, step_s=[[0.1, 0.25, 0.4]], batches=(1, 4, 8)),
        job=job(requests_per_day=10 * 86400),
    )

    assert (ranking.quotes[0].batch, ranking.quotes[0].instance_count) == (4, 1)


def test_the_hour_of_a_service_is_that_of_all_its_instances() -> None:
    # 30 a second of 7 each at 70 %: 5 of the fast one at $7.20 are $36.00 an hour.
    ranking = ranked(size={"requests_per_day": 30 * 86400}, max_usd_per_hour=21.0)

    assert ("fast", "over-max-hourly", "costs per hour $36.00, $15.00 more than --max-hourly $21.00") in outcome(
        ranking
    )[1]


def test_what_is_set_apart_is_praised_only_within_the_limits() -> None:
    def notes(**limits: float) -> tuple[str, ...]:
        offers = selection(offer("m1"), offer("h1", usd_per_hour=0.9, tier="marketplace"))
        return rank(
            offers,
            fleet=fleet(1, 0, devices=(SLOW, FAST)),
            predictions=predictions(SLOW, FAST, step_s=[[1.0], [0.9]]),
            job=job(limits=JobLimits(**limits)),
        ).notes

    assert notes() != ()
    assert notes(deadline_s=950.0) == ()


@pytest.mark.parametrize(
    ("objective", "order"), [("cost", ["cheap", "middle", "soon"]), ("time", ["soon", "middle", "cheap"])]
)
def test_the_objective_orders_the_ranking(objective: str, order: list[str]) -> None:
    assert [quote.instance for quote in three(objective)] == order


def test_cost_x_time_puts_the_balanced_one_first_and_the_front_is_marked() -> None:
    # $0.10 x 1,000 s = 100; $0.20 x 100 s = 20; $3.00 x 50 s = 150; worse in both than "middle": $0.30 x 200 s = 60.
    quotes = three("cost-time", with_worse=True)

    assert [quote.instance for quote in quotes] == ["middle", "worse", "cheap", "soon"]
    assert [quote.on_pareto_front for quote in quotes] == [True, False, True, True]


def test_the_chance_is_of_being_the_cheapest_whatever_the_objective() -> None:
    chances = {
        objective: {one.instance: one.chance_cheapest for one in three(objective)} for objective in ("cost", "time")
    }

    assert chances["cost"] == chances["time"]


def three(objective: str, *, with_worse: bool = False) -> Any:
    # $0.10 in 1,000 s is 0.36 $/h; $0.20 in 100 s is 7.2 $/h; $3.00 in 50 s is 216 $/h; $0.30 in 200 s is 5.4 $/h.
    rows = [("cheap", 0.36, 1.0), ("middle", 7.2, 0.1), ("soon", 216.0, 0.05), ("worse", 5.4, 0.2)]
    rows = rows if with_worse else rows[:3]
    devices = tuple(device(name) for name, _, _ in rows)
    return rank(
        selection(*(offer(name, usd_per_hour=usd) for name, usd, _ in rows)),
        fleet=fleet(*range(len(rows)), devices=devices),
        predictions=predictions(*devices, step_s=[[step_s] for _, _, step_s in rows]),
        job=job(objective=objective),
    ).quotes
