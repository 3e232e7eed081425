"""The user's own prices, terms and hardware in the answer."""

from collections import Counter
from datetime import date
from math import inf
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from advisor.answers import ranking
from advisor.question.from_source import catalog_of, profile_source, question_of
from advisor.records.answer import Recommendation
from advisor.records.options import Options
from advisor.records.workload import Workload
from tests.report.toys import render_text
from tests.says import assert_says

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
OVERLAY = """\
exclude: {provider: [novita]}
exchange_rates: {EUR: {usd: 1.25, date: 2026-11-01}}
owned:
  gpu-box:
    machine: {vcpus: 32, memory_gib: 128, gpu: rtx-4090}
    purchase_usd: 3504
    lifetime_years: 4
    power_w: 500
    electricity_usd_per_kwh: 0.30
    used_percent: 40
    date: 2026-11-01
"""


@pytest.fixture(scope="module")
def workload() -> Workload:
    return profile_source(str(EXAMPLES / "mlp.py"), Options()).workload


@pytest.fixture
def rank(workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(platformdirs, "user_config_path", lambda name: tmp_path / "config")
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "cache")
    monkeypatch.chdir(tmp_path)

    def call(*, overlay: str = "", today: date = date(2026, 9, 6), **options: Any) -> Recommendation:
        (tmp_path / "advisor.yaml").write_text(overlay)
        given = Options(no_local=True, batch="1024", **options)
        return ranking.rank(question_of(workload, given, catalog=catalog_of(given)), today=today)

    return call


@pytest.mark.parametrize("price", ["on-demand", "spot"])
def test_owned_hardware_stands_in_the_ranking_and_says_when_it_pays_back(rank: Any, price: str) -> None:
    answer = rank(overlay=OVERLAY, price=price)
    (box,) = (quote for quote in answer.quotes if quote.tier == "owned")
    # 3,504 / (4 x 8,760 x 0.40) + 0.5 x 0.30 = 0.25 + 0.15
    assert (box.instance, box.price_kind, box.usd_per_hour) == ("gpu-box", "owned", pytest.approx(0.40))
    rented = min((quote for quote in answer.quotes if quote.tier != "owned"), key=lambda quote: not quote.may_lead)
    # The hours of use in which rent for the same work, less the electricity, comes to the purchase.
    rent_usd_per_hour = rented.job_usd.mid / (box.job_s.mid / 3600)
    (note,) = (note for note in answer.notes if "pays back" in note)
    hours = 3504 / (rent_usd_per_hour - 0.15) if rent_usd_per_hour > 0.15 else inf
    if hours <= 4 * 8760 * 0.40:
        assert_says(note, f"{hours:,.0f} hours")
    else:
        assert "never" in note
    assert_says(note, f"{rented.provider} {rented.instance}")


def test_a_machine_that_is_paid_costs_its_electricity_and_is_compared_with_the_best_rented_one(rank: Any) -> None:
    paid = OVERLAY
    for line in ("    purchase_usd: 3504\n", "    lifetime_years: 4\n", "    used_percent: 40\n"):
        paid = paid.replace(line, "")
    answer = rank(overlay=paid)
    (box,) = (quote for quote in answer.quotes if quote.tier == "owned")
    assert box.usd_per_hour == pytest.approx(0.5 * 0.30)
    rented = min((quote for quote in answer.quotes if quote.tier != "owned"), key=lambda quote: not quote.may_lead)
    (note,) = (note for note in answer.notes if "your own" in note)
    assert_says(note, "gpu-box", "electricity", f"{rented.provider} {rented.instance}")
    assert "pays back" not in note


def test_what_the_user_excludes_is_left_out_with_its_reason(rank: Any) -> None:
    answer = rank(overlay=OVERLAY)
    assert not any(quote.provider == "novita" for quote in answer.quotes)
    excluded = [rejection for rejection in answer.rejected if rejection.code == "excluded"]
    assert {rejection.provider for rejection in excluded} == {"novita"}
    assert_says(excluded[0].reason, "advisor.yaml:1: exclude.provider")


def test_text_is_in_the_currency_asked_for_and_figures_are_dollars(rank: Any) -> None:
    dollars, euros = (rank(overlay=OVERLAY, currency=currency) for currency in ("USD", "EUR"))
    assert euros.quotes == dollars.quotes
    assert "$" not in render_text(euros, width=100, color=False).split("Left out")[0]
    (box,) = (quote for quote in euros.quotes if quote.instance == "gpu-box")
    text = render_text(euros, width=160, color=False, top=len(euros.quotes))
    # 0.40 dollars / 1.25 = 0.32 euros
    (line,) = (line for line in text.splitlines() if " gpu-box " in line and "own  " in line)
    assert "EUR 0.32" in line
    assert_says(text, "1.25 dollars per EUR", "2026-11-01")
    assert box.usd_per_hour == pytest.approx(0.40)


def test_old_prices_are_marked_and_can_be_left_out(rank: Any) -> None:
    # profiles/prices: the neoclouds' are of 24 May 2026, 105 days before 6 September.
    fresh, old = rank(max_price_age=105), rank(max_price_age=104)
    marked = [quote for quote in old.quotes if "OLD" in quote.price_marks]
    assert {"2026-05-24"} <= {quote.price_date for quote in marked}
    assert not any(quote.price_date == "2026-05-24" and quote.price_marks for quote in fresh.quotes)
    (warning,) = (one for one in old.warnings if "OLD" in one)
    assert_says(warning, f"{len(marked):,} of {len(old.quotes):,}", "OLD")
    without = rank(max_price_age=104, drop_prices="old")
    assert not any(quote.price_marks for quote in without.quotes)
    assert Counter(rejection.code for rejection in without.rejected)["old-price"] >= len(marked)


def test_flagged_prices_are_left_out_unless_asked_for(rank: Any) -> None:
    usual, every = rank(), rank(drop_prices="none", provider=("azure", "tensordock"), region=("eastus", "global"))
    assert not {"STALE", "SUSPECT"} & {mark for quote in usual.quotes for mark in quote.price_marks}
    assert {"STALE", "SUSPECT"} <= {mark for quote in every.quotes for mark in quote.price_marks}
