"""Defines the results of the checks that `advise doctor` runs."""

from dataclasses import dataclass
from typing import Literal

CheckState = Literal["ok", "note", "missing", "fails"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check.

    - `state`: "note" is information; "missing" means that ranking works without it; "fails" means that it does not
    - `found`: what the check found
    - `remedy`: what the user can do, if anything
    """

    name: str
    state: CheckState
    found: str
    remedy: str = ""
