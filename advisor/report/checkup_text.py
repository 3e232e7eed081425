"""Checks as text for a terminal: how each went, what was found, and the remedy below."""

from collections.abc import Sequence

from advisor.records.check import Check
from advisor.report.text_page import Heading, Page
from advisor.report.view import View

_HEADINGS = (Heading(text="state"), Heading(text="check"), Heading(text="what was found -> what mends it"))


def render_checkup(checks: Sequence[Check], *, view: View) -> str:
    """Every check in the order they were made, then the verdict."""
    page = Page(width=view.width, color=view.color)
    page.table(_HEADINGS, [row for check in checks for row in _rows(check)])
    page.blank()
    failed = [check.name for check in checks if check.state == "fails"]
    verdict = f"The main job cannot run: {', '.join(failed)}." if failed else "The main job runs here."
    page.line(verdict, style="bold red" if failed else "bold")
    return page.text()


def _rows(check: Check) -> list[tuple[str, ...]]:
    return [
        ("FAILS" if check.state == "fails" else check.state, check.name, check.found),
        *([("", "", f"-> {check.remedy}")] if check.remedy else []),
    ]
