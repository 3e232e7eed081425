"""Defines how much of a recommendation is shown, its width, and whether it is coloured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How to show an answer. `top`: rows of a text table (data formats have all). `width`: characters per line."""

    top: int = 10
    width: int = 80
    color: bool = False
