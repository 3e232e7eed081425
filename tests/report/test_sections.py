"""The sections on the assumptions and sources of a recommendation."""

from dataclasses import replace
from pathlib import Path

from advisor.records.generation import Generation
from advisor.report.accuracy import SERVED_ACCURACY, accuracy_section
from advisor.report.prices import prices_section
from advisor.report.recommendation import left_out_section
from tests.report.report_toys import ALL, ON_T4, PRICES
from tests.report.toys import L4, recommendation, rejection
from tests.says import assert_says

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_a_source_of_prices_has_its_dates() -> None:
    same_day = replace(PRICES, oldest="2025-11-02", provider="gcp")
    section = prices_section([PRICES, same_day])
    (table,) = section.tables
    assert_says(section.lead[0], "6", "2025-10-01", "2025-11-02")  # 3 offers of each
    assert section.is_folded
    assert prices_section([]).tables == ()
    assert table.rows == (
        ("aws", "3", "2025-10-01 to 2025-11-02", "list price", "aws's list"),
        ("gcp", "3", "2025-11-02", "list price", "aws's list"),
    )


def test_every_offer_left_out_stands_with_its_reason() -> None:
    answer = recommendation(
        L4,
        rejected=(
            rejection("p5", code="does-not-fit", reason="too small"),
            rejection("p4", code="does-not-fit", reason="smaller still"),
        ),
    )
    section = left_out_section(answer)
    (table,) = section.tables
    assert [row[2:5:2] for row in table.rows] == [("p5", "too small"), ("p4", "smaller still")]
    (line,) = section.lists[0].items
    assert_says(line, "2 does-not-fit", "aws p5", "too small")
    assert section.is_folded
    assert_says(section.lead[0], "2", "2 does-not-fit")
    assert left_out_section(recommendation(L4)).tables == ()


def test_accuracy_says_the_whole_and_then_the_groups() -> None:
    section = accuracy_section([ALL, ON_T4, replace(ON_T4, by="family", name="cnn")])
    lead, _ = section.lead
    assert section.is_folded
    assert_says(lead, "172", "mean", "14 %", "median", "6 %", "91 %", "90 %", "roofline", "41 %")
    (table,) = section.tables
    assert table.rows == (
        ("all", "all", "172", "14 %", "6 %", "-10 %", "91 %", "41 %"),
        ("device", "t4", "5", "8 %", "4 %", "-", "-", "41 %"),
    )


def test_what_was_measured_of_language_models_in_service_is_told_where_it_is_one() -> None:
    served = accuracy_section([ALL], generation=Generation(prompt_tokens=1024, output_tokens=256))
    (listing,) = served.lists
    assert listing.items == SERVED_ACCURACY
    assert accuracy_section([ALL]).lists == ()


def test_the_documents_say_the_same_of_language_models_in_service() -> None:
    text = " ".join((DOCS / "language-models.md").read_text(encoding="utf-8").split())
    assert all(sentence in text for sentence in SERVED_ACCURACY)
