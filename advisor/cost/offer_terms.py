"""Collects the billing terms of the selected offers as arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache

import numpy as np

from advisor.cost.interruptions import interruption_of, interruptions_per_s
from advisor.cost.service import HOURS_PER_MONTH, SECONDS_PER_MONTH
from advisor.cost.start_up import StartUpTimes, start_up_of
from advisor.records.answer import Job, JobLimits
from advisor.records.billing import Billing
from advisor.records.prediction import BoolArray, Fleet, FloatArray, IndexArray
from advisor.records.price import Offer, Price, PricedOffer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OfferTerms:
    """Billing terms; all arrays are (offers,). Unknown increments and interruption rates are 0.

    - `usd_per_hour`: the price of an hour of work
    - `wait_s`: until a machine is available, from the user's overlay
    - `start_up_s`: of a machine; a service pays for none, so there it is that of one more instance
    - `start_up_low_s`, `start_up_high_s`: the ends of its 90 % interval
    - `start_up_measured`: False if the start-up time comes from other clouds
    - `software_s`, `weights_s`: parts of `start_up_s`
    - `increment_s`, `minimum_s`: of billed time
    - `storage_usd_per_s`, `egress_usd`: from our data or from the user's overlay
    - `tax_ratio`: from the user's overlay
    - `quota_instances`: from the user's overlay; infinite without a quota
    - `machine_count`: machines that run the job or serve a model together, as one group; the load of a service decides
      how many groups there are
    - `server_count`: batches that a group works on at a time
    - `least_count`: the fewest groups that keep limits on percentiles of tokens
    - `electricity_usd_per_kwh`: what the owner pays for a machine whose price follows its power; 0 for others
    - `idle_price_ratio`: the price of an idle hour over `usd_per_hour`; 1 unless the price follows the power
    - `power_log_spread`, `idle_power_log_spread`: the errors of these two prices that come from predicted watts
    """

    usd_per_hour: FloatArray
    wait_s: FloatArray
    start_up_s: FloatArray
    start_up_low_s: FloatArray
    start_up_high_s: FloatArray
    start_up_measured: BoolArray
    software_s: FloatArray
    weights_s: FloatArray
    increment_s: FloatArray
    minimum_s: FloatArray
    interruptions_per_s: FloatArray
    storage_usd_per_s: FloatArray
    egress_usd: FloatArray
    tax_ratio: FloatArray
    quota_instances: FloatArray
    machine_count: FloatArray
    server_count: FloatArray
    least_count: FloatArray
    electricity_usd_per_kwh: FloatArray
    idle_price_ratio: FloatArray
    power_log_spread: FloatArray
    idle_power_log_spread: FloatArray

    def of(self, offers: IndexArray) -> "OfferTerms":
        """Return the terms of the offers at these indices."""
        return OfferTerms(**{field.name: getattr(self, field.name)[offers] for field in fields(self)})


def offer_terms(priced: Sequence[PricedOffer], *, billing: Billing, job: Job) -> OfferTerms:
    """Return the terms of each offer.

    A job of assumed size has no start-up, no rounding and no interruptions, since it keeps the device busy; a service
    that runs all month has no rounding and no interruptions. Owned hardware has no start-up, no billing increments and
    no extra costs.
    """

    def column(value: Callable[[PricedOffer], float | None], *, without: float = 0.0) -> FloatArray:
        values = map(value, priced)
        return np.array([without if one is None else one for one in values], dtype=np.float64)

    @cache
    def start_up(provider: str, is_gpu: bool) -> StartUpTimes:
        return start_up_of(provider, billing, is_gpu=is_gpu, weight_bytes=job.weight_bytes)

    rules, extras = billing.rules, billing.extras
    is_rented = column(lambda one: one.offer.tier != "owned" and not job.assumed)
    is_started = is_rented * (job.requests_per_day is None)

    def started(seconds: Callable[[StartUpTimes], float]) -> FloatArray:
        return is_rented * column(lambda one: seconds(start_up(one.offer.provider, one.offer.gpu is not None)))

    return OfferTerms(
        usd_per_hour=column(lambda one: usd_per_hour_of(one.offer, one.price, job=job)),
        wait_s=is_started * column(lambda one: one.offer.wait_s),
        start_up_s=started(lambda one: one.total_s.mid),
        start_up_low_s=started(lambda one: one.total_s.low),
        start_up_high_s=started(lambda one: one.total_s.high),
        start_up_measured=(is_rented * column(lambda one: one.offer.provider in billing.start_ups)).astype(np.bool_),
        software_s=started(lambda one: one.software_s),
        weights_s=started(lambda one: one.weights_s),
        increment_s=is_started
        * column(lambda one: rules[one.offer.provider].increment_s if one.offer.provider in rules else None),
        minimum_s=is_started
        * column(lambda one: rules[one.offer.provider].minimum_s if one.offer.provider in rules else None),
        interruptions_per_s=is_started * column(lambda one: interruptions_per_s(interruption_of(one, billing=billing))),
        storage_usd_per_s=is_rented
        * column(lambda one: storage_usd_per_month(one.offer.provider, billing=billing, job=job))
        / SECONDS_PER_MONTH,
        egress_usd=is_rented * column(lambda one: egress_usd(one.offer.provider, billing=billing, job=job)),
        tax_ratio=is_rented * (extras.tax_percent or 0.0) / 100,
        quota_instances=column(lambda one: one.offer.quota_instances, without=np.inf),
        machine_count=np.ones(len(priced)),
        server_count=np.ones(len(priced)),
        least_count=np.ones(len(priced)),
        electricity_usd_per_kwh=column(lambda one: one.offer.electricity_usd_per_kwh),
        idle_price_ratio=np.ones(len(priced)),
        power_log_spread=np.zeros(len(priced)),
        idle_power_log_spread=np.zeros(len(priced)),
    )


def usd_per_hour_of(offer: Offer, price: Price, *, job: Job) -> float:
    """Return the price of an hour of work; a service takes an owned machine for all hours, used or not."""
    if offer.running_usd_per_hour is None or job.requests_per_day is None:
        return price.usd_per_hour
    return offer.running_usd_per_hour + (price.usd_per_hour - offer.running_usd_per_hour) * offer.used_ratio


def storage_usd_per_month(provider: str, *, billing: Billing, job: Job) -> float | None:
    """Return the price of one machine's disk, larger if the weights need more; None if it is not known."""
    disk = billing.extra_costs.disks.get(provider)
    if billing.extras.storage_usd_per_month is not None or disk is None:
        return billing.extras.storage_usd_per_month
    return disk.usd_per_month * max(1.0, (job.weight_bytes + job.trained_bytes) / disk.size_bytes)


