"""Renders a calibration as text: the device, its age, the error of the fit, and what each family sustains."""

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
    """Return the target and quality of a calibration, then a table of each family's efficiency at each precision."""
    from advisor.report.text_page import Page  # imported late: `age_text` needs no tables

    page = Page(width=view.width, color=view.color)
    page.line(f"{target_text(calibration)}: calibrated {age_text(calibration, now=now)}", style="bold")
    page.line(
        f"{calibration.n} of {calibration.planned_count} operators and small networks timed with torch "
        f"{calibration.key.torch}; median error of the fit {units.format_ratio(calibration.median_ape)}."
    )
    copied_bytes_per_s = calibration.host_to_device_bytes_per_s
    if copied_bytes_per_s is not None:
        page.line(f"Inputs are copied to the device at {units.format_significant(copied_bytes_per_s / 1e9)} GB/s.")
    for warning in calibration.warnings:
        page.line(f"warning: {warning}", style="yellow")
    for efficiency in calibration.efficiencies:
        page.blank()
        _table(page, efficiency)
    return page.text()


def _table(page: "Page", efficiency: Efficiency) -> None:
    from advisor.report.text_page import Heading

    page.line(
        f"{efficiency.precision}, per operator: dispatch overhead {units.format_duration(efficiency.dispatch_s)} and "
        f"launch overhead {units.format_duration(efficiency.launch_s)}."
    )
    rows = [
        (name, units.format_ratio(family.compute_ratio), units.format_ratio(family.memory_ratio), str(family.n))
        for name, family in sorted(efficiency.families.items())
        if family.source == TIMED_HERE
    ]
    headings = ("of peak", "of bandwidth", "operators")
    page.table([Heading(text="family"), *(Heading(text=text, is_number=True) for text in headings)], rows)


def target_text(calibration: Calibration) -> str:
    """Return the target of a calibration, such as `amd-epyc-9r45 with 2 cores`."""
    count = calibration.key.core_count
    cores = "" if count is None else f" with {count:g} core{'s' if count != 1 else ''}"
    return f"{calibration.key.device}{cores}"


def age_text(calibration: Calibration, *, now: datetime | None = None) -> str:
    """Return the age of a calibration, such as `3 days ago`."""
    age_s = ((now or datetime.now(UTC)) - datetime.fromisoformat(calibration.at)).total_seconds()
    for unit_s, unit in _UNITS_OF_AGE:
        count = int(age_s // unit_s)
        if count > 0:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
