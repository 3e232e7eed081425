"""Devices looked at closely in, their throughput and cost over the batch out."""

from collections.abc import Callable, Sequence
from functools import partial

from advisor import units
from advisor.records.answer import BatchPoint, Interval
from advisor.records.price import ExchangeRate
from advisor.records.report import CloseLook
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
from advisor.report.intervals import interval_text
from advisor.report.money import in_currency


def batches_section(looks: Sequence[CloseLook], *, rate: ExchangeRate | None) -> Section:
    """What the batch size does to throughput and cost."""
    swept = [look for look in looks if len(look.batches) > 1]
    paid = [look for look in swept if look.quote.usd_per_hour]  # a logarithmic axis has no 0
    table = _batches_table(swept, rate=rate)

    def chart(
        title: str, label: str, unit: Unit, amount: Callable[[BatchPoint], Interval], *, of: Sequence[CloseLook]
    ) -> Chart:
        return Chart(
            title=title,
            x=Axis(label="batch size", unit="count"),
            y=Axis(label=label, unit=unit),
            series=tuple(_swept(look, amount, rate=rate) for look in of),
            table=table,
        )

    charts = (
        chart("Samples a second", "samples/s", "per_s", _throughput, of=swept),
        chart("Cost of a million samples", "cost", "money", partial(_cost, rate=rate), of=paid),
    )
    lead = "Each device kept busy, at every batch that its memory takes; bands are the 90 % interval."
    return Section(
        id="batches",
        title="Batch size",
        lead=(lead,) if swept else (),
        plots=tuple(one for one in charts if one.series),
    )


def _throughput(point: BatchPoint) -> Interval:
    step_s, mid = point.step_s, point.samples_per_s
    return Interval(mid=mid, low=mid * step_s.mid / step_s.high, high=mid * step_s.mid / step_s.low)


def _cost(point: BatchPoint, *, rate: ExchangeRate | None) -> Interval:
    step_s, mid = point.step_s, point.usd_per_million_samples
    usd = Interval(mid=mid, low=mid * step_s.low / step_s.mid, high=mid * step_s.high / step_s.mid)
    return in_currency(usd, rate=rate)


def _swept(look: CloseLook, amount: Callable[[BatchPoint], Interval], *, rate: ExchangeRate | None) -> Series:
    color, symbol = ROLE_MARKS[look.role]
    points = []
    for one in look.batches:
        if one.fits:
            height = amount(one)
            text = "\n".join((f"{look.step.name}, batch {one.batch:,}", *_batch_cells(one, rate=rate)[1:]))
            points.append(Point(x=one.batch, y=height.mid, y_low=height.low, y_high=height.high, text=text))
    return Series(name=device_name(look), color=color, symbol=symbol, points=tuple(points), has_line=True)


def _batch_cells(one: BatchPoint, *, rate: ExchangeRate | None) -> tuple[str, ...]:
    return (
        f"{one.batch:,}",
        interval_text(one.step_s),
        f"{units.format_rate(one.samples_per_s)} samples/s",
        f"{units.format_money(one.usd_per_million_samples, rate=rate)} a million",
        units.format_bytes(one.peak_memory_bytes) + ("" if one.fits else ", does not fit"),
        one.bound,
    )


def _batches_table(looks: Sequence[CloseLook], *, rate: ExchangeRate | None) -> Table:
    rows = [(look, one) for look in looks for one in look.batches]
    return Table(
        title="Batch sizes",
        columns=(
            TableColumn(header="device", is_choice=True),
            TableColumn(header="batch", is_number=True, keys=tuple(one.batch for _, one in rows)),
            TableColumn(header="step [90 %]", is_number=True, keys=tuple(one.step_s.mid for _, one in rows)),
            TableColumn(header="throughput", is_number=True, keys=tuple(one.samples_per_s for _, one in rows)),
            TableColumn(header="cost", is_number=True, keys=tuple(one.usd_per_million_samples for _, one in rows)),
            TableColumn(header="memory", is_number=True, keys=tuple(one.peak_memory_bytes for _, one in rows)),
            TableColumn(header="bound"),
        ),
        rows=tuple((look.role, *_batch_cells(one, rate=rate)) for look, one in rows),
    )
