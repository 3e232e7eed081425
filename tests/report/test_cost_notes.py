"""The sentences on a cost: its parts, the parts it leaves out, and the terms of the price."""

from dataclasses import replace
from typing import Any

from advisor.records.answer import CostParts, Job, Quote
from advisor.records.price import ExchangeRate, TorchWheel
from advisor.report import sentence
from advisor.report.quote_columns import columns_for, table_rows
from advisor.report.quote_notes import cost_notes, covered_cost, price_terms, steps_note
from tests.report.toys import A10G, GENOA, L4, T4, recommendation
from tests.says import assert_says

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
    return [*price_terms(quote, job, rate=None), *cost_notes(quote, job)]


def test_a_figure_says_for_what_how_it_is_paid_what_it_holds_and_of_when_it_is() -> None:
    said = covered_cost(FULL, replace(JOB, epochs=90), rate=None)
    assert_says(said, "$0.42", "90 epochs", "on-demand", "compute", "start-up", "2026-07-20")
    each = replace(FULL, job_parts_usd=CostParts(compute=0.30, start_up=0.12))
    assert_says(covered_cost(each, JOB, rate=None), "compute $0.30", "start-up $0.12")
    assert_says(said, "not", "storage", "egress", "tax", "quota", "availability")


def test_what_holds_everything_leaves_nothing_out() -> None:
    whole = replace(FULL, covers=("compute", "start-up", "billing-increments"), not_covered=())

    said = covered_cost(whole, JOB, rate=None)
    assert_says(said, "compute", "start-up", "billing increments", "2026-07-20")
    assert " not " not in said


def test_the_size_is_the_one_that_was_given() -> None:
    def size(**changes: Any) -> str:
        return covered_cost(FULL, replace(JOB, **changes), rate=None).split(", ")[0]

    assert_says(size(samples=5000), "$0.42", "5,000 samples")
    assert_says(size(steps=1, samples=FULL.batch), "$0.42", "1 step")
    assert_says(size(tokens=100), "$0.42", "100 tokens")
    assert_says(size(requests_per_day=24), "$0.42", "month", "24 requests per day")


def test_steps_of_another_batch_are_said_in_samples() -> None:
    # 100 steps at batch 4 are 400 samples, on a quote of batch 8.
    job = replace(JOB, steps=100, samples=400, batch="auto")
    said = covered_cost(replace(FULL, batch=8), job, rate=None)
    assert "$0.42 for 400 samples (100 steps at batch 4)" in said
    assert_says(steps_note(job), "400 samples", "100 steps at batch 4")
    assert steps_note(replace(job, batch="4")) == ""
    assert_says(steps_note(replace(job, batch="4,8")), "400 samples")
    assert steps_note(replace(JOB, steps=None)) == ""


def test_start_up_says_what_it_was_measured_on() -> None:
    (here,) = notes(FULL)
    assert_says(here, "start-up", "31.5 s", "aws", "GPU")
    assert "weights" not in here
    whole = replace(FULL, start_up_s=300.0, software_s=240.0, weights_s=20.0)
    (parts,) = notes(whole, replace(JOB, weight_bytes=2 * 2**30))
    assert_says(parts, "5 min", "40 s", "4 min", "20 s", "2 GiB", "weights")
    assert "median" not in here
    (elsewhere,) = notes(replace(FULL, device=GENOA.device, start_up_measured=False))
    assert_says(elsewhere, "31.5 s", "median", "GPU")
    assert "aws" not in elsewhere


def test_spot_says_how_often_it_is_taken_back_and_what_is_then_lost() -> None:
    spot = replace(L4, price_kind="spot", interruption="5-10 %", lost_s=600.0)

    (all_lost,) = notes(spot)
    assert_says(all_lost, "5-10 %", "month", "--checkpoint-every", "loss", "10 min")
    (often,) = notes(spot, replace(JOB, checkpoint_every_s=1800.0))
    assert_says(often, "5-10 %", "checkpoint", "30 min", "loss", "10 min")
    assert "--checkpoint-every" not in often
    (unknown,) = notes(replace(spot, interruption=None))
    assert_says(unknown, "spot", "not known", "no loss")
    assert "%" not in unknown
    (unpublished,) = notes(replace(spot, interruption="10-15 %", interruption_is_assumed=True))
    assert_says(unpublished, "aws", "assumed", "10-15 %", "loss", "10 min")
    (assumed,) = notes(spot, replace(JOB, assumed=True))
    assert_says(assumed, "5-10 %", "month", "no loss")
    assert "min" not in assumed


