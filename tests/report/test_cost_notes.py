"""The sentences on a cost: its parts, the parts it leaves out, and the terms of the price."""

from dataclasses import replace
from typing import Any

from advisor.records.answer import Job, Quote
from advisor.report import sentence
from advisor.report.quote_columns import columns_for, table_rows
from advisor.report.quote_notes import cost_notes, covered_cost
from tests.report.toys import A10G, GENOA, L4, T4, recommendation

JOB = replace(recommendation(L4).job, assumed=False)
FULL = replace(
    L4,
    price_date="2026-07-20",
    start_up_s=31.5,
    start_up_measured=True,
    covers=("compute", "start-up"),
    not_covered=("storage", "egress", "tax", "quota", "availability"),
)


def notes(quote: Quote, job: Job = JOB) -> list[str]:
    return list(cost_notes(quote, job))


def test_a_figure_says_for_what_how_it_is_paid_what_it_holds_and_of_when_it_is() -> None:
    assert covered_cost(FULL, replace(JOB, epochs=90), rate=None) == (
        "$0.42 for 90 epochs, on-demand; includes compute and start-up; prices of 2026-07-20; "
        "not included: storage, egress, tax, quota, availability."
    )


def test_what_holds_everything_leaves_nothing_out() -> None:
    whole = replace(FULL, covers=("compute", "start-up", "billing-increments"), not_covered=())

    assert covered_cost(whole, JOB, rate=None).endswith(
        "; includes compute, start-up and billing increments; prices of 2026-07-20."
    )


def test_the_size_is_the_one_that_was_given() -> None:
    def size(**changes: Any) -> str:
        return covered_cost(FULL, replace(JOB, **changes), rate=None).split(", ")[0]

    assert size(samples=5000) == "$0.42 for 5,000 samples"
    assert size(steps=1) == "$0.42 for 1 step"
    assert size(tokens=100) == "$0.42 for 100 tokens"
    assert size(requests_per_day=24) == "$0.42 for one month at 24 requests per day"


def test_start_up_says_what_it_was_measured_on() -> None:
    assert notes(FULL) == [
        "start-up: 31.5 s from the create call to the boot script, measured on aws, mostly on instances without a GPU; "
        "with a GPU it may take longer; installing packages and fetching data take extra time."
    ]
    (elsewhere,) = notes(replace(FULL, device=GENOA.device, start_up_measured=False))
    assert ", the median of the measured clouds, mostly on instances without a GPU; installing" in elsewhere


def test_spot_says_how_often_it_is_taken_back_and_what_is_then_lost() -> None:
    spot = replace(L4, price_kind="spot", interruption="5-10 %", lost_s=600.0)

    assert notes(spot) == [
        "spot: 5-10 % of such instances were reclaimed within a month; "
        "without --checkpoint-every, a reclaim loses all work; expected loss: 10 min."
    ]
    (often,) = notes(spot, replace(JOB, checkpoint_every_s=1800.0))
    assert often.endswith("; with a checkpoint every 30 min; expected loss: 10 min.")
    (unknown,) = notes(replace(spot, interruption=None))
    assert unknown.endswith("how often is not known, so no loss is counted.")
    (assumed,) = notes(spot, replace(JOB, assumed=True))
    assert assumed == "spot: 5-10 % of such instances were reclaimed within a month; no loss is counted."


def test_a_wait_for_the_machine_is_said_to_be_in_the_time() -> None:
    assert notes(replace(L4, wait_s=5400.0)) == [
        "availability: the time includes 1.5 h of waiting for the machine, as set in your overlay."
    ]


def test_a_commitment_says_what_it_obliges_to() -> None:
    assert notes(replace(L4, price_kind="commit_3y", commitment_usd=26280.0)) == [
        "the price requires a commitment of three years: $26,280 in total, used or not; "
        "the cost counts only the hours of this job."
    ]


def test_a_service_is_told_by_the_month_with_its_instances() -> None:
    quote = replace(L4, instance_count=3, idle_ratio=0.25, covers=("compute", "idle-time"))
    answer = recommendation(quote, GENOA)
    answer = replace(answer, job=replace(JOB, requests_per_day=8_640_000))

    assert sentence.headline(answer).startswith(
        "aws 3x g6.xlarge (1x L4) serves 8,640,000 requests per day for $0.42 ($0.38-$0.46) per month, "
        "idle 25 % of the time: a "
    )
    assert "3 instances are enough for an even load; if the load has peaks" in " ".join(sentence.basis(answer))


def test_a_ranking_by_time_compares_times() -> None:
    # 1,800 s beside 3,600 s: twice as fast.
    slow = replace(GENOA, job_s=replace(GENOA.job_s, mid=3600.0))
    answer = recommendation(L4, replace(T4, indistinguishable=True), slow)
    answer = replace(answer, job=replace(JOB, objective="time"))

    assert sentence.headline(answer) == (
        "aws g6.xlarge (1x L4) processes 1,000,000 samples for $0.42 ($0.38-$0.46) in 30 min: a GPU is 2x faster than "
        "the best CPU (aws c7a.xlarge, $2.86 in 1 h); 1 other offer is too close to call: aws g4dn.xlarge."
    )
    (doubt, *_) = sentence.table_notes(table_rows(answer, top=5), quote_count=3)
    assert "the times overlap" in doubt


def test_the_pareto_front_is_marked_where_it_is_asked_for() -> None:
    answer = recommendation(replace(L4, on_pareto_front=True), A10G)
    both = replace(answer, job=replace(JOB, objective="cost-time"))

    assert [columns_for(())[0].cell(row) for row in table_rows(both, top=5)] == ["1*", "2"]
    assert [columns_for(())[0].cell(row) for row in table_rows(answer, top=5)] == ["1", "2"]
    assert sentence.table_notes(table_rows(both, top=5), quote_count=2) == (
        "* on the Pareto front: no other offer is both cheaper and faster.",
    )


def test_the_basis_of_a_job_of_a_given_size_says_what_its_cost_holds() -> None:
    _, figures, covered, start_up, *_ = sentence.basis(replace(recommendation(FULL), job=JOB))

    assert figures.endswith("price $0.84 per hour (list price, 2026-07-20).")
    assert covered.startswith("$0.42 for 1,000,000 samples, on-demand; includes compute and start-up")
    assert start_up.startswith("start-up: 31.5 s")
