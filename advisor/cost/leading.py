"""Says which offers may lead an answer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.cost.job_cost import cost_job
from advisor.cost.offer_terms import OfferTerms
from advisor.records.answer import Job, Quote
from advisor.records.machine import LOCAL
from advisor.records.prediction import BoolArray, FloatArray, IndexArray
from advisor.records.price import Tier

ABOUT_THE_SAME = 1.1
"""Costs up to this ratio count as the same if one offer rents for less than half as much: no prediction is surer."""
_TRIAL_HOURS = 1.0
"""Rent to start a machine, install and time a step there: minutes, but some providers bill whole hours."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Purchases:
    """The machines that a job without a size rents; arrays are (offers,). `started_usd` is its cost with start-up."""

    usd_per_hour: FloatArray
    device_count: IndexArray
    started_usd: FloatArray


def purchases_of(
    step_s: FloatArray, *, batch: IndexArray, device_count: IndexArray, started: OfferTerms, job: Job
) -> Purchases | None:
    """Return the machines to rent for the steps; None if the job has a size or the ranking is not by cost.

    `started` are the terms of a job with a size, for the same machines.
    """
    if not job.assumed or job.objective != "cost":
        return None
    return Purchases(
        usd_per_hour=started.usd_per_hour * started.machine_count,
        device_count=device_count,
        started_usd=cost_job(step_s, batch=batch, terms=started, job=replace(job, assumed=False)).job_usd,
    )


def trial_usd(terms: OfferTerms, *, job: Job) -> FloatArray:
    """Return the cost of timing a step on each offer's machines; 0 unless the ranking is by cost."""
    rent: FloatArray = terms.usd_per_hour * terms.machine_count
    return rent * (_TRIAL_HOURS if job.objective == "cost" else 0.0)


def candidates_of(
    amounts: FloatArray,
    *,
    is_trusted: Sequence[bool] | BoolArray,
    is_measured: BoolArray,
    trial_usd: FloatArray | float = 0.0,
    purchases: Purchases | None = None,
    left_out: tuple[float, float] | None = None,
) -> BoolArray:
    """Return which offers are candidates for the best, from their amounts with the interval ends, (3, offers).

    The price must be trusted. If nothing was measured on the device's generation, the prediction rests on the datasheet
    alone, and a step has to be timed there first, for `trial_usd`. Such an offer counts only if the upper end of its
    amount is at most that of the best measured offer, even after adding what its trial costs more than one there. If
    the limits leave out all measured offers, `left_out` is the amount and the trial of the best one without limits.

    With `purchases`, a machine of several devices is no candidate if one with fewer does the job for less, start-up
    included: a node of eight GPUs takes minutes to start and computes for seconds.
    """
    found: BoolArray = np.array(is_trusted, dtype=np.bool_)
    known = found & is_measured
    trial = np.broadcast_to(trial_usd, amounts[0].shape)
    best = left_out
    if known.any():
        place = int(np.flatnonzero(known)[amounts[0][known].argmin()])
        best = float(amounts[0][place]), float(trial[place])
    if best is not None:
        found = found & (is_measured | (amounts[2] + np.maximum(trial - best[1], 0.0) <= best[0]))
    if purchases is None:
        return found
    count, started = purchases.device_count, purchases.started_usd
    return _left(found, lambda one, other: (count[other] < count[one]) & (started[other] < started[one]))


def may_lead(candidates: BoolArray, amounts: FloatArray, *, purchases: Purchases | None) -> BoolArray:
    """Return which of the candidates may lead the answer; `amounts` are point estimates.

    A job without a size pays only while the machine is busy. With `purchases`, an offer does not lead if another one
    with about the same amount rents for less than half as much.
    """
    if purchases is None:
        return candidates
    rent = purchases.usd_per_hour
    return _left(
        candidates, lambda one, other: (amounts[other] <= ABOUT_THE_SAME * amounts[one]) & (rent[other] < rent[one] / 2)
    )


def _left(leads: BoolArray, yields_to: Callable[[Any, IndexArray], BoolArray]) -> BoolArray:
    """Return `leads` without the offers that yield to any of the others; `yields_to` takes indices."""
    places = np.flatnonzero(leads)
    left = np.zeros_like(leads)
    left[places] = ~yields_to(places[:, np.newaxis], places).any(axis=1)
    return left


def best_of(quotes: Iterable[Quote]) -> Quote | None:
    """Return the first quote that may lead, or the first of all if none may; None without quotes."""
    ranked = tuple(quotes)
    return next((quote for quote in ranked if quote.may_lead), ranked[0] if ranked else None)


def best_by_tier(quotes: Iterable[Quote]) -> Mapping[Tier, Quote]:
    """Return the best quote of each tier, in the order of the ranking, without the local machine."""
    by_tier: dict[Tier, list[Quote]] = {}
    for quote in (quote for quote in quotes if quote.provider != LOCAL):
        by_tier.setdefault(quote.tier, []).append(quote)
    return {tier: best for tier, members in by_tier.items() if (best := best_of(members)) is not None}
