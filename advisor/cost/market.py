"""Holds the offers that compete for the jobs of a question, and what the choice of plans and batches needs of them."""

from dataclasses import dataclass, fields

import numpy as np

from advisor.cost.offer_terms import OfferTerms, latest_starts_s, most_machines_on, offer_terms
from advisor.cost.selection import Selection
from advisor.records.answer import Job
from advisor.records.billing import Billing
from advisor.records.prediction import Fleet, FloatArray, IndexArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceTerms:
    """The terms of each device's offers by which plans and batches are chosen; arrays have shape (devices,).

    - `start_up_s`: the longest time from request to start, which counts against a deadline and is paid for
    - `cheapest`: the terms of the cheapest offer, for limits on money; None: money is not limited
    - `most_machines`: the machines that the quota and the limits on money allow
    """

    start_up_s: FloatArray
    cheapest: OfferTerms | None
    most_machines: FloatArray

    def of(self, devices: IndexArray) -> "DeviceTerms":
        """Return the terms of the devices at these indices."""
        return DeviceTerms(
            start_up_s=self.start_up_s[devices],
            cheapest=None if self.cheapest is None else self.cheapest.of(devices),
            most_machines=self.most_machines[devices],
        )


def no_terms(device_count: int) -> DeviceTerms:
    """Return the terms of devices that are there already and cost nothing."""
    return DeviceTerms(start_up_s=np.zeros(device_count), cheapest=None, most_machines=np.full(device_count, np.inf))


class Market:
    """The selected offers, their devices and their billing, for all jobs of one workload.

    `fleet` belongs to the offers of `selection`; it may have further devices, which have no offer. Without `billing`,
    only the hours of computing are priced.
    """

    def __init__(self, selection: Selection, *, fleet: Fleet, billing: Billing | None = None) -> None:
        self.selection, self.fleet, self.billing = selection, fleet, billing or Billing()
        self._terms: dict[tuple[bool, bool, float, float], tuple[OfferTerms, OfferTerms]] = {}

    def terms(self, job: Job) -> OfferTerms:
        """Return the terms of each offer."""
        return self._terms_of(job)[0]

    def on_devices(self, job: Job) -> DeviceTerms:
        """Return the terms of each device."""
        terms, cheapest = self._terms_of(job)
        return DeviceTerms(
            start_up_s=latest_starts_s(terms, self.fleet),
            cheapest=cheapest,
            most_machines=most_machines_on(terms, job.limits, self.fleet),
        )

    def _terms_of(self, job: Job) -> tuple[OfferTerms, OfferTerms]:
        """Return the terms of each offer, and those of each device's cheapest offer."""
        key = job.assumed, job.requests_per_day is None, job.weight_bytes, job.trained_bytes
        if key not in self._terms:
            terms = offer_terms(self.selection.priced, billing=self.billing, job=job)
            self._terms[key] = terms, self._cheapest(terms)
        return self._terms[key]

    def _cheapest(self, terms: OfferTerms) -> OfferTerms:
        """Return the terms of each device's cheapest offer: of those that may win, with a trusted price first.

        A device without an offer costs nothing and has no quota.
        """
        priced = self.selection.priced
        is_apart = np.arange(len(priced)) >= self.selection.may_win_count
        is_untrusted = np.array([not one.is_trusted for one in priced], dtype=np.bool_)
        best_last = np.lexsort((terms.usd_per_hour, is_untrusted, is_apart))[::-1]
        cheapest = np.full(len(self.fleet.devices) + 1, -1)  # the last is for offers without a device
        cheapest[self.fleet.device_index[best_last]] = best_last
        without = {"quota_instances": np.inf}
        columns = {
            field.name: np.append(getattr(terms, field.name), without.get(field.name, 0.0))[cheapest[:-1]]
            for field in fields(OfferTerms)
        }
        return OfferTerms(**columns)