def egress_usd(provider: str, *, billing: Billing, job: Job) -> float | None:
    """Return the price of taking the job's results out of the cloud; None if it is not known.

    Training takes the trained weights out once. The results of inference are not known: a label, or a whole image.
    """
    egress = billing.extra_costs.egress.get(provider)
    if billing.extras.egress_usd is not None or egress is None or job.mode == "inference":
        return billing.extras.egress_usd
    return max(0.0, job.trained_bytes - egress.free_bytes) / 1e12 * egress.usd_per_tb


def most_machines(terms: OfferTerms, limits: JobLimits) -> FloatArray:
    """Return the machines that the quota, the hourly limit and the budget of a service's month allow, (offers,)."""
    usd_per_month = terms.usd_per_hour * HOURS_PER_MONTH + terms.storage_usd_per_s * SECONDS_PER_MONTH
    taxed, most = 1 + terms.tax_ratio, terms.quota_instances
    for limit_usd, once_usd, each_usd in (
        (limits.max_usd_per_hour, 0.0, terms.usd_per_hour),
        (limits.max_usd, terms.egress_usd * taxed, usd_per_month * taxed),
    ):
        if limit_usd is not None:
            left_usd = np.maximum(0.0, limit_usd - once_usd)
            affordable = np.divide(left_usd, each_usd, out=np.full_like(each_usd, np.inf), where=each_usd > 0)
            most = np.minimum(most, np.floor(affordable))
    return most


def most_machines_on(terms: OfferTerms, limits: JobLimits, fleet: Fleet) -> FloatArray:
    """Return the largest of `most_machines` over the offers of each device, (devices,), at least 1."""
    most = np.ones(len(fleet.devices))
    has_device = fleet.device_index >= 0
    np.maximum.at(most, fleet.device_index[has_device], most_machines(terms, limits)[has_device])
    return most


def latest_starts_s(terms: OfferTerms, fleet: Fleet) -> FloatArray:
    """Return the longest time from request to start over the offers of each device, (devices,).

    `terms` and `fleet` belong to the same offers.
    """
    starts_s = np.zeros(len(fleet.devices))
    has_device = fleet.device_index >= 0
    np.maximum.at(starts_s, fleet.device_index[has_device], (terms.wait_s + terms.start_up_s)[has_device])
    return starts_s
