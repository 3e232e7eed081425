"""Displays an answer as text at a Python prompt and as HTML in a notebook."""

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from advisor.report.content import Block


class Displayed:
    """An answer that displays its content, which `NAME_content` in `advisor.report.NAME` makes."""

    __slots__ = ()
    _name: ClassVar[str]

    def __init_subclass__(cls, *, report: str = "", **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if report:
            cls._name = report

    def _content(self) -> "Iterator[Block]":
        content: Iterator[Block] = getattr(import_module(f"advisor.report.{self._name}"), f"{self._name}_content")(self)
        return content

    def __repr__(self) -> str:
        from advisor.report.terminal import displayed

        return displayed(self._content())

    def _repr_html_(self) -> str:
        from advisor.report.notebook import to_fragment

        return to_fragment(self._content())
