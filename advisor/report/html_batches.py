"""Makes the report's section on throughput and cost by batch size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from advisor import units
from advisor.records.answer import BatchPoint, Interval
from advisor.records.generation import Generation
from advisor.records.price import ExchangeRate
from advisor.records.report_contents import CloseLook
from advisor.report.html_marks import ROLE_MARKS, device_name
from advisor.report.html_parts import (
    Axis,
    Chart,
    Point,
    Section,
    Series,
    Table,
    TableColumn,
    Unit,
)
from advisor.report.interval_text import interval_text
from advisor.report.money import in_currency


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """The words for a batch, its output and what is paid for, and the number of outputs and paid units per sample."""

    batch: str
    batch_heading: str
    time_heading: str
    made: str
    made_count: int
    paid: str
    paid_count: int


_SAMPLES = _Measured(
    batch="batch size",
    batch_heading="batch",
    time_heading="step [90 %]",
    made="samples",
    made_count=1,
    paid="samples",
    paid_count=1,
)


def _measured_by(generation: Generation | None) -> _Measured:
    if generation is None:
        return _SAMPLES
    return _Measured(
        batch="requests in flight",
        batch_heading="in flight",
        time_heading="TTFT, TPOT",
        made="output tokens",
        made_count=generation.output_tokens,
        paid="tokens",
        paid_count=generation.token_count,
    )


def batches_section(
    looks: Sequence[CloseLook], *, rate: ExchangeRate | None, generation: Generation | None = None
) -> Section:
    """Return the section on throughput and cost by batch size; in LLM serving, per token."""
    by = _measured_by(generation)
    swept = [look for look in looks if len(look.batches) > 1]
    paid = [look for look in swept if look.quote.usd_per_hour]  # a logarithmic axis has no 0
    table = _batches_table(swept, by=by, rate=rate)

    def chart(
        title: str, label: str, unit: Unit, amount: Callable[[BatchPoint], Interval], *, of: Sequence[CloseLook]
    ) -> Chart:
        return Chart(
            title=title,
            x=Axis(label=by.batch, unit="count"),
            y=Axis(label=label, unit=unit),
            series=tuple(_swept(look, amount, by=by, rate=rate) for look in of),
            table=table,
        )

    charts = (
        chart(f"{by.made.capitalize()} per second", f"{by.made}/s", "per_s", partial(_throughput, by=by), of=swept),
        chart(f"Cost per million {by.paid}", "cost", "money", partial(_cost, by=by, rate=rate), of=paid),
    )
    lead = "Each device is always busy; batch sizes go up to what fits its memory. Bands are 90 % intervals."
    return Section(
        id="batches",
        title=by.batch.capitalize(),
        lead=(lead,) if swept else (),
        plots=tuple(one for one in charts if one.series),
    )


def _throughput(point: BatchPoint, *, by: _Measured) -> Interval:
    step_s, mid = point.step_s, point.samples_per_s * by.made_count
    return Interval(mid=mid, low=mid * step_s.mid / step_s.high, high=mid * step_s.mid / step_s.low)


def _cost(point: BatchPoint, *, by: _Measured, rate: ExchangeRate | None) -> Interval:
    step_s, mid = point.step_s, point.usd_per_million_samples / by.paid_count
    usd = Interval(mid=mid, low=mid * step_s.low / step_s.mid, high=mid * step_s.high / step_s.mid)
    return in_currency(usd, rate=rate)


def _swept(
    look: CloseLook, amount: Callable[[BatchPoint], Interval], *, by: _Measured, rate: ExchangeRate | None
) -> Series:
    color, symbol = ROLE_MARKS[look.role]
    points = []
    for one in look.batches:
        if one.fits:
            height = amount(one)
            of = f"{look.step.name}, {by.batch_heading} {one.batch:,}"
            text = "\n".join((of, *_batch_cells(one, by=by, rate=rate)[1:]))
            points.append(Point(x=one.batch, y=height.mid, y_low=height.low, y_high=height.high, text=text))
    return Series(name=device_name(look), color=color, symbol=symbol, points=tuple(points), has_line=True)


def _batch_cells(one: BatchPoint, *, by: _Measured, rate: ExchangeRate | None) -> tuple[str, ...]:
    digits = 2 if by is _SAMPLES else 3
    return (
        f"{one.batch:,}",
        _times(one),
        f"{units.format_rate(one.samples_per_s * by.made_count)} {by.made}/s",
        f"{units.format_money(one.usd_per_million_samples / by.paid_count, rate=rate, digits=digits)} per million",
        units.format_bytes(one.peak_memory_bytes) + ("" if one.fits else ", does not fit"),
        one.bound,
    )


def _times(one: BatchPoint) -> str:
    if one.ttft_s is None or one.tpot_s is None:
        return interval_text(one.step_s)
    return f"{units.format_duration(one.ttft_s)}, {units.format_duration(one.tpot_s)}"


def _batches_table(looks: Sequence[CloseLook], *, by: _Measured, rate: ExchangeRate | None) -> Table:
    rows = [(look, one) for look in looks for one in look.batches]
    return Table(
        title=f"By {by.batch}",
        columns=(
            TableColumn(header="device", is_choice=True),
            TableColumn(header=by.batch_heading, is_number=True, keys=tuple(one.batch for _, one in rows)),
            TableColumn(header=by.time_heading, is_number=True, keys=tuple(one.step_s.mid for _, one in rows)),
            TableColumn(header="throughput", is_number=True, keys=tuple(one.samples_per_s for _, one in rows)),
            TableColumn(header="cost", is_number=True, keys=tuple(one.usd_per_million_samples for _, one in rows)),
            TableColumn(header="memory", is_number=True, keys=tuple(one.peak_memory_bytes for _, one in rows)),
            TableColumn(header="bound"),
        ),
        rows=tuple((look.role, *_batch_cells(one, by=by, rate=rate)) for look, one in rows),
    )
