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
from advisor.records.prediction import Fleet, FloatArray, IndexArray, Predictions


def cheapest_by_kind(
    selection: Selection, *, fleet: Fleet, predictions: Predictions, job: Job, billing: Billing
) -> Mapping[DeviceKind, KindCost]:
    """Return the cheapest offer of each device kind; a kind without an offer within the limits is left out.

    Offers that may not lead the offers of their kind count only if a kind has no others. The other kind plays no part:
    an unmeasured CPU must not vanish from the curve where a measured GPU costs about as much.

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
    amounts = np.stack([usd, *(usd * np.exp(sign * Z_90 * log_spread) for sign in (-1, 1))])
    is_measured = predictions.time_sources[costed.device, costed.batch_index] != "datasheet"

    def first_of(places: IndexArray) -> IndexArray:
        leads = may_lead(
            amounts[:, places],
            is_trusted=[selection.priced[place].is_trusted for place in places.tolist()],
            is_measured=is_measured[places],
        )
        return places[leads] if leads.any() else places

    members: dict[DeviceKind, IndexArray] = {
        "cpu": first_of(np.flatnonzero(may_win & ~is_gpu)),
        "gpu": first_of(np.flatnonzero(may_win & is_gpu)),
    }
    return {
        kind: _kind_cost(costed, offers, predictions=predictions, job=job, billing=billing)
        for kind, offers in members.items()
        if len(offers)
    }


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
