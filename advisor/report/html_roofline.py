"""Makes the report's roofline plots: the operator families under the roof of each device."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from advisor import units
from advisor.records.answer import BOUNDS
from advisor.records.explained_step import ExplainedGroup, ExplainedStep
from advisor.records.report_contents import CloseLook
from advisor.report.html_marks import BOUND_MARKS, device_name
from advisor.report.html_parts import (
    Axis,
    Chart,
    Point,
    Section,
    Series,
    Table,
    TableColumn,
)

_SHOWN_RATIO = 0.01
"""Families with a smaller share of the time are only in the table."""
_LABELLED_RATIO = 0.05
"""Families with a smaller share of the time are named only under the pointer."""


def roofline_section(looks: Sequence[CloseLook]) -> Section:
    """Return the section that plots each operator family by its arithmetic intensity, under the device's roof."""
    lead = (
        "Left of the ridge point, operators are memory-bound; right of it, compute-bound (Williams, Waterman and "
        "Patterson, 2009). The roof is from the datasheet. Points above it are served by caches. Points far below it "
        "wait for the host or reach a small share of the peak. Families with less than 1 % of the time are only in the "
        "tables.",
    )
    return Section(id="roofline", title="Roofline", lead=lead, plots=tuple(map(_roofline, looks)))


def _roofline(look: CloseLook) -> Chart:
    step = look.step
    families = [group for group in step.families if group.flops_per_byte and group.flops > 0]
    shown = [group for group in families if group.time_ratio >= _SHOWN_RATIO]
    return Chart(
        title=device_name(look),
        x=Axis(label="FLOP per byte moved", unit="flops_per_byte"),
        y=Axis(label="FLOP/s", unit="flops_per_s"),
        series=(*_roofs(step, shown), *_families(shown)),
        table=_families_table(step),
    )


def _roofs(step: ExplainedStep, groups: Sequence[ExplainedGroup]) -> Iterable[Series]:
    """Yield one roof per compute unit in use: it rises with the bandwidth and is flat from the ridge point on."""
    bandwidth = step.memory_bytes_per_s
    intensities = [group.flops_per_byte for group in groups if group.flops_per_byte]
    ridges = sorted({group.ridge_flops_per_byte for group in groups if group.ridge_flops_per_byte})
    if not ridges:
        return
    left, right = min(*intensities, ridges[0]) / 3, max(*intensities, ridges[-1]) * 10
    for ridge, higher in zip(ridges, (*ridges[1:], math.inf), strict=True):
        peak = ridge * bandwidth
        text = f"{units.format_flops(peak)}/s, {units.format_bytes(bandwidth)}/s\nridge at {ridge:,.3g} FLOP/B"
        corners = ((left, left * bandwidth), (ridge, peak), (right, peak))
        *rise, end = (Point(x=x, y=y, text=text) for x, y in corners)
        named = replace(end, name=f"{units.format_flops(peak)}/s" if higher > 2 * ridge else "")  # else they overlap
        yield Series(name="roof", color=7, symbol=None, points=(*rise, named), has_line=True)


def _families(groups: Sequence[ExplainedGroup]) -> Iterable[Series]:
    for bound in BOUNDS:
        members = [group for group in groups if group.bound == bound]
        color, symbol = BOUND_MARKS[bound]
        if members:
            yield Series(
                name=f"bound by {bound}", color=color, symbol=symbol, points=tuple(map(_family_point, members))
            )


def _family_point(group: ExplainedGroup) -> Point:
    rate = group.flops / group.time_s
    return Point(
        x=group.flops_per_byte or 0.0,
        y=rate,
        name=group.name if group.time_ratio >= _LABELLED_RATIO else "",
        text=(
            f"{group.name}: {units.format_ratio(group.time_ratio)} of the time\n{units.format_flops(rate)}/s at "
            f"{group.flops_per_byte:,.3g} FLOP/B\nbound by {group.bound}"
        ),
    )


def _families_table(step: ExplainedStep) -> Table:
    groups = step.families
    return Table(
        title="Operator families",
        columns=(
            TableColumn(header="family"),
            TableColumn(header="time", is_number=True, keys=tuple(group.time_s for group in groups)),
            TableColumn(header="share", is_number=True, keys=tuple(group.time_ratio for group in groups)),
            TableColumn(header="bound"),
            TableColumn(header="FLOP", is_number=True, keys=tuple(group.flops for group in groups)),
            TableColumn(header="bytes", is_number=True, keys=tuple(group.moved_bytes for group in groups)),
            TableColumn(header="FLOP/B", is_number=True, keys=tuple(group.flops_per_byte for group in groups)),
            TableColumn(header="of the roofline", is_number=True, keys=tuple(one.roofline_ratio for one in groups)),
        ),
        rows=tuple(
            (
                group.name,
                units.format_duration(group.time_s),
                units.format_ratio(group.time_ratio),
                group.bound,
                units.format_count(group.flops),
                units.format_bytes(group.moved_bytes),
                f"{group.flops_per_byte:,.3g}" if group.flops_per_byte else "-",
                "-" if group.roofline_ratio is None else units.format_ratio(group.roofline_ratio),
            )
            for group in groups
        ),
    )
