"""What was tried on this machine, how it went, and what mends it."""

from dataclasses import dataclass
from typing import Literal

CheckState = Literal["ok", "note", "missing", "fails"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing tried. "note": so it is here; "missing": the main job goes on without it; "fails": it cannot run.

    `found` is what was seen; `remedy`, where there is one, what the user can do.
    """

    name: str
    state: CheckState
    found: str
    remedy: str = ""
