"""Energy and CO2 in tables, sentences and plots."""

from dataclasses import replace
from typing import Any

from advisor.records.answer import Interval, JobLimits, Quote, Recommendation
from advisor.records.energy import Grid, Watts
from advisor.report.quote_columns import columns_for, table_rows
from advisor.report.recommendation import cost_co2_section, ranking_section
from advisor.report.sentence import emissions
from tests.report.report_toys import chart
from tests.report.toys import GENOA, L4, T4, recommendation, render_text

GRID = Grid(gco2_per_kwh=400, pue=1.25, place="here", year=2024, source="by hand")
WATTS = Watts(idle_gpu_w=8.0, compute_w=20.0, memory_w=16.0, overhead_w=2.0, idle_host_w=3.0, busy_host_w=1.0)


def emitting(quote: Quote, co2_kg: float, **changes: Any) -> Quote:
    """A quote with its energy: 2 kWh emit a kg."""
    kwh = 2 * co2_kg
    return replace(
        quote,
        power=WATTS,
        energy_kwh=Interval(mid=kwh, low=0.5 * kwh, high=2 * kwh),
        co2_kg=Interval(mid=co2_kg, low=0.5 * co2_kg, high=2 * co2_kg),
        **changes,
    )


def answer(*quotes: Quote, **job: Any) -> Recommendation:
    found = recommendation(*quotes)
    return replace(found, job=replace(found.job, **job), grids={"aws/us-east-1": GRID})


def headers(found: Recommendation) -> list[str]:
    return [column.header for column in columns_for(table_rows(found, top=10))]


CLEAN, DIRTY = emitting(GENOA, 1.5, on_co2_front=True), emitting(L4, 3.0, on_co2_front=True)


def test_energy_and_co2_are_columns_only_where_they_are_asked_for() -> None:
    assert not [name for name in headers(answer(DIRTY, CLEAN)) if "CO2" in name]
    for asked in (answer(DIRTY, CLEAN, objective="co2"), answer(DIRTY, limits=JobLimits(max_co2_kg=9.0))):
        assert len([name for name in headers(asked) if "CO2" in name or "energy" in name]) == 3


def test_the_table_of_80_columns_keeps_the_co2_that_decides() -> None:
    shown = render_text(answer(CLEAN, DIRTY, objective="co2", assumed=False), width=80, color=False)
    row = next(line for line in shown.splitlines() if line.lstrip().startswith("1"))
    assert "1.5 kg" in row
    assert "$2.86" in row


def test_a_quote_without_a_figure_has_a_dash() -> None:
    rows = table_rows(answer(DIRTY, T4, objective="co2"), top=10)
    (co2,) = (column for column in columns_for(rows) if column.header.startswith("CO2") and "[" not in column.header)
    assert [co2.cell(row) for row in rows][1] == "-"


def test_the_sentence_has_the_co2_its_energy_and_what_it_rests_on() -> None:
    said = emissions(answer(CLEAN, objective="co2", assumed=False))
    assert said is not None
    for figure in ("1.5 kg [0.75-3]", "3 kWh", "400 g/kWh", "2024", "1.25"):
        assert figure in said


def test_there_is_no_sentence_where_nobody_asks_or_nothing_is_known() -> None:
    assert emissions(answer(CLEAN)) is None
    assert emissions(answer(T4, objective="co2")) is None


def test_the_report_plots_cost_against_co2() -> None:
    section = cost_co2_section(answer(CLEAN, DIRTY, T4, assumed=False))
    plot = chart(section.plots[0])
    points = {(point.x, point.y) for one in plot.series for point in one.points}
    # of the three, the one without a figure is not in the plot
    assert points == {(1.5, 2.86), (3.0, 0.42)}
    front = next(one for one in plot.series if one.has_line)
    assert len(front.points) == 2
    assert (plot.x.unit, plot.y.unit) == ("kg", "money")
    assert "1 have" in section.lead[0]


def test_the_report_has_no_such_plot_without_figures() -> None:
    assert not cost_co2_section(answer(L4, T4)).plots


def test_the_ranking_of_the_report_always_has_the_columns() -> None:
    for found in (answer(CLEAN, DIRTY), answer(CLEAN, DIRTY, objective="co2")):
        (table,) = ranking_section(found).tables
        assert len([column for column in table.columns if "CO2" in column.header]) == 2
