"""The contents of a report, with the round figures of `test_breaking_even`."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import advisor
from advisor.answers.full_report import report, shipped_accuracy
from advisor.calibrate.measured_beside import Measuring
from advisor.calibrate.step_process import MeasureRequest
from advisor.errors import UsageError
from advisor.question.from_source import question_from_source, question_of
from advisor.records.options import Options
from advisor.records.price import PriceErrors, PriceSpread
from advisor.records.report_contents import Report
from advisor.records.timing import StepTiming
from advisor.report.html import render_report
from tests.answers.test_break_even import CPU_OFFER, GPU_OFFER, asked_of_padded, catalog, net
from tests.cost.toys import price
from tests.machines import machine


def found(*, options: Options | None = None, **how: Any) -> Report:
    asked = replace(options or Options(), precision="fp32")
    question = question_of(net(), asked, catalog=catalog())
    return report(question, today=date(2026, 3, 1), **how)


def test_the_best_of_each_kind_is_shown_in_detail() -> None:
    shown = found(with_break_even=False)
    assert [(detail.role, detail.quote.id) for detail in shown.details] == [
        ("best GPU", GPU_OFFER.id),
        ("best CPU", CPU_OFFER.id),
    ]
    for detail in shown.details:
        assert detail.step.step_s == detail.quote.step_s
        assert detail.memory is not None
        assert detail.memory.batch == detail.quote.batch
        assert detail.memory.peak_bytes == pytest.approx(detail.quote.peak_memory_bytes)
    assert (shown.made_on, shown.break_even) == ("2026-03-01", None)


def test_a_served_model_is_shown_as_the_engine_runs_it_also_on_several_gpus() -> None:
    served = Options(
        prompt_tokens=256,
        output_tokens=32,
        concurrency="16",
        tensor_parallel=2,
        instance=("g6.12xlarge", "m7i.8xlarge"),
        no_local=True,
    )
    config = Path(__file__).parents[2] / "examples/configs/llama3_8b.json"
    question = question_from_source(f"hf:{config}", served, read_machine=None)
    (detail,) = report(question, with_break_even=False).details
    assert detail.quote.plan is not None
    assert (detail.step.step_s, detail.step.plan) == (detail.quote.step_s, detail.quote.plan)
    assert 0 < detail.step.exchange_s < detail.step.step_s.mid
    (point,) = (point for point in detail.batches if point.batch == 16)
    assert point.step_s.mid == pytest.approx(detail.quote.step_s.mid)
    assert point.ttft_s == pytest.approx(detail.quote.tokens.ttft_s.mid if detail.quote.tokens else None)


def test_an_offer_that_may_not_head_the_answer_is_not_the_best_of_its_kind() -> None:
    old = replace(GPU_OFFER, id="acme/us-1/old", instance="old", prices=(price(0.001, date="2024-01-01"),))
    spread = PriceSpread(log_spread=0.1, n=0, basis="assumed", source="by hand")
    errors = PriceErrors(drift={"hyperscaler": spread}, trusted=spread)  # 0.14 after two years
    known = replace(catalog(), offers=(CPU_OFFER, GPU_OFFER, old), price_errors=errors)
    shown = report(question_of(net(), Options(precision="fp32"), catalog=known), with_break_even=False)
    assert shown.recommendation.quotes[0].id == old.id
    assert [detail.quote.id for detail in shown.details] == [GPU_OFFER.id, CPU_OFFER.id]


def test_a_batch_costs_what_its_step_takes() -> None:
    gpu, cpu = found(with_break_even=False).details
    at_4 = {detail.role: next(point for point in detail.batches if point.batch == 4) for detail in (gpu, cpu)}
    # On the GPU 0.4 s + 4 x 0.01 s at $0.001 a second, on the CPU 4 s at $0.0001.
    assert at_4["best GPU"].step_s.mid == pytest.approx(0.44)
    assert at_4["best GPU"].samples_per_s == pytest.approx(4 / 0.44)
    assert at_4["best GPU"].usd_per_million_samples == pytest.approx(110.0)
    assert at_4["best CPU"].usd_per_million_samples == pytest.approx(100.0)
    for detail in (gpu, cpu):
        priced = next(point for point in detail.batches if point.batch == detail.quote.batch)
        assert priced.usd_per_million_samples == pytest.approx(detail.quote.usd_per_million_samples)


@pytest.mark.parametrize("is_affine", [True, False])
def test_each_batch_is_of_its_own_step_where_one_trace_does_not_serve_all(is_affine: bool) -> None:
    # A step of b samples takes the GPU 0.4 s and 1e-3 s x b^2, and a sample least of it in batches of 16 of these.
    answer = report(asked_of_padded(Options(batch="4,16"), is_affine=is_affine))
    (gpu,) = (detail for detail in answer.details if detail.role == "best GPU")
    assert (gpu.step.batch, gpu.step.step_s.mid, gpu.step.step_s) == (16, pytest.approx(0.656), gpu.quote.step_s)
    assert sum(group.time_s for group in gpu.step.families) == pytest.approx(0.656)
    steps = {point.batch: point.step_s.mid for point in gpu.batches}
    assert not is_affine or (steps[1], steps[64]) == pytest.approx((0.401, 4.496))
    assert answer.break_even is not None


def test_prices_are_counted_by_their_source() -> None:
    (source,) = found(with_break_even=False).price_sources
    assert (source.provider, source.source, source.offer_count) == ("acme", "by hand", 2)
    assert (source.oldest, source.newest) == ("2026-01-01", "2026-01-01")


def test_break_even_comes_with_it_unless_one_kind_alone_is_left() -> None:
    both = found()
    assert both.break_even is not None
    assert both.break_even.curves
    one = found(options=Options(device=("gpu",)))
    assert [detail.role for detail in one.details] == ["best GPU"]
    assert one.break_even is None


def test_a_report_may_rest_on_timed_steps() -> None:
    def refuse(_: MeasureRequest) -> StepTiming:
        raise UsageError("not today", hint="tomorrow")

    measuring = Measuring(request=MeasureRequest(source="net.py"), time_it=refuse)
    options = Options(precision="fp32", measure=True)
    shown = report(question_of(net(), options, catalog=catalog(), machine=machine(), measuring=measuring))
    # The break-even point and the savings are about offers, on which nothing can be timed.
    assert shown.break_even is not None
    assert len(shown.details) >= 2


def test_nothing_is_shown_in_detail_where_nothing_fits() -> None:
    shown = found(options=Options(samples=1_000_000, max_usd=1e-9))
    assert shown.recommendation.best is None
    assert shown.details == ()


def test_the_shipped_accuracy_begins_with_all_rows() -> None:
    overall, *groups = shipped_accuracy()
    assert overall.by == ""
    assert overall.n == sum(group.n for group in groups if group.by == "device")
    assert 0 < overall.median_ape < overall.mape


def test_python_writes_the_report_of_a_model_and_hands_back_what_it_shows(tmp_path: Path) -> None:
    file, model = tmp_path / "report.html", nn.Linear(8, 4)
    # An offer of each kind will do.
    limits: dict[str, Any] = {"device": ("t4", "cpu"), "provider": "aws", "no_local": True, "samples": 1000}
    shown = advisor.save_report(model, torch.zeros(4, 8), file, **limits)
    answer = advisor.recommend(model, torch.zeros(4, 8), **limits)
    assert shown.quotes == answer.quotes
    page = file.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert shown.best is not None
    assert shown.best.instance in page
    assert '"Memory"' in page  # what the recommendation alone does not show


def test_a_report_is_written_into_no_other_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="HTML"):
        advisor.save_report(nn.Linear(8, 4), torch.zeros(4, 8), tmp_path / "report.pdf")
    with pytest.raises(UsageError, match="missing does not exist"):
        advisor.save_report(nn.Linear(8, 4), torch.zeros(4, 8), tmp_path / "missing" / "report.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_report_over_all_offers_is_no_larger_than_an_attachment_may_be() -> None:
    workload = Path(__file__).parents[2] / "advisor" / "serve" / "page_files" / "examples" / "resnet50-training.json"
    found = report(question_from_source(str(workload), Options()))
    assert len(found.recommendation.quotes) > 400
    assert len(render_report(found).encode()) < 1.5e6
