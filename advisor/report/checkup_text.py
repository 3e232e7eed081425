"""Renders the checks of `advise doctor` as text."""

from collections.abc import Sequence

from advisor.records.check import Check
from advisor.report.text_page import Heading, Page
from advisor.report.view import View

_HEADINGS = (Heading(text="state"), Heading(text="check"), Heading(text="result -> fix"))


def render_checkup(checks: Sequence[Check], *, view: View) -> str:
    """Return every check in order, then the verdict."""
    page = Page(width=view.width, color=view.color)
    page.table(_HEADINGS, [row for check in checks for row in _rows(check)])
    page.blank()
    failed = [check.name for check in checks if check.state == "fails"]
    verdict = f"The main job cannot run: {', '.join(failed)}." if failed else "The main job can run on this machine."
    page.line(verdict, style="bold red" if failed else "bold")
    return page.text()


def _rows(check: Check) -> list[tuple[str, ...]]:
    return [
        ("FAILS" if check.state == "fails" else check.state, check.name, check.found),
        *([("", "", f"-> {check.remedy}")] if check.remedy else []),
    ]
