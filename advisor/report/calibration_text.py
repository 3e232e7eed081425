"""A calibration as text: on what, how long ago, how well its operators fit, and what each family sustains."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from advisor import units
from advisor.records.calibration import TIMED_HERE, Calibration
from advisor.records.device import Efficiency
from advisor.report.view import View

if TYPE_CHECKING:
    from advisor.report.text_page import Page

_UNITS_OF_AGE = ((86400, "day"), (3600, "hour"), (60, "minute"))


def render_calibration(calibration: Calibration, *, view: View, now: datetime | None = None) -> str:
    """What it was made on, then a table of what each family sustains at each precision."""
    from advisor.report.text_page import Page  # what says how old a calibration is needs no tables

    page = Page(width=view.width, color=view.color)
    page.line(f"{target_text(calibration)}: calibrated {age_text(calibration, now=now)}", style="bold")
    page.line(
        f"{calibration.n} of {calibration.planned_count} operators and small nets timed with torch "
        f"{calibration.key.torch}; the fit is off by {units.format_ratio(calibration.median_ape)} at the median."
    )
    copied_bytes_per_s = calibration.host_to_device_bytes_per_s
    if copied_bytes_per_s is not None:
        page.line(f"Inputs are copied to it at {units.format_significant(copied_bytes_per_s / 1e9)} GB/s.")
    for warning in calibration.warnings:
        page.line(f"warning: {warning}", style="yellow")
    for efficiency in calibration.efficiencies:
        page.blank()
        _table(page, efficiency)
    return page.text()


def _table(page: "Page", efficiency: Efficiency) -> None:
    from advisor.report.text_page import Heading

    page.line(
        f"{efficiency.precision}: an operator takes {units.format_duration(efficiency.dispatch_s)} to dispatch and "
        f"{units.format_duration(efficiency.launch_s)} to launch."
    )
    rows = [
        (name, units.format_ratio(family.compute_ratio), units.format_ratio(family.memory_ratio), str(family.n))
        for name, family in sorted(efficiency.families.items())
        if family.source == TIMED_HERE
    ]
    headings = ("of peak", "of bandwidth", "operators")
    page.table([Heading(text="family"), *(Heading(text=text, is_number=True) for text in headings)], rows)


def target_text(calibration: Calibration) -> str:
    """`amd-epyc-9r45 with 2 cores`."""
    count = calibration.key.core_count
    cores = "" if count is None else f" with {count:g} core{'s' if count != 1 else ''}"
    return f"{calibration.key.device}{cores}"


def age_text(calibration: Calibration, *, now: datetime | None = None) -> str:
    """`3 days ago`."""
    age_s = ((now or datetime.now(UTC)) - datetime.fromisoformat(calibration.at)).total_seconds()
    for unit_s, unit in _UNITS_OF_AGE:
        count = int(age_s // unit_s)
        if count > 0:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