def test_a_wait_for_the_machine_is_said_to_be_in_the_time() -> None:
    (waiting,) = notes(replace(L4, wait_s=5400.0))
    assert_says(waiting, "1.5 h")


def test_a_commitment_says_what_it_obliges_to() -> None:
    (commitment,) = notes(replace(L4, price_kind="commit_3y", commitment_usd=26280.0))
    assert_says(commitment, "three years", "$26,280")
    euro = ExchangeRate(currency="EUR", usd=1.25, date="2026-11-01")
    assert_says(*price_terms(replace(L4, price_kind="commit_3y", commitment_usd=26280.0), JOB, rate=euro), "EUR 21,024")


def test_a_service_is_told_by_the_month_with_its_instances() -> None:
    quote = replace(
        L4, instance_count=3, idle_ratio=0.45, p50_s=0.12, p99_s=0.3, start_up_s=40.0, covers=("compute", "idle-time")
    )
    answer = recommendation(quote, GENOA)
    answer = replace(answer, job=replace(JOB, requests_per_day=8_640_000))

    assert_says(
        sentence.headline(answer),
        *(
            "aws 3x g6.xlarge",
            "1x L4",
            "8,640,000 requests per day",
            "$0.42",
            "$0.38-$0.46",
            "month",
            "120 ms",
            "300 ms",
            "55 %",
            "a GPU",
        ),
    )
    assert_says(" ".join(sentence.basis(answer)), "3 instances", "70 %", "peaks", "dynamic batching", "64", "40 s")
    alone = replace(answer, best=replace(quote, batch=1, instance_count=1))
    assert "dynamic batching" not in " ".join(sentence.basis(alone))


def test_a_ranking_by_time_compares_times() -> None:
    # 1,800 s beside 3,600 s: twice as fast.
    slow = replace(GENOA, job_s=replace(GENOA.job_s, mid=3600.0))
    answer = recommendation(L4, replace(T4, indistinguishable=True), slow)
    answer = replace(answer, job=replace(JOB, objective="time"))

    said = sentence.headline(answer)
    assert_says(said, "aws g6.xlarge", "1x L4", "1,000,000 samples", "$0.42", "$0.38-$0.46", "30 min")
    assert_says(said, "GPU", "2x faster", "CPU", "aws c7a.xlarge", "$2.86", "1 h", "1 other", "aws g4dn.xlarge")
    assert "cheaper" not in said
    (doubt, *_) = sentence.table_details(table_rows(answer, top=5))
    assert_says(doubt, "~", "times")


def test_the_pareto_front_is_marked_where_it_is_asked_for() -> None:
    answer = recommendation(replace(L4, on_pareto_front=True), A10G)
    both = replace(answer, job=replace(JOB, objective="cost-time"))

    assert [columns_for(())[0].cell(row) for row in table_rows(both, top=5)] == ["1*", "2"]
    assert [columns_for(())[0].cell(row) for row in table_rows(answer, top=5)] == ["1", "2"]
    (starred,) = sentence.table_notes(table_rows(both, top=5), quote_count=2)
    assert starred.startswith("* ")


def test_the_basis_of_a_job_of_a_given_size_says_what_its_cost_holds() -> None:
    _, figures, covered, start_up, *_ = sentence.basis(replace(recommendation(FULL), job=JOB))

    assert_says(figures, "$0.84", "list", "2026-07-20")
    assert "compute" not in figures
    assert_says(covered, "$0.42", "1,000,000 samples", "on-demand", "compute", "start-up")
    assert_says(start_up, "start-up", "31.5 s")


def test_gpus_that_need_another_wheel_of_pytorch_are_named_below_the_table() -> None:
    old, older = TorchWheel(torch="2.14", cuda="12.6"), TorchWheel(torch="2.7", cuda="11.8")
    answer = recommendation(replace(L4, wheel=old), replace(T4, wheel=old), replace(A10G, wheel=older), GENOA)
    first, second = sentence.table_details(table_rows(answer, top=5))[-2:]
    assert_says(first, "L4, T4", "2.14", "12.6", "https://download.pytorch.org/whl/cu126")
    assert_says(second, "A10G", "2.7", "https://download.pytorch.org/whl/cu118")
