"""Displays an answer as text at a Python prompt and as HTML in a notebook."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.report.content import Block


class Displayed:
    """An answer that displays its content."""

    __slots__ = ()

    def _content(self) -> "Iterator[Block]":
        raise NotImplementedError

    def __repr__(self) -> str:
        from advisor.report.terminal import displayed

        return displayed(self._content())

    def _repr_html_(self) -> str:
        from advisor.report.notebook import to_fragment

        return to_fragment(self._content())
