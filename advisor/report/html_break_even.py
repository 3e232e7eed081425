"""Makes the report's break-even section: the cost of the cheapest CPU and the cheapest GPU along each curve."""

from collections.abc import Mapping, Sequence

from advisor import units
from advisor.records.break_even_curves import BreakEven, Contender, Curve, CurveKind, CurvePoint
from advisor.records.device import DeviceKind
from advisor.records.generation import Generation
from advisor.records.price import ExchangeRate
from advisor.records.sample_words import batch_text
from advisor.report.break_even_text import contender_label, curve_title, folk_rule_sentences, verdict
from advisor.report.html_parts import (
    Axis,
    Chart,
    Color,
    Listing,
    Point,
    Rule,
    Section,
    Series,
    Symbol,
    Table,
    TableColumn,
)
from advisor.report.money import in_currency, money_interval

_KINDS: Mapping[DeviceKind, tuple[str, Color, Symbol]] = {
    "gpu": ("cheapest GPU", 1, "triangle"),
    "cpu": ("cheapest CPU", 2, "circle"),
}
_AXES: Mapping[CurveKind, str] = {
    "batch": "batch size",
    "requests_per_day": "requests per day",
    "samples": "samples of the job",
}
_AXES_OF_SERVICE: Mapping[CurveKind, str] = {
    **_AXES,
    "batch": "requests in flight",
    "samples": "requests of the job",
}


def break_even_section(break_even: BreakEven) -> Section:
    """Return the section on where the cheapest CPU and the cheapest GPU cost the same."""
    rate = break_even.exchange_rate
    generation, found = break_even.job.generation, break_even.folk_rule
    rule = [] if found is None else folk_rule_sentences(found, rate=rate, generation=generation)
    listings = (
        Listing(
            title="Rule of thumb (use a GPU if its speedup exceeds its price ratio), in numbers", items=tuple(rule)
        ),
        Listing(title="Not shown", items=break_even.left_out),
    )
    return Section(
        id="break-even",
        title="Break-even",
        lead=("The cheapest CPU and the cheapest GPU at each point. Bands are 90 % intervals.",),
        lists=tuple(listing for listing in listings if listing.items),
        plots=tuple(_chart(curve, generation, rate=rate) for curve in break_even.curves),
    )


def _chart(curve: Curve, generation: Generation | None, *, rate: ExchangeRate | None) -> Chart:
    series = (_series(curve.points, kind, generation, rate=rate) for kind in _KINDS)
    title = curve_title(curve, generation=generation)
    over = (_AXES if generation is None else _AXES_OF_SERVICE).get(curve.kind, curve.name)
    return Chart(
        title=title,
        notes=(" ".join(verdict(curve, generation=generation)),),
        x=Axis(label=over, unit="count"),
        y=Axis(label="cost per month" if curve.kind == "requests_per_day" else "cost of the job", unit="money"),
        series=tuple(one for one in series if one.points),
        rules=tuple(Rule(x=crossing.at, name=f"{crossing.at:,}") for crossing in curve.crossings),
        table=_table(curve, title=title, over=over, rate=rate),
    )


def _series(
    points: Sequence[CurvePoint], kind: DeviceKind, generation: Generation | None, *, rate: ExchangeRate | None
) -> Series:
    name, color, symbol = _KINDS[kind]
    found = [(point.at, one) for point in points if (one := _contender(point, kind)) is not None]
    return Series(
        name=name,
        color=color,
        symbol=symbol,
        points=tuple(_point(at, one, generation, rate=rate) for at, one in found if one.job_usd.mid > 0),
        has_line=True,
    )


def _contender(point: CurvePoint, kind: DeviceKind) -> Contender | None:
    return point.gpu if kind == "gpu" else point.cpu


def _point(at: int, one: Contender, generation: Generation | None, *, rate: ExchangeRate | None) -> Point:
    cost = in_currency(one.job_usd, rate=rate)
    return Point(
        x=at,
        y=cost.mid,
        y_low=cost.low,
        y_high=cost.high,
        text=(
            f"{at:,}: {contender_label(one)}\n{one.device.name}, {batch_text(one.batch, generation)}\n"
            f"{money_interval(one.job_usd, rate=rate)}"
        ),
    )


def _table(curve: Curve, *, title: str, over: str, rate: ExchangeRate | None) -> Table:
    points = curve.points
    return Table(
        title=title,
        columns=(
            TableColumn(header=over, is_number=True, keys=tuple(point.at for point in points)),
            TableColumn(header="CPU"),
            TableColumn(header="cost [90 %]", is_number=True, keys=_costs(points, "cpu")),
            TableColumn(header="GPU"),
            TableColumn(header="cost [90 %]", is_number=True, keys=_costs(points, "gpu")),
            TableColumn(
                header="CPU / GPU",
                is_number=True,
                keys=tuple(point.cost_ratio.mid if point.cost_ratio else None for point in points),
            ),
        ),
        rows=tuple(
            (
                f"{point.at:,}",
                *_cells(point.cpu, rate=rate),
                *_cells(point.gpu, rate=rate),
                units.format_times(point.cost_ratio.mid) if point.cost_ratio else "-",
            )
            for point in points
        ),
    )


def _costs(points: Sequence[CurvePoint], kind: DeviceKind) -> tuple[float | None, ...]:
    return tuple(one.job_usd.mid if (one := _contender(point, kind)) else None for point in points)


def _cells(one: Contender | None, *, rate: ExchangeRate | None) -> tuple[str, str]:
    return ("-", "-") if one is None else (contender_label(one), money_interval(one.job_usd, rate=rate))
