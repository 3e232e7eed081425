"""Throughput and cost over the batch."""

from dataclasses import replace

import pytest

from advisor.records.generation import Generation
from advisor.records.price import ExchangeRate
from advisor.report.sweeps import batches_section
from tests.report.report_toys import ON_CPU, ON_GPU, batch_point, chart


def test_a_batch_that_does_not_fit_is_in_the_table_alone() -> None:
    throughput, cost = map(chart, batches_section([ON_GPU], rate=None).plots)
    assert [point.x for point in throughput.series[0].points] == [1, 100]
    assert [row[1] for row in throughput.table.rows] == ["1", "100", "200"]
    assert throughput.table.rows[2][5] == "200 GiB, does not fit"
    # 100 samples in 0.2 s are 500 a second, 400 to 625 where a step takes 1.25 or 0.8 times as long.
    at_100 = throughput.series[0].points[1]
    assert (at_100.y, at_100.y_low, at_100.y_high) == pytest.approx((500.0, 400.0, 625.0))
    # 0.2 s at $0.001 a second for 100 samples are $2 per million.
    at_100 = cost.series[0].points[1]
    assert (at_100.y, at_100.y_low, at_100.y_high) == pytest.approx((2.0, 1.6, 2.5))


def test_costs_are_in_the_currency_of_the_answer() -> None:
    rate = ExchangeRate(currency="EUR", usd=1.25, date="2026-01-01")
    _, cost = map(chart, batches_section([ON_GPU], rate=rate).plots)
    assert cost.series[0].points[1].y == pytest.approx(2.0 / 1.25)
    assert cost.table.rows[1][4] == "EUR 1.60 per million"


def test_of_a_language_model_in_service_curves_are_of_tokens() -> None:
    # 100 requests in 0.2 s are 500 a second, of 10 tokens each; $2 per million requests are $0.02 of 100 tokens each.
    point = replace(batch_point(100), ttft_s=0.05, tpot_s=0.02)
    detail = replace(ON_GPU, batches=(batch_point(1), point))
    section = batches_section([detail], rate=None, generation=Generation(prompt_tokens=90, output_tokens=10))
    throughput, cost = map(chart, section.plots)
    assert section.title == "Requests in flight"
    assert (throughput.title, throughput.series[0].points[1].y) == ("Output tokens per second", pytest.approx(5000.0))
    assert (cost.title, cost.series[0].points[1].y) == ("Cost per million tokens", pytest.approx(0.02))
    assert [column.header for column in cost.table.columns][1:3] == ["in flight", "TTFT, TPOT"]
    assert cost.table.rows[1][1:5] == ("100", "50 ms, 20 ms", "5,000 output tokens/s", "$0.02 per million")


def test_one_known_batch_is_no_curve() -> None:
    assert batches_section([replace(ON_CPU, batches=(batch_point(1),))], rate=None).plots == ()


def test_a_machine_without_a_price_has_no_curve_of_costs() -> None:
    free = replace(ON_GPU, role="at hand", quote=replace(ON_GPU.quote, usd_per_hour=0.0))
    (throughput,) = batches_section([free], rate=None).plots
    assert chart(throughput).y.label == "samples/s"
