"""Finds the cheapest CPU offer and the cheapest GPU offer for a job."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from advisor.cost.batch_choice import choose_batches
from advisor.cost.job_cost import cost_job
from advisor.cost.limits import keeps_all, offer_limits
from advisor.cost.quotes import CostedOffers, may_lead, quotes_of
from advisor.cost.rank_offers import best_first, cost_offers
from advisor.cost.selection import Selection
from advisor.records.answer import Z_90, Interval, Job
from advisor.records.billing import Billing
from advisor.records.break_even_curves import KindCost
from advisor.records.device import DeviceKind
from advisor.records.prediction import BoolArray, Fleet, FloatArray, IndexArray, Predictions


def cheapest_by_kind(
    selection: Selection, *, fleet: Fleet, predictions: Predictions, job: Job, billing: Billing
) -> Mapping[DeviceKind, KindCost]:
    """Return the cheapest offer of each device kind; a kind without an offer within the limits is left out.

    Offers that may not lead the answer count only if a kind has no others.

    This takes the same arguments as `rank` but builds no other quotes and no rejections, so it can run for many jobs
    of one workload.
    """
    choice = choose_batches(predictions, job=job)
    costed = cost_offers(
        selection.priced, fleet=fleet, predictions=predictions, choice=choice, billing=billing, job=job
    )
    limits = offer_limits(job.limits, costs=costed.costs, terms=costed.terms)
    may_win = keeps_all(limits, among=np.isfinite(costed.costs.job_usd))
    may_win[selection.may_win_count :] = False
    is_gpu = np.array([device.kind == "gpu" for device in fleet.devices], dtype=np.bool_)[fleet.device_index]
    usd, log_spread = costed.costs.job_usd, predictions.log_spread[costed.device, costed.batch_index]
    leads = may_lead(
        np.stack([usd, *(usd * np.exp(sign * Z_90 * log_spread) for sign in (-1, 1))]),
        is_trusted=[one.is_trusted for one in selection.priced],
        is_measured=predictions.time_sources[costed.device, costed.batch_index] != "datasheet",
    )
    members: dict[DeviceKind, IndexArray] = {
        "cpu": _first_of(may_win & ~is_gpu, leads=leads),
        "gpu": _first_of(may_win & is_gpu, leads=leads),
    }
    return {
        kind: _kind_cost(costed, offers, predictions=predictions, job=job, billing=billing)
        for kind, offers in members.items()
        if len(offers)
    }


def _first_of(members: BoolArray, *, leads: BoolArray) -> IndexArray:
    """Return the indices of the members that may lead the answer, or of all if none may."""
    leading = members & leads
    return np.flatnonzero(leading if leading.any() else members)


def _kind_cost(
    costed: CostedOffers, offers: IndexArray, *, predictions: Predictions, job: Job, billing: Billing
) -> KindCost:
    """Return the cheapest of the offers at these indices, with intervals of the lowest cost.

    The ends of the intervals shift all predictions or all prices, so another offer may be the cheapest there.
    """
    devices, batches = costed.device[offers], costed.batch_index[offers]
    terms, batch_sizes = costed.terms.of(offers), predictions.batches[batches]
    step_s = predictions.step_s[devices, batches]
    whole, own = predictions.log_spread[devices, batches], predictions.own_log_spread[devices, batches]
    shared = np.sqrt(np.maximum(whole**2 - own**2, 0.0))
    of_prices = np.array([costed.priced[index].log_spread for index in offers.tolist()])

    def least_usd(log_error: FloatArray) -> float:
        return float(cost_job(step_s * np.exp(log_error), batch=batch_sizes, terms=terms, job=job).job_usd.min())

    def least_usd_at_prices(log_error: FloatArray) -> float:
        at_prices = replace(terms, usd_per_hour=terms.usd_per_hour * np.exp(log_error))
        return float(cost_job(step_s, batch=batch_sizes, terms=at_prices, job=job).job_usd.min())

    best = min(offers.tolist(), key=best_first(costed, objective="cost"))
    (quote,) = quotes_of(costed, [best], predictions=predictions, job=job, billing=billing)
    at = int(np.flatnonzero(offers == best)[0])
    return KindCost(
        quote=quote,
        own_usd=_interval(quote.job_usd.mid, own, least_usd),
        shared_usd=_interval(quote.job_usd.mid, shared, least_usd),
        price_usd=_interval(quote.job_usd.mid, of_prices, least_usd_at_prices),
        own_log_spread=float(own[at]),
        shared_log_spread=float(shared[at]),
    )


def _interval(mid_usd: float, log_spread: FloatArray, least_usd: Callable[[FloatArray], float]) -> Interval:
    return Interval(mid=mid_usd, low=least_usd(-Z_90 * log_spread), high=least_usd(Z_90 * log_spread))
