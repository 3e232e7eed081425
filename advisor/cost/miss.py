"""Why an offer does not do the job, and by how much it misses it."""

import math
from dataclasses import dataclass

from advisor.records.price import RejectionCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """Code and reason of a rejection. `ratio`: how many times what is there or allowed would be needed; infinity: no
    amount would do, or nobody counts it.
    """

    code: RejectionCode
    reason: str
    ratio: float = math.inf
