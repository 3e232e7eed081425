"""Renders any content as an HTML fragment for notebooks."""

from collections.abc import Iterable, Iterator
from html import escape

from advisor.report.content import Block, Listing, Paragraph, Table, Warnings, printable, shown


def to_fragment(content: Iterable[Block]) -> str:
    """Return the content in plain elements that take the notebook's theme; lists are folded."""
    return "".join(part for block in shown(content) for part in _parts(block))


def _parts(block: Block) -> Iterator[str]:
    match block:
        case Paragraph():
            yield f"<p><strong>{_literal(block.title)}</strong></p>" if block.title else ""
            yield from _paragraphs(block.sentences)
        case Listing():
            items = "".join(f"<li>{_literal(item)}</li>" for item in block.items)
            yield f"<details><summary>{_literal(block.title)}</summary><ul>{items}</ul></details>"
        case Warnings():
            yield from _paragraphs(f"Warning: {item}" for item in block.items)
        case Table():
            yield from _paragraphs([block.title] if block.title else [])
            head = _cells("th", (column.header for column in block.columns))
            body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in block.rows)
            yield f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            yield from _paragraphs(block.notes)


def _paragraphs(texts: Iterable[str]) -> Iterator[str]:
    return (f"<p>{_literal(text)}</p>" for text in texts)


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{_literal(text)}</{tag}>" for text in texts)


def _literal(text: str) -> str:
    return escape(printable(text))
