"""Lists which parts the cost of a job includes and which it leaves out."""

from typing import NamedTuple

from advisor.records.answer import CostPart, Job
from advisor.records.billing import Extras
from advisor.records.price import PriceKind

_TERM_HOURS: dict[PriceKind, float] = {"commit_1y": 8760.0, "commit_3y": 26280.0}
"""365 days of 24 h, once and three times."""


class KnownTerms(NamedTuple):
    """The kind of an offer's price, and which of its terms are known. Hundreds of offers share a few combinations."""

    price_kind: PriceKind
    start_up: bool
    increments: bool
    interruptions: bool
    quota: bool
    wait: bool


def coverage(job: Job, *, extras: Extras, known: KnownTerms) -> tuple[tuple[CostPart, ...], tuple[CostPart, ...]]:
    """Return the parts that the cost includes and those it leaves out; parts that do not apply are in neither."""
    is_service, is_owned = job.requests_per_day is not None, known.price_kind == "owned"
    parts: dict[CostPart, bool | None] = {
        "compute": True,
        "start-up": None if is_service or is_owned else known.start_up and not job.assumed,
        "lost-work": known.interruptions and not job.assumed if known.price_kind == "spot" and not is_service else None,
        "billing-increments": None if is_service or is_owned else known.increments and not job.assumed,
        "idle-time": True if is_service else None,
        "storage": None if is_owned else extras.storage_usd_per_month is not None and not job.assumed,
        "egress": None if is_owned else extras.egress_usd is not None and not job.assumed,
        "tax": None if is_owned else extras.tax_percent is not None and not job.assumed,
        "quota": None if is_owned else known.quota,
        "availability": None if is_owned else known.wait and not job.assumed,
    }
    covered = tuple(part for part, is_covered in parts.items() if is_covered)
    return covered, tuple(part for part, is_covered in parts.items() if is_covered is False)


def commitment_usd(kind: PriceKind, *, usd_per_hour: float, instance_count: int) -> float | None:
    """Return what a committed price must be paid over its term, used or not; None without a commitment."""
    hours = _TERM_HOURS.get(kind)
    return None if hours is None else hours * usd_per_hour * instance_count
