"""A recommendation in, what it rests on out: assumptions, prices and their sources, what was left out, accuracy."""

from collections.abc import Mapping, Sequence

from advisor import units
from advisor.records.answer import Recommendation
from advisor.records.generation import Generation
from advisor.records.report_contents import AccuracyGroup, PriceSource
from advisor.report import sentence
from advisor.report.html_parts import Listing, Section, Table, TableColumn
from advisor.report.served_accuracy import SERVED_ACCURACY

_BY: Mapping[str, str] = {"": "all", "device": "device", "kind": "kind", "mode": "mode"}
"""The groupings that a reader asks about: theirs is a device and a job."""


def basis_section(recommendation: Recommendation) -> Section:
    """What the headline takes for granted."""
    listing = Listing(title="Assumes", items=sentence.basis(recommendation))
    return Section(id="basis", title="What it rests on", lists=(listing,))


def prices_section(sources: Sequence[PriceSource]) -> Section:
    """Where the prices are from, and how old they are."""
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
    lead = "Of the offers in the ranking."
    return Section(id="prices", title="Prices", lead=(lead,) if sources else (), tables=(table,) if sources else ())


def left_out_section(recommendation: Recommendation) -> Section:
    """Every offer that is not ranked, with its reason."""
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
    listing = Listing(title="By reason, the commonest first", items=sentence.left_out(recommendation))
    return Section(
        id="left-out",
        title="Left out",
        lead=(lead,),
        lists=(listing,) if rejected else (),
        tables=(table,) if rejected else (),
    )


def accuracy_section(groups: Sequence[AccuracyGroup], *, generation: Generation | None = None) -> Section:
    """How far such predictions were from steps that others measured; of a `generation` nobody did."""
    served = Listing(title="Of language models in service", items=SERVED_ACCURACY)
    shown = [group for group in groups if group.by in _BY]
    lead = [
        f"Over {group.n:,} measured steps the mean error is {units.format_ratio(group.mape)} and the median "
        f"{units.format_ratio(group.median_ape)}"
        + ("" if group.coverage_90 is None else f"; the 90 % interval holds {units.format_ratio(group.coverage_90)}")
        + f". The plain roofline is off by {units.format_ratio(group.roofline_mape)}."
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
            "Of |predicted / measured - 1| over published steps; bias is the geometric mean of predicted / measured, "
            "less 1. Most of these devices were in the fit; on one that was not errors are larger, and the 90 % "
            "intervals are made for that.",
        ),
    )
    return Section(
        id="accuracy",
        title="How accurate this is",
        lead=tuple(lead),
        lists=() if generation is None else (served,),
        tables=(table,) if shown else (),
    )
