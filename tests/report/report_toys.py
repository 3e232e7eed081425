"""A small report, made by hand: two devices in detail, every kind of section in it."""

from dataclasses import replace
from typing import Any

from advisor.records.answer import BatchPoint, Crossing, Interval, Recommendation
from advisor.records.break_even_curves import BreakEven
from advisor.records.device_memory import DeviceMemory, MemoryTerm
from advisor.records.report_contents import AccuracyGroup, DeviceDetail, PriceSource, Report
from advisor.report.content import Bars, Chart
from tests.report.test_break_even import curve, point
from tests.report.test_explanation import CPU, step
from tests.report.toys import GENOA, L4, T4, recommendation, rejection

ALL = AccuracyGroup(by="", name="", n=172, mape=0.14, median_ape=0.06, bias=-0.1, coverage_90=0.91, roofline_mape=0.41)
ON_T4 = replace(ALL, by="device", name="t4", n=5, mape=0.08, median_ape=0.04, bias=None, coverage_90=None)
PRICES = PriceSource(
    provider="aws", basis="list", source="aws's list", oldest="2025-10-01", newest="2025-11-02", offer_count=3
)


def chart(plot: Chart | Bars) -> Chart:
    """The plot, which is no bars."""
    assert isinstance(plot, Chart)
    return plot


def batch_point(batch: int, *, fits: bool = True) -> BatchPoint:
    """A tenth of a second and a thousandth for each sample, at $3.60 an hour."""
    step_s = 0.1 + 0.001 * batch
    return BatchPoint(
        batch=batch,
        step_s=Interval(mid=step_s, low=0.8 * step_s, high=1.25 * step_s),
        samples_per_s=batch / step_s,
        usd_per_million_samples=0.001 * step_s / batch * 1e6,
        peak_memory_bytes=batch * 2**30,
        fits=fits,
        bound="memory",
    )


def memory(**changes: Any) -> DeviceMemory:
    """3 GiB of parameters and 1 GiB of an L4's process."""
    terms = (("parameters", 2), ("buffers", 1), ("process", 1))
    values: dict[str, Any] = {
        "name": "aws g6.xlarge",
        "device": L4.device,
        "memory_bytes": 24 * 2**30,
        "precision": "amp-bf16",
        "batch": 64,
        "phase": "forward",
        "peak_bytes": 4 * 2**30,
        "peak_low_bytes": 3 * 2**30,
        "peak_high_bytes": 5 * 2**30,
        "verdict": "fits",
        "largest_batch": 512,
        "largest_batch_at_most": 600,
        "terms": tuple(
            MemoryTerm(part=part, mid_bytes=gib * 2**30, low_bytes=0.0, high_bytes=2 * gib * 2**30, source="by hand")
            for part, gib in terms  # type: ignore[arg-type]
        ),
        "remedies": (),
    }
    merged = values | changes
    return DeviceMemory(**({"usable_bytes": merged["memory_bytes"]} | merged))


ON_GPU = DeviceDetail(
    role="best GPU",
    quote=L4,
    step=step(),
    batches=(batch_point(1), batch_point(100), batch_point(200, fits=False)),
    memory=memory(),
)
ON_CPU = DeviceDetail(role="best CPU", quote=GENOA, step=step(40.0, **CPU), batches=(batch_point(1),))


def break_even() -> BreakEven:
    """A CPU is cheaper below batch 10, a GPU above that."""
    return BreakEven(
        schema_version=1,
        workload="toy",
        job=recommendation(L4).job,
        folk_rule=None,
        curves=(
            curve(
                point(1, 1.0, 2.0),
                point(10, 3.0, 2.5),
                crossings=(Crossing(at=10, low=8, high=None, cheaper="gpu"),),
            ),
        ),
        left_out=("over requests per day: not asked",),
        warnings=(),
    )


def report(answer: Recommendation | None = None, **changes: Any) -> Report:
    values: dict[str, Any] = {
        "recommendation": answer
        or recommendation(L4, T4, GENOA, rejected=(rejection("p5", code="does-not-fit", reason="too small"),)),
        "details": (ON_GPU, ON_CPU),
        "price_sources": (PRICES,),
        "accuracy": (ALL, ON_T4),
        "version": "1.2.3",
        "made_on": "2026-11-21",
        "break_even": break_even(),
    }
    return Report(**(values | changes))
