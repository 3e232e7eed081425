"""Lists which parts the cost of a job includes and which it leaves out."""

from advisor.cost.interruptions import interruption_of
from advisor.cost.offer_terms import egress_usd, storage_usd_per_month
from advisor.records.answer import CostPart, Job
from advisor.records.billing import Billing
from advisor.records.price import PricedOffer, PriceKind

_TERM_HOURS: dict[PriceKind, float] = {"commit_1y": 8760.0, "commit_3y": 26280.0}
"""365 days of 24 h, once and three times."""


def coverage(job: Job, priced: PricedOffer, *, billing: Billing) -> tuple[tuple[CostPart, ...], tuple[CostPart, ...]]:
    """Return the parts that the cost includes and those it leaves out; parts that do not apply are in neither."""
    offer, kind = priced.offer, priced.price.kind
    is_rented, is_started, is_sized = kind != "owned", job.requests_per_day is None, not job.assumed
    applies_and_known: dict[CostPart, tuple[bool, bool]] = {
        "compute": (True, True),
        "start-up": (is_rented and is_started, is_sized and bool(billing.start_ups)),
        "lost-work": (kind == "spot" and is_started, is_sized and interruption_of(priced, billing=billing) is not None),
        "billing-increments": (is_rented and is_started, is_sized and offer.provider in billing.rules),
        "idle-time": (not is_started, True),
        "storage": (
            is_rented,
            is_sized and storage_usd_per_month(offer.provider, billing=billing, job=job) is not None,
        ),
        "egress": (is_rented, is_sized and egress_usd(offer.provider, billing=billing, job=job) is not None),
        "tax": (is_rented, is_sized and billing.extras.tax_percent is not None),
        "quota": (is_rented, offer.quota_instances is not None),
        "availability": (is_rented, is_sized and offer.wait_s is not None),
    }
    covered, not_covered = (
        tuple(part for part, (applies, known) in applies_and_known.items() if applies and known == is_covered)
        for is_covered in (True, False)
    )
    return covered, not_covered


def commitment_usd(kind: PriceKind, *, usd_per_hour: float, instance_count: int) -> float | None:
    """Return the total to pay over the term of a commitment, used or not; None without one."""
    hours = _TERM_HOURS.get(kind)
    return None if hours is None else hours * usd_per_hour * instance_count
