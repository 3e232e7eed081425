"""Finds the cheapest CPU offer and the cheapest GPU offer for any job of one workload."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from advisor.cost.batch_choice import choose_batches
from advisor.cost.costed_offers import CostedOffers, electricity_log_spread, job_usd_with_ends
from advisor.cost.job_cost import cost_job
from advisor.cost.leading import Purchases, candidates_of, may_lead, purchases_of, trial_usd
from advisor.cost.limits import keeps_all
from advisor.cost.market import Market
from advisor.cost.quotes import quotes_of
from advisor.cost.rank_offers import best_first, best_measured_left_out, cost_within_limits
from advisor.records.answer import Z_90, Interval, Job, Quote
from advisor.records.break_even_curves import KindCost
from advisor.records.device import DeviceKind
from advisor.records.prediction import BoolArray, FloatArray, IndexArray, Predictions

ByKind: TypeAlias = Mapping[DeviceKind, KindCost]
"""The cheapest offer of each device kind; a kind that cannot do the job is missing."""


class KindMarket:
    """The selected offers and their devices, on which it prices many jobs of one workload.

    It takes what `rank` takes but builds no other quotes and no rejections.
    """

    def __init__(self, market: Market) -> None:
        self._market, selection, fleet = market, market.selection, market.fleet
        # The appended entry is at index -1, which means no device.
        is_gpu = np.array([*(device.kind == "gpu" for device in fleet.devices), False], dtype=np.bool_)
        of_offer = is_gpu[fleet.device_index]
        self._members: Mapping[DeviceKind, IndexArray] = {
            "cpu": np.flatnonzero(~of_offer[: selection.may_win_count]),
            "gpu": np.flatnonzero(of_offer[: selection.may_win_count]),
        }
        self._device_counts = np.array([max(1, one.offer.gpu_count) for one in selection.priced], dtype=np.intp)
        self._is_trusted = np.array([one.is_trusted for one in selection.priced], dtype=np.bool_)
        self._price_log_spreads = np.array([one.log_spread for one in selection.priced])

    def cheapest(self, predictions: Predictions, job: Job) -> ByKind:
        """Return the cheapest offer of each device kind; a kind without an offer within the limits is left out.

        Offers that may not lead count only if their kind has no others. Each kind is judged alone: an unmeasured CPU
        must not vanish from the curve because a measured GPU costs about as much. Its quote
        says whether it is a candidate among both kinds, as in the ranking.
        """
        market = self._market
        choice = choose_batches(predictions, job=job, terms=market.on_devices(job))
        costed, limits = cost_within_limits(market, predictions=predictions, choice=choice, job=job)
        may_win = keeps_all(limits, among=np.isfinite(costed.costs.job_usd))
        started = replace(market.terms(replace(job, assumed=False)), machine_count=costed.terms.machine_count)

        of_both = np.flatnonzero(may_win[: market.selection.may_win_count])
        usd, rent_usd = np.full((3, len(may_win)), np.inf), trial_usd(costed.terms, job=job)
        usd[:, of_both] = job_usd_with_ends(costed, of_both, predictions=predictions, job=job)

        def candidates(
            places: IndexArray,
            *,
            purchases: Purchases | None = None,
            left_out: tuple[float, float] | None = None,
        ) -> BoolArray:
            return candidates_of(
                usd[:, places],
                is_trusted=self._is_trusted[places],
                is_measured=predictions.time_sources[costed.device[places], costed.batch_index[places]] != "datasheet",
                trial_usd=rent_usd[places],
                purchases=purchases,
                left_out=left_out,
            )

        left_out = best_measured_left_out(market, costed, of_both.tolist(), predictions=predictions, job=job)
        among_both = frozenset(of_both[candidates(of_both, left_out=left_out)].tolist())
        found = {}
        for kind, members in self._members.items():
            places = members[may_win[members]]
            if not len(places):
                continue
            at = costed.device[places], costed.batch_index[places]
            purchases = purchases_of(
                predictions.step_s[at],
                batch=predictions.batches[costed.batch_index[places]],
                device_count=self._device_counts[places],
                started=started.of(places),
                job=job,
            )
            leads = may_lead(candidates(places, purchases=purchases), costed.costs.job_usd[places], purchases=purchases)
            offers = places[leads] if leads.any() else places
            found[kind] = self._kind_cost(costed, offers, among_both, predictions=predictions, job=job)
        return found

    def _kind_cost(
        self,
        costed: CostedOffers,
        offers: IndexArray,
        among_both: frozenset[int],
        *,
        predictions: Predictions,
        job: Job,
    ) -> KindCost:
        """Return the cheapest of the offers at these indices, with intervals of the lowest cost.

        The ends of the intervals shift all predictions or all prices, so another offer may be the cheapest there.
        """
        devices, batches = costed.device[offers], costed.batch_index[offers]
        terms, batch_sizes = costed.terms.of(offers), predictions.batches[batches]
        step_s = predictions.step_s[devices, batches]
        own, shared = predictions.own_log_spread[devices, batches], predictions.shared_log_spread(devices, batches)
        costs = cost_job(step_s, batch=batch_sizes, terms=terms, job=job)
        price_spread = np.hypot(self._price_log_spreads[offers], electricity_log_spread(costs, terms))

        def least_usd(log_error: FloatArray) -> float:
            return float(cost_job(step_s * np.exp(log_error), batch=batch_sizes, terms=terms, job=job).job_usd.min())

        def least_usd_at_prices(log_error: FloatArray) -> float:
            at_prices = replace(terms, usd_per_hour=terms.usd_per_hour * np.exp(log_error))
            return float(cost_job(step_s, batch=batch_sizes, terms=at_prices, job=job).job_usd.min())

        best = min(offers.tolist(), key=best_first(costed, objective="cost"))
        at = int(np.flatnonzero(offers == best)[0])
        usd = float(costed.costs.job_usd[best])

        def quote() -> Quote:
            (alone,) = quotes_of(costed, [best], predictions=predictions, job=job, billing=self._market.billing)
            return replace(alone, is_candidate=best in among_both)

        return KindCost(
            quote=quote,
            own_usd=_interval(usd, own, least_usd),
            shared_usd=_interval(usd, shared, least_usd),
            price_usd=_interval(usd, price_spread, least_usd_at_prices),
            own_log_spread=float(own[at]),
            shared_log_spread=float(shared[at]),
        )


def _interval(mid_usd: float, log_spread: FloatArray, least_usd: Callable[[FloatArray], float]) -> Interval:
    return Interval(mid=mid_usd, low=least_usd(-Z_90 * log_spread), high=least_usd(Z_90 * log_spread))
