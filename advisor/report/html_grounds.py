"""Makes the report's sections on assumptions, price sources, offers left out and accuracy."""

from collections.abc import Mapping, Sequence

from advisor import units
from advisor.records.answer import Recommendation
from advisor.records.generation import Generation
from advisor.records.report_contents import AccuracyGroup, PriceSource
from advisor.report import sentence
from advisor.report.html_parts import Listing, Section, Table, TableColumn
from advisor.report.served_accuracy import SERVED_ACCURACY

_BY: Mapping[str, str] = {"": "all", "device": "device", "kind": "kind", "mode": "mode"}
"""The groupings shown in a report."""


def basis_section(recommendation: Recommendation) -> Section:
    """Return the section on the assumptions of the headline."""
    listing = Listing(title="Assumes", items=sentence.basis(recommendation))
    return Section(id="basis", title="Assumptions", lists=(listing,))


def prices_section(sources: Sequence[PriceSource]) -> Section:
    """Return the section on the sources and dates of the prices."""
    table = Table(
        title="Sources of prices",
        columns=(
            TableColumn(header="provider", is_choice=True),
            TableColumn(header="offers", is_number=True, keys=tuple(one.offer_count for one in sources)),
            TableColumn(header="dates"),
            TableColumn(header="basis"),
            TableColumn(header="source"),
        ),
        rows=tuple(
            (
                one.provider,
                f"{one.offer_count:,}",
                one.oldest if one.oldest == one.newest else f"{one.oldest} to {one.newest}",
                sentence.BASIS_NAMES[one.basis],
                one.source,
            )
            for one in sources
        ),
    )
    lead = "Sources of the prices in the ranking."
    return Section(id="prices", title="Prices", lead=(lead,) if sources else (), tables=(table,) if sources else ())


def left_out_section(recommendation: Recommendation) -> Section:
    """Return the section on the offers that are not ranked, with the reasons."""
    rejected = recommendation.rejected
    table = Table(
        title="Every offer left out",
        columns=(
            TableColumn(header="why", is_choice=True),
            TableColumn(header="provider", is_choice=True),
            TableColumn(header="instance"),
            TableColumn(header="region"),
            TableColumn(header="reason"),
        ),
        rows=tuple((one.code, one.provider, one.instance, one.region, one.reason) for one in rejected),
    )
    lead = f"{len(rejected):,} offers are not in the ranking."
    listing = Listing(title="By reason, most common first", items=sentence.left_out(recommendation))
    return Section(
        id="left-out",
        title="Left out",
        lead=(lead,),
        lists=(listing,) if rejected else (),
        tables=(table,) if rejected else (),
    )


def accuracy_section(groups: Sequence[AccuracyGroup], *, generation: Generation | None = None) -> Section:
    """Return the section on the error of predictions for measured steps; with `generation`, also on LLM serving."""
    served = Listing(title="LLM serving", items=SERVED_ACCURACY)
    shown = [group for group in groups if group.by in _BY]
    lead = [
        f"Over {group.n:,} measured steps the mean error is {units.format_ratio(group.mape)} and the median "
        f"{units.format_ratio(group.median_ape)}"
        + (
            ""
            if group.coverage_90 is None
            else f"; {units.format_ratio(group.coverage_90)} are inside the 90 % interval"
        )
        + f". The mean error of the plain roofline is {units.format_ratio(group.roofline_mape)}."
        for group in shown
        if not group.by
    ]
    table = Table(
        title="Errors by group",
        columns=(
            TableColumn(header="by", is_choice=True),
            TableColumn(header="group"),
            TableColumn(header="steps", is_number=True, keys=tuple(group.n for group in shown)),
            TableColumn(header="mean error", is_number=True, keys=tuple(group.mape for group in shown)),
            TableColumn(header="median", is_number=True, keys=tuple(group.median_ape for group in shown)),
            TableColumn(header="bias", is_number=True, keys=tuple(group.bias for group in shown)),
            TableColumn(header="inside 90 %", is_number=True, keys=tuple(group.coverage_90 for group in shown)),
            TableColumn(header="plain roofline", is_number=True, keys=tuple(group.roofline_mape for group in shown)),
        ),
        rows=tuple(
            (
                _BY[group.by],
                group.name or "all",
                f"{group.n:,}",
                units.format_ratio(group.mape),
                units.format_ratio(group.median_ape),
                "-" if group.bias is None else f"{group.bias:+.0%}".replace("%", " %"),
                "-" if group.coverage_90 is None else units.format_ratio(group.coverage_90),
                units.format_ratio(group.roofline_mape),
            )
            for group in shown
        ),
        notes=(
            "Errors are |predicted / measured - 1| over published steps; bias is the geometric mean of predicted / "
            "measured, minus 1. Most of these devices were in the fit. Errors are larger on a device that was not, and "
            "the 90 % intervals are sized for such a device.",
        ),
    )
    return Section(
        id="accuracy",
        title="How accurate this is",
        lead=tuple(lead),
        lists=() if generation is None else (served,),
        tables=(table,) if shown else (),
    )
