"""The ranked table and the plot of cost against time."""

from dataclasses import replace

import pytest

from advisor.records.answer import Recommendation
from advisor.records.price import ExchangeRate
from advisor.report.content import Table
from advisor.report.recommendation import cost_time_section, ranking_section, recommendation_content
from tests.report.toys import GENOA, HERE, L4, T4, quote, recommendation
from tests.says import assert_says

FRONT = replace(L4, on_pareto_front=True)
EURO = ExchangeRate(currency="EUR", usd=1.25, date="2026-01-01")


def test_the_table_has_every_offer_whatever_is_shown_elsewhere() -> None:
    many = [quote(f"i{number}", kind="gpu", device="L4", usd=1.0 + number) for number in range(40)]
    (table,) = ranking_section(recommendation(*many)).tables
    assert len(table.rows) == 40
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_offers_that_may_not_head_the_answer_are_last() -> None:
    old = replace(quote("old", kind="gpu", device="T4", usd=0.1), is_candidate=False, may_lead=False)
    section = ranking_section(recommendation(old, L4, T4))
    (table,) = section.tables
    assert [(row[0], row[2]) for row in table.rows] == [("2", "g6.xlarge"), ("~3", "g4dn.xlarge"), ("1?", "old")]
    assert table.highlighted == 0
    assert "?" in section.lead[0]
    assert "?" not in ranking_section(recommendation(L4)).lead[0]


def test_a_number_is_sorted_by_what_it_stands_for() -> None:
    (table,) = ranking_section(recommendation(L4, GENOA, at_hand=HERE)).tables
    headers = [column.header for column in table.columns]
    cost = table.columns[headers.index("per million")]
    assert cost.keys == (0.42, 2.86, 0.0)
    assert [row[headers.index("per million")] for row in table.rows] == ["$0.42", "$2.86", "$0"]
    assert table.columns[headers.index("#")].keys == (1, 2, None)  # the machine at hand has no place
    assert table.columns[headers.index("instance")].keys == ()


def test_the_front_is_a_line_of_its_own_with_intervals() -> None:
    section = cost_time_section(recommendation(FRONT, T4, GENOA))
    (chart,) = section.plots
    gpu, cpu, front, answer = chart.series
    assert (len(gpu.points), len(cpu.points), len(front.points), len(answer.points)) == (1, 1, 1, 1)
    (best,) = front.points
    assert answer.points == (replace(best, name="aws g6.xlarge"),)
    # Half an hour for $0.42, each 10 % up and down.
    assert (best.x, best.x_low, best.x_high) == (1800.0, 1620.0, 1980.0)
    assert (best.y, best.y_low, best.y_high) == (0.42, 0.9 * 0.42, 1.1 * 0.42)
    assert best.text.splitlines() == [
        "aws g6.xlarge", "1x L4", "$0.42 [0.38-0.46] in 30 min [27-33]", "batch 64, amp-bf16",
    ]  # fmt: skip
    (lead,) = section.lead
    assert_says(lead, "1 of 3 offers")
    assert chart.table.rows == (("1", "aws", "g6.xlarge", "1x L4", "$0.42 [0.38-0.46]", "30 min [27-33]"),)


def test_an_answer_that_is_not_on_the_front_is_in_the_plot_and_its_table() -> None:
    old = replace(
        quote("old", kind="gpu", device="T4", usd=0.1), is_candidate=False, may_lead=False, on_pareto_front=True
    )
    answer = replace(recommendation(old, L4), best=L4)
    (chart,) = cost_time_section(answer).plots
    assert [series.points[0].name for series in chart.series] == ["", "aws g6.xlarge"]
    assert [row[2] for row in chart.table.rows] == ["g6.xlarge", "old"]


def test_amounts_are_in_the_currency_of_the_answer() -> None:
    answer = replace(recommendation(FRONT), exchange_rate=EURO)
    (chart,) = cost_time_section(answer).plots
    assert chart.series[0].points[0].y == 0.42 / 1.25


def test_what_costs_nothing_has_no_place_on_a_logarithmic_axis() -> None:
    (chart,) = cost_time_section(recommendation(FRONT, at_hand=HERE)).plots
    assert [series.name.split(":")[0] for series in chart.series] == ["Pareto front", "the answer"]
    paid = replace(HERE, job_usd=L4.job_usd)
    (chart,) = cost_time_section(recommendation(FRONT, at_hand=paid)).plots
    assert chart.series[-1].name == "the local machine"


def test_a_service_is_never_done_so_its_latency_is_what_counts() -> None:
    # 0.3 s, and as much less and more as the step of 115.2 ms: 104 and 128 ms.
    answer = recommendation(replace(FRONT, p50_s=0.12, p99_s=0.3))
    service = replace(answer, job=replace(answer.job, requests_per_day=1000))
    (chart,) = cost_time_section(service).plots
    assert "99th percentile" in chart.x.label
    (point,) = chart.series[0].points
    assert (point.x, point.x_low, point.x_high) == (
        0.3,
        pytest.approx(0.3 * 104 / 115.2),
        pytest.approx(0.3 * 128 / 115.2),
    )


def test_the_section_says_by_what_the_rows_are_ordered() -> None:
    answer = recommendation(L4, T4)
    for objective, words in (("cost", "Cheapest"), ("time", "Fastest"), ("cost-time", "cost x time")):
        section = ranking_section(replace(answer, job=replace(answer.job, objective=objective)))
        assert words in section.lead[0]
        assert ("Cheapest" in section.lead[0]) == (objective == "cost")


def test_the_row_that_heads_the_answer_is_highlighted_below_those_that_may_not() -> None:
    old = replace(
        quote("old", kind="gpu", device="T4", usd=0.1), is_candidate=False, may_lead=False, price_is_trusted=False
    )
    answer = replace(recommendation(old, L4), best=L4)

    def ranked(answer: Recommendation) -> Table:
        return next(
            one for one in recommendation_content(answer) if isinstance(one, Table) and one.columns[0].header == "#"
        )

    assert ranked(answer).highlighted == 1
    assert not any("smaller machine" in note for note in ranked(answer).notes)
    node = replace(old, price_is_trusted=True)  # measured and trusted, it yields to a smaller machine
    assert any("smaller machine" in note for note in ranked(replace(recommendation(node, L4), best=L4)).notes)
