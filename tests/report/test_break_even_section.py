"""Curves of break-even."""

from advisor.report.break_even import break_even_section
from advisor.report.content import Chart
from tests.report.report_toys import break_even
from tests.says import assert_says


def test_each_curve_has_both_kinds_and_its_crossings() -> None:
    section = break_even_section(break_even())
    (chart,) = section.plots
    assert isinstance(chart, Chart)
    gpu, cpu = chart.series
    assert (gpu.name, [(point.x, point.y) for point in gpu.points]) == ("cheapest GPU", [(1, 2.0), (10, 2.5)])
    assert (cpu.name, [(point.x, point.y) for point in cpu.points]) == ("cheapest CPU", [(1, 1.0), (10, 3.0)])
    assert [(rule.x, rule.name) for rule in chart.rules] == [(10, "10")]
    (note,) = chart.notes
    assert_says(note, "CPU", "cheaper", "batch 10 [8-?]", "GPU above")
    assert [row[0] for row in chart.table.rows] == ["1", "10"]
    assert [row[5] for row in chart.table.rows] == ["0.5x", "1.2x"]


def test_what_is_left_out_is_said() -> None:
    (listing,) = break_even_section(break_even()).lists
    assert listing.items == ("over requests per day: not asked",)
