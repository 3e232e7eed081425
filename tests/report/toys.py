"""A small recommendation, made by hand, that every test of the reports looks at."""

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from advisor.records.answer import (
    Bound,
    CostParts,
    Interval,
    Job,
    Quote,
    QuotedDevice,
    Recommendation,
    Totals,
    WorkloadSummary,
)
from advisor.records.device import DeviceKind
from advisor.records.rejection import Rejection, RejectionCode
from advisor.report.content import View
from advisor.report.quote_columns import RankedQuote, table_rows
from advisor.report.recommendation import recommendation_content
from advisor.report.terminal import to_text


def quote(
    instance: str,
    *,
    kind: DeviceKind,
    device: str,
    usd: float,
    provider: str = "aws",
    chance_cheapest: float = 0.0,
    indistinguishable: bool = False,
    bound: Bound = "memory",
) -> Quote:
    """A quote whose job takes half an hour: its price by the hour is twice the cost of the job."""
    return Quote(
        id=f"{provider}/us-east-1/{instance}",
        provider=provider,
        tier="hyperscaler",
        region="us-east-1",
        instance=instance,
        vcpus=4,
        device=QuotedDevice(id=device.lower(), name=device, kind=kind, count=1),
        gpus_used=1 if kind == "gpu" else 0,
        price_kind="on_demand",
        price_basis="list",
        usd_per_hour=2 * usd,
        price_date="2025-11-02",
        price_marks=(),
        precision="amp-bf16" if kind == "gpu" else "fp32",
        compile="eager",
        batch=64,
        step_s=Interval(mid=0.1152, low=0.104, high=0.128),
        samples_per_s=64 / 0.1152,
        usd_per_million_samples=usd,
        job_usd=Interval(mid=usd, low=0.9 * usd, high=1.1 * usd),
        job_s=Interval(mid=1800.0, low=1620.0, high=1980.0),
        peak_memory_bytes=2 * 2**30,
        device_memory_bytes=16 * 2**30,
        fits=True,
        bound=bound,
        time_source="fitted",
        chance_cheapest=chance_cheapest,
        chance_among_trusted=chance_cheapest,
        indistinguishable=indistinguishable,
        job_parts_usd=CostParts(compute=usd),
    )


L4 = quote("g6.xlarge", kind="gpu", device="L4", usd=0.42, chance_cheapest=0.614)
T4 = quote("g4dn.xlarge", kind="gpu", device="T4", usd=0.45, chance_cheapest=0.386, indistinguishable=True)
A10G = quote("g5.xlarge", kind="gpu", device="A10G", usd=0.63)
HERE = replace(
    quote("this machine's cpu", kind="cpu", device="AMD EPYC 7763", usd=0.0, provider="local"), tier="owned", vcpus=16
)
"""The machine at hand, at no price."""
GENOA = quote("c7a.xlarge", kind="cpu", device="AMD EPYC 9R14", usd=2.86, bound="compute")


def rejection(instance: str, *, code: RejectionCode, reason: str) -> Rejection:
    assert code in get_args(RejectionCode), f"no offer is ever rejected for {code}"
    return Rejection(
        id=f"aws/us-east-1/{instance}", provider="aws", region="us-east-1", instance=instance, code=code, reason=reason
    )


def recommendation(
    *quotes: Quote,
    rejected: tuple[Rejection, ...] = (),
    name: str = "resnet50",
    notes: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
    unknown_ops: dict[str, int] | None = None,
    at_hand: Quote | None = None,
) -> Recommendation:
    return Recommendation(
        schema_version=1,
        job=Job(
            mode="inference",
            samples=1_000_000,
            epochs=None,
            steps=None,
            assumed=True,
            batch="auto",
            precision="auto",
            layout="nchw",
            compile="eager",
            price="on_demand",
        ),
        workload=WorkloadSummary(
            name=name,
            totals=Totals(
                batch=1,
                flops=8.178e9,
                read_bytes=2e8,
                write_bytes=1e8,
                peak_memory_bytes=1.5e8,
                parameter_count=25_557_032,
                op_count=175,
            ),
            coverage_ratio=0.98 if unknown_ops else 1.0,
            unknown_ops=unknown_ops or {},
            method="fake",
            optimizer=None,
            assumptions=(),
        ),
        best=quotes[0] if quotes else None,
        quotes=quotes,
        rejected=rejected,
        notes=notes,
        warnings=warnings,
        at_hand=at_hand,
    )


def shown_quotes(quotes: Sequence[Quote], *, top: int) -> tuple[RankedQuote, ...]:
    """The rows of a table of these quotes."""
    return table_rows(recommendation(*quotes), top=top)


def render_text(answer: Recommendation, *, width: int, color: bool, top: int = 10, folded: str = "") -> str:
    return to_text(recommendation_content(answer, top=top), View(width=width, color=color, folded=folded))
