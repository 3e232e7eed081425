"""The content of a report's page."""

from dataclasses import replace

from advisor.records.price import ExchangeRate
from advisor.report.document import document_of
from tests.report.report_toys import report
from tests.report.test_tokens import answer as served_answer
from tests.report.toys import GENOA, HERE, L4, T4, recommendation
from tests.says import assert_says


def test_the_sections_stand_in_the_order_of_the_questions() -> None:
    assert [section.id for section in document_of(report()).sections] == [
        "cost-time", "ranking", "why", "modules", "roofline", "memory", "batches", "break-even", "basis", "prices",
        "left-out", "accuracy",
    ]  # fmt: skip


def test_a_section_with_nothing_to_show_is_left_out() -> None:
    empty = report(recommendation(), details=(), price_sources=(), break_even=None)
    document = document_of(empty)
    assert [section.id for section in document.sections] == ["basis", "accuracy"]
    assert document.figures == ()
    assert_says(document.answer, "0 offers")


def test_the_headline_is_one_line_and_the_rest_stands_below_it() -> None:
    document = document_of(report(recommendation(L4, T4, GENOA)))
    assert_says(document.headline, "aws g6.xlarge", "$0.42", "million samples", "556 samples/s")
    assert len(document.headline) <= 80
    assert_says(document.answer, "$0.42", "$0.38-$0.46", "c7a.xlarge")


def test_the_headline_says_do_not_rent_where_the_local_machine_is_enough() -> None:
    answer = recommendation(L4, at_hand=HERE)
    sized = replace(answer, job=replace(answer.job, assumed=False))
    assert_says(document_of(report(sized)).headline, "Do not rent", "this machine's cpu", "$0", "30 min")
    assert_says(document_of(report(answer)).headline, "aws g6.xlarge", "556 samples/s")


def test_the_figures_are_those_of_the_best() -> None:
    instance, cost, time, price = document_of(report()).figures
    assert (instance.value, instance.note) == ("aws g6.xlarge", "1x L4, us-east-1")
    assert (cost.value, cost.note) == ("$0.42", "90 % interval $0.38 to $0.46")  # 0.9 and 1.1 times 0.42
    assert (time.value, time.note) == ("556", "step 115 ms [104-128], batch 64, amp-bf16")
    assert (price.value, price.note) == ("$0.84 per hour", "list price of 2025-11-02")


def test_of_a_language_model_in_service_the_times_are_of_tokens() -> None:
    loaded = served_answer()
    by_name = {one.name: one for one in document_of(report(loaded)).figures}
    assert "time" not in by_name
    assert "step" not in by_name
    each = by_name["time per output token"]
    assert (each.value, each.note) == ("25 ms", "first token after 120 ms [100-150]")
    job = replace(loaded.job, requests_per_day=None, requests_per_second=None)
    by_name = {one.name: one for one in document_of(report(replace(loaded, job=job))).figures}
    assert by_name["time"].note == "32 requests in flight, bf16"
    assert "time per output token" in by_name


def test_amounts_have_the_currency_of_the_answer() -> None:
    euro = ExchangeRate(currency="EUR", usd=1.25, date="2026-01-01")
    assert document_of(report(replace(recommendation(L4), exchange_rate=euro))).money == "EUR "
    assert document_of(report(recommendation(L4))).money == "$"
