"""Energy and CO2 of every answer: rankings, limits, explanations and reports over the shipped data."""

from pathlib import Path

import pytest

from advisor.answers.explanation import explain
from advisor.answers.full_report import report
from advisor.answers.ranking import rank
from advisor.catalog.overlay import load_catalog
from advisor.cost.quotes import busy_usd_per_hour
from advisor.question.from_source import question_of
from advisor.question.record import Question
from advisor.records.answer import Recommendation
from advisor.records.options import Options
from advisor.records.price import Catalog
from advisor.report.content import Chart
from advisor.report.document import document_of
from tests.answers.test_break_even import net


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def question(catalog: Catalog, **options: object) -> Question:
    return question_of(net(), Options(**({"samples": 10**10} | options)), catalog=catalog)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def answer(catalog: Catalog) -> Recommendation:
    return rank(question(catalog))


def test_the_offers_of_hyperscalers_have_energy_and_co2(answer: Recommendation) -> None:
    quotes = [quote for quote in answer.quotes if quote.tier == "hyperscaler"]
    assert len(quotes) > 300
    assert sum(quote.co2_kg is not None for quote in quotes) >= 0.8 * len(quotes)
    for quote in quotes:
        if quote.energy_kwh is not None and quote.power is not None and quote.co2_kg is not None:
            # No machine draws more than its power limits and its cores, nor less than 1 W.
            watts = quote.energy_kwh.mid * 3.6e6 / (quote.job_s.mid * quote.instance_count)
            assert 1 < watts <= quote.power.total_w * (1 + 1e-9)
            grid = answer.grids[f"{quote.provider}/{quote.region}"]
            expected_kg = quote.energy_kwh.mid * grid.gco2_per_kwh * (grid.pue or 1.0) / 1000
            assert quote.co2_kg.mid == pytest.approx(expected_kg)
            assert quote.co2_kg.low < quote.co2_kg.mid < quote.co2_kg.high


def test_gpu_clouds_have_energy_and_no_co2(answer: Recommendation) -> None:
    quotes = [quote for quote in answer.quotes if quote.tier == "neocloud"]
    assert quotes
    assert all(quote.co2_kg is None for quote in quotes)
    assert any(quote.energy_kwh is not None for quote in quotes)


def test_the_ranking_by_co2_begins_with_the_least(catalog: Catalog) -> None:
    found = rank(question(catalog, objective="co2"))
    amounts = [quote.co2_kg.mid for quote in found.quotes if quote.co2_kg is not None]
    assert len(amounts) == len(found.quotes) > 100
    assert amounts == sorted(amounts)
    assert {one.code for one in found.rejected} >= {"unknown-co2"}
    assert not {quote.tier for quote in found.quotes} & {"neocloud"}


def test_a_limit_on_co2_is_kept_and_one_that_nobody_keeps_says_what_to_change(
    catalog: Catalog, answer: Recommendation
) -> None:
    known = sorted(quote.co2_kg.mid for quote in answer.quotes if quote.co2_kg is not None)
    middle = known[len(known) // 2]
    found = rank(question(catalog, max_co2=middle))
    assert found.quotes
    assert all(quote.co2_kg is not None and quote.co2_kg.mid <= middle for quote in found.quotes)

    nothing = rank(question(catalog, max_co2=known[0] / 100))
    assert nothing.best is None
    assert "--max-co2" in " ".join(one.flag for one in nothing.alternatives)


def test_an_explanation_splits_the_watts_of_the_machine(catalog: Catalog) -> None:
    asked = question(catalog)
    gpu, cpu = explain(asked, on=["g6.xlarge", "c7a.xlarge"]).steps
    assert gpu.power is not None
    assert cpu.power is not None
    # An L4 has a limit of 72 W, of which it draws some at rest; a c7a.xlarge has none.
    assert 72 * 0.1 < gpu.power.idle_gpu_w < gpu.power.total_w - gpu.power.idle_host_w < 72 + 10
    assert cpu.power.idle_gpu_w == cpu.power.compute_w == 0
    assert cpu.power.busy_host_w > cpu.power.idle_host_w > 0
    assert gpu.energy_kwh is not None
    assert gpu.co2_kg is not None


def test_the_report_has_the_plot_of_dollars_against_co2(catalog: Catalog) -> None:
    document = document_of(report(question(catalog), with_break_even=False))
    (section,) = (one for one in document.sections if one.id == "cost-co2")
    (plot,) = section.plots
    assert isinstance(plot, Chart)
    assert any(series.has_line and series.points for series in plot.series)
    assert sum(len(series.points) for series in plot.series) > 100


@pytest.fixture
def own(tmp_path: Path) -> Catalog:
    (tmp_path / "own.yaml").write_text(
        "owned:\n  box:\n    machine: {vcpus: 16, memory_gib: 64, gpu: rtx-4090, gpu_count: 1}\n"
        "    electricity_usd_per_kwh: 0.40\n    gco2_per_kwh: 100\n    date: 2026-11-01\n"
    )
    return load_catalog(prices=[tmp_path / "own.yaml"], cwd=tmp_path)


def test_a_machine_of_ones_own_pays_for_the_watts_of_its_step(own: Catalog) -> None:
    found = rank(question(own, tier=("owned",)))
    (quote,) = found.quotes
    assert quote.power is not None
    assert quote.energy_kwh is not None
    assert quote.co2_kg is not None
    assert quote.usd_per_hour == pytest.approx(quote.power.total_w / 1000 * 0.40)
    assert quote.job_usd.mid == pytest.approx(quote.energy_kwh.mid * 0.40)
    assert quote.co2_kg.mid == pytest.approx(quote.energy_kwh.mid * 0.1)


def test_a_batch_on_a_machine_of_ones_own_costs_what_the_quote_says_whatever_the_load(own: Catalog) -> None:
    found = report(question(own, tier=("owned",), samples=None, requests_per_second=1.0), with_break_even=False)
    (quote,) = found.recommendation.quotes
    assert quote.usd_per_hour < 0.5 * busy_usd_per_hour(quote)  # idle for most of the time
    for points in (found.recommendation.batch_sweeps[0].points, found.details[0].batches):
        usd = {point.batch: point.usd_per_million_samples for point in points}
        assert usd[quote.batch] == pytest.approx(quote.usd_per_million_samples)
