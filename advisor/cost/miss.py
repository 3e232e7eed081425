"""Defines why an offer cannot do the job, and by how much it falls short."""

import math
from dataclasses import dataclass

from advisor.records.price import RejectionCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitViolation:
    """The code and the reason of a rejection.

    `ratio` is the amount needed over the amount available or allowed; infinity if no amount is enough or none is known.
    """

    code: RejectionCode
    reason: str
    ratio: float = math.inf
