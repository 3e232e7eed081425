"""Renders any content as an HTML fragment for notebooks."""

from collections.abc import Iterable, Iterator
from html import escape

from advisor.report.content import Block, Listing, Paragraph, Table, Warnings, printable, shown

_MOST_OPEN = 5
_STYLES = {True: "white-space:nowrap", False: "white-space:nowrap;text-align:left"}
"""By whether a column has numbers. Notebooks align all cells to the right and wrap them."""


def to_fragment(content: Iterable[Block]) -> str:
    """Return the content in plain elements that take the notebook's theme; long lists are folded."""
    return "".join(part for block in shown(content) for part in _parts(block))


def _parts(block: Block) -> Iterator[str]:
    match block:
        case Paragraph():
            yield f"<p><strong>{_literal(block.title)}</strong></p>" if block.title else ""
            yield from _paragraphs(block.sentences)
        case Listing():
            items = "".join(f"<li>{_literal(item)}</li>" for item in (*block.items, *block.more))
            is_open = " open" if len(block.items) <= _MOST_OPEN and not block.more else ""
            yield f"<details{is_open}><summary>{_literal(block.title)}</summary><ul>{items}</ul></details>"
        case Warnings():
            yield from _paragraphs(f"Warning: {item}" for item in block.items)
        case Table():
            yield from _paragraphs([block.title] if block.title else [])
            styles = [_STYLES[column.is_number] for column in block.columns]
            head = _cells("th", (column.header for column in block.columns), styles)
            body = "".join(f"<tr>{_cells('td', row, styles)}</tr>" for row in block.rows)
            table = f'<table style="margin-left:0"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
            yield f'<div style="overflow-x:auto">{table}</div>'
            yield from _paragraphs((*block.notes, *block.more))


def _paragraphs(texts: Iterable[str]) -> Iterator[str]:
    return (f"<p>{_literal(text)}</p>" for text in texts)


def _cells(tag: str, texts: Iterable[str], styles: Iterable[str]) -> str:
    cells = zip(texts, styles, strict=True)
    return "".join(f'<{tag} style="{style}">{_literal(text)}</{tag}>' for text, style in cells)


def _literal(text: str) -> str:
    return escape(printable(text))
