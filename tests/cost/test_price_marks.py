from dataclasses import replace
from datetime import date

from advisor.cost.price_marks import mark_warnings, price_marks
from tests.cost.toys import price
from tests.report.toys import L4, T4

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
    assert mark_warnings([L4, T4], max_age_days=180) == ()
    (warning,) = mark_warnings([L4, replace(T4, price_marks=("OLD",))], max_age_days=180)
    assert warning.startswith("1 of the 2 ranked prices are marked OLD (OLD: more than 180 days")
    (warning,) = mark_warnings([replace(L4, price_marks=("OLD", "STALE"))], max_age_days=180)
    assert "marked OLD, STALE, including the best one (2025-11-02)" in warning
