"""How much of a recommendation is shown, how wide, and with colours or without."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """`top`: rows of a table meant for people; data formats hold every row. `width`: characters in a line."""

    top: int = 10
    width: int = 80
    color: bool = False
