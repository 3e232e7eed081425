"""`-o markdown`: renders any content for an issue, a pull request or a wiki."""

import re
from collections.abc import Iterable, Iterator

from advisor.records.answer import Recommendation
from advisor.report.content import Block, Listing, Paragraph, Table, View, Warnings, printable, shown

SUFFIX = ".md"
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$])")


def render(recommendation: Recommendation, view: View) -> str:
    """Return the answer with every column of its tables."""
    from advisor.report.recommendation import recommendation_content  # late, because `--help` imports every format

    return to_markdown(recommendation_content(recommendation, top=view.top))


def to_markdown(content: Iterable[Block]) -> str:
    """Return the content with every name literal: none can become a link, HTML or a table cell."""
    return "\n".join(line for block in shown(content) for line in _lines(block)).rstrip() + "\n"


def escape(text: str) -> str:
    """Return `text` as literal Markdown on one line."""
    return _SPECIAL.sub(r"\\\1", printable(text))


def _lines(block: Block) -> Iterator[str]:
    """Yield the lines of a block, the last one empty."""
    match block:
        case Paragraph():
            yield from (f"**{escape(block.title)}**", "") if block.title else ()
            for sentence in block.sentences:
                yield from (escape(sentence), "")
        case Listing():
            yield from _bullets(block.title, (*block.items, *block.more))
        case Warnings():
            yield from _bullets("Warnings", block.items)
        case Table():
            yield from (f"{escape(block.title)}:", "") if block.title else ()
            yield _row(column.header for column in block.columns)
            yield "|" + "|".join("---:" if column.is_number else "---" for column in block.columns) + "|"
            yield from map(_row, block.rows)
            yield ""
            notes = (*block.notes, *block.more)
            yield from _bullets("Rows", notes) if notes else ()


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(escape, cells)) + " |"


def _bullets(title: str, items: Iterable[str]) -> Iterator[str]:
    yield from (f"{escape(title)}:", "", *(f"- {escape(item)}" for item in items), "")
