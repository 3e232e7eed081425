"""Makes the answer of `advise doctor`."""

from collections.abc import Iterator, Sequence

from advisor.records.check import Check
from advisor.report.content import Block, Paragraph
from advisor.report.tables import ColumnOf, column, table_of

_COLUMNS: Sequence[ColumnOf[tuple[str, str, str]]] = (
    column("state", lambda row: row[0]),
    column("check", lambda row: row[1]),
    column("result -> fix", lambda row: row[2]),
)


def checkup_content(checks: Sequence[Check]) -> Iterator[Block]:
    """Yield every check in order, its fix on a row of its own, then the verdict."""
    rows: list[tuple[str, str, str]] = []
    for check in checks:
        rows.append(("FAILS" if check.state == "fails" else check.state, check.name, check.found))
        rows += [("", "", f"-> {check.remedy}")] if check.remedy else []
    yield table_of(rows, _COLUMNS)
    failed = [check.name for check in checks if check.state == "fails"]
    if failed:
        yield Paragraph(title=f"The main job cannot run: {', '.join(failed)}.", style="alarm")
    else:
        yield Paragraph(title="The main job can run on this machine.")
