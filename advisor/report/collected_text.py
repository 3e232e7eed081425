"""Renders the profiles made from the calibrations of a fleet as text."""

from advisor.records.calibration import Collected, CollectedDevice
from advisor.report.text_page import Heading, Page
from advisor.report.view import View

_HEADINGS = ("device", "cores", "precisions", "torch", "timed", "profile")


def render_collected(collected: Collected, *, view: View) -> str:
    """Return a table with one row per profile."""
    page = Page(width=view.width, color=view.color)
    rows = [_cells(one) for one in collected.devices]
    page.table([Heading(text=text, is_number=text == "cores") for text in _HEADINGS], rows, first_row_style="")
    return page.text()


def _cells(one: CollectedDevice) -> tuple[str, ...]:
    return (
        one.device,
        "" if one.core_count is None else f"{one.core_count:g}",
        ", ".join(one.precisions),
        ", ".join(one.torch),
        one.at[:10],
        one.file.name,
    )
