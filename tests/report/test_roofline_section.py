"""Rooflines."""

from dataclasses import replace

import pytest

from advisor.report.explanation import roofline_section
from advisor.report.marks import BOUND_NAMES
from tests.report.report_toys import ON_GPU, chart
from tests.report.test_explanation import group, step


def test_the_roof_rises_with_the_bandwidth_and_is_flat_from_the_ridge_on() -> None:
    # 2e12 FLOP in 10 ms at 100 FLOP a byte, under a ridge at 200: 300 GB/s x 200 = 60 TFLOP/s, of which 200 are run.
    matmul = replace(group("matmul", 0.01, step_s=0.01), flops=2e12, flops_per_byte=100.0, ridge_flops_per_byte=200.0)
    detail = replace(ON_GPU, step=step(families=(matmul,)))
    roof, families = chart(roofline_section([detail]).plots[0]).series
    start, ridge, end = roof.points
    assert start.y == pytest.approx(start.x * 300e9)
    assert (ridge.x, ridge.y) == (200.0, pytest.approx(60e12))
    assert end.y == ridge.y
    assert end.name == "60 TFLOP/s"
    (one,) = families.points
    assert (one.x, one.y, one.name) == (100.0, pytest.approx(2e14), "matmul")
    assert families.name == BOUND_NAMES[matmul.bound]


def test_a_family_without_flop_is_in_the_table_alone() -> None:
    plot = chart(roofline_section([ON_GPU]).plots[0])
    assert [point.name for series in plot.series[1:] for point in series.points] == ["matmul"]
    assert [row[0] for row in plot.table.rows] == ["matmul", "pointwise"]
