"""Time and cost over the machines, as plots."""

from dataclasses import replace

from advisor.records.price import ExchangeRate
from advisor.report.sweeps import machines_section
from tests.report.report_toys import chart
from tests.report.test_machines import SWEEP, answer, point, swept


def test_time_and_cost_are_drawn_over_the_machines_with_the_same_table() -> None:
    section = machines_section(answer(SWEEP, deadline_s=6 * 3600))
    assert "--deadline 6 h requires 2 or more." in section.lead[1]
    time, cost = map(chart, section.plots)
    assert [(one.x, one.y) for one in time.series[0].points] == [(1, 36000.0), (2, 21600.0), (4, 14400.0)]
    # $10 an hour each: 10, 2 x 6 and 4 x 4 hours, 10 % either way.
    assert [(one.y_low, one.y, one.y_high) for one in cost.series[0].points] == [
        (90.0, 100.0, 110.00000000000001), (108.0, 120.0, 132.0), (144.0, 160.0, 176.0),
    ]  # fmt: skip
    assert [rule.x for rule in time.rules] == [2]
    assert time.table == cost.table
    assert time.table.rows[1] == ("2", "16", "6 h", "$120.00", "90 %", "25 %", "FSDP")
    assert time.series[0].points[0].text.splitlines()[0] == "machines: 1"


def test_costs_are_in_the_currency_of_the_answer() -> None:
    rate = ExchangeRate(currency="EUR", usd=1.25, date="2026-01-01")
    _, cost = map(chart, machines_section(replace(answer(SWEEP), exchange_rate=rate)).plots)
    assert cost.series[0].points[0].y == 80.0


def test_one_number_of_machines_is_no_curve() -> None:
    assert machines_section(answer(None)).plots == ()
    assert machines_section(answer(swept(point(2, 6.0)))).plots == ()
