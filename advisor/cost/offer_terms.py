"""Collects the billing terms of the selected offers as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter

import numpy as np

from advisor.cost.interruptions import interruptions_per_s
from advisor.cost.service import SECONDS_PER_MONTH
from advisor.cost.start_up import NO_START_UP, start_up_of
from advisor.records.answer import Job
from advisor.records.billing import Billing
from advisor.records.prediction import BoolArray, Fleet, FloatArray, IndexArray
from advisor.records.price import PricedOffer

_OWNED = ""
"""Stands for the provider of the user's own hardware, which needs no start-up and has no billing increments."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OfferTerms:
    """Billing terms; all arrays are (offers,). Unknown increments and interruption rates are 0.

    `start_up_low_s` and `start_up_high_s` are the ends of the 90 % interval. `start_up_measured` is False if the
    start-up time comes from other clouds. `wait_s`, `quota_instances` (infinite without a quota), storage, egress and
    tax come from the user's overlay. `machine_count` is the number of machines that run the job together; for a service
    the load decides that instead.
    """

    usd_per_hour: FloatArray
    wait_s: FloatArray
    start_up_s: FloatArray
    start_up_low_s: FloatArray
    start_up_high_s: FloatArray
    start_up_measured: BoolArray
    increment_s: FloatArray
    minimum_s: FloatArray
    interruptions_per_s: FloatArray
    storage_usd_per_s: FloatArray
    egress_usd: FloatArray
    tax_ratio: FloatArray
    quota_instances: FloatArray
    machine_count: FloatArray

    def of(self, offers: IndexArray) -> "OfferTerms":
        """Return the terms of the offers at these indices."""
        return OfferTerms(**{field.name: getattr(self, field.name)[offers] for field in fields(self)})


def offer_terms(priced: Sequence[PricedOffer], *, billing: Billing, job: Job) -> OfferTerms:
    """Return the terms of each offer.

    A job of assumed size has no start-up, no rounding and no interruptions, since it keeps the device busy; neither has
    a service that runs all month.
    """
    usd_per_hour = np.array([one.price.usd_per_hour for one in priced], dtype=np.float64)
    nothing = np.zeros_like(usd_per_hour)
    unstarted = OfferTerms(
        usd_per_hour=usd_per_hour,
        wait_s=nothing,
        start_up_s=nothing,
        start_up_low_s=nothing,
        start_up_high_s=nothing,
        start_up_measured=np.zeros(len(priced), dtype=np.bool_),
        increment_s=nothing,
        minimum_s=nothing,
        interruptions_per_s=nothing,
        storage_usd_per_s=nothing,
        egress_usd=nothing,
        tax_ratio=nothing,
        quota_instances=_of_overlay(priced, "quota_instances", without=np.inf),
        machine_count=np.ones_like(usd_per_hour),
    )
    if job.assumed:
        return unstarted
    names = [_OWNED if one.offer.tier == "owned" else one.offer.provider for one in priced]
    numbers: dict[str, int] = {}
    number_of = np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.intp)
    is_rented = np.array([name != _OWNED for name in numbers], dtype=np.float64)[number_of]
    rented = replace(
        unstarted,
        storage_usd_per_s=is_rented * (billing.extras.storage_usd_per_month or 0.0) / SECONDS_PER_MONTH,
        egress_usd=is_rented * (billing.extras.egress_usd or 0.0),
        tax_ratio=is_rented * (billing.extras.tax_percent or 0.0) / 100,
    )
    if job.requests_per_day is not None:
        return rented
    increments = [
        (rule.increment_s, rule.minimum_s) if rule else (0.0, 0.0) for rule in map(billing.rules.get, numbers)
    ]
    increment_s, minimum_s = np.array(increments, dtype=np.float64).reshape(-1, 2)[number_of].T
    start_ups = [NO_START_UP if name == _OWNED else start_up_of(name, billing.start_ups) for name in numbers]
    middle_s, low_s, high_s = np.array([(one.mid, one.low, one.high) for one in start_ups]).reshape(-1, 3)[number_of].T
    measured = np.array([name in billing.start_ups for name in numbers], dtype=np.bool_)
    return replace(
        rented,
        wait_s=_of_overlay(priced, "wait_s", without=0.0),
        start_up_s=middle_s,
        start_up_low_s=low_s,
        start_up_high_s=high_s,
        start_up_measured=measured[number_of],
        increment_s=increment_s,
        minimum_s=minimum_s,
        interruptions_per_s=_interruption_rates(priced, job=job),
    )


def latest_starts_s(
    priced: Sequence[PricedOffer], fleet: Fleet, *, device_count: int, billing: Billing, job: Job
) -> FloatArray:
    """Return the longest time from request to start over the offers of each device, (devices,).

    `fleet` belongs to the offers. The times are 0 without a deadline.
    """
    starts_s = np.zeros(device_count)
    if job.limits.deadline_s is None:
        return starts_s
    terms = offer_terms(priced, billing=billing, job=job)
    has_device = fleet.device_index >= 0
    np.maximum.at(starts_s, fleet.device_index[has_device], (terms.wait_s + terms.start_up_s)[has_device])
    return starts_s


def _of_overlay(priced: Sequence[PricedOffer], name: str, *, without: float) -> FloatArray:
    """Return the value of each offer from the user's overlay, or `without` if it has none."""
    column = np.array(list(map(attrgetter(f"offer.{name}"), priced)), dtype=np.float64)  # None is NaN
    return np.where(np.isnan(column), without, column)


def _interruption_rates(priced: Sequence[PricedOffer], *, job: Job) -> FloatArray:
    if job.price != "spot":
        return np.zeros(len(priced))
    rates: dict[str | None, float] = {None: 0.0}
    for one in priced:
        interruption = one.offer.interruption
        if interruption is not None and interruption not in rates:
            rates[interruption] = interruptions_per_s(interruption)
    kept = (one.offer.interruption if one.price.kind == "spot" else None for one in priced)
    return np.array([rates[interruption] for interruption in kept], dtype=np.float64)
