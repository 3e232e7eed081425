"""Judges the offers against each other: which may lead the answer, and how likely each is the cheapest."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.cost.cheapest import REACH, CostsByTime, SharedError, chances_of_cheapest, indistinguishable
from advisor.cost.costed_offers import ChosenOffers
from advisor.cost.job_cost import JobCosts, cost_job
from advisor.cost.leading import candidates_of, may_lead, purchases_of, trial_usd
from advisor.cost.offer_terms import offer_terms
from advisor.cost.power import grid_of
from advisor.records.answer import Z_90, Job
from advisor.records.billing import Billing
from advisor.records.energy import EnergyData
from advisor.records.options import Objective
from advisor.records.prediction import BoolArray, FloatArray, Predictions
from advisor.records.price import PricedOffer

_POINT_COUNT = 161
"""Errors of the step's time at which a service is costed."""
_LIKELY = 0.05
"""Least chance of being the cheapest at which an offer of a service is too close to call."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """How offers compare, (offers,): see the fields of `Quote`.

    `chance_cheapest` is among all, `chance_among_candidates` among the `is_candidate`.
    """

    is_candidate: BoolArray
    may_lead: BoolArray
    chance_cheapest: FloatArray
    chance_among_candidates: FloatArray
    is_too_close: BoolArray
    on_pareto_front: Sequence[bool]
    on_co2_front: Sequence[bool]


def standing_of(
    offers: ChosenOffers,
    *,
    predictions: Predictions,
    job: Job,
    billing: Billing,
    left_out: tuple[float, float] | None = None,
) -> Standing:
    """Compare the offers by the job's objective; the chances are always those of the lowest cost.

    `left_out` as in `candidates_of`.
    """
    priced, at = offers.priced, (offers.device, offers.batch_index)
    time_s = offers.job_s if job.requests_per_day is None else offers.step_time_s
    amounts = {
        "cost": offers.job_usd,
        "time": time_s,
        "cost-time": offers.job_usd * time_s,
        "co2": offers.co2_kg,
    }[job.objective]
    started = offer_terms(priced, billing=billing, job=replace(job, assumed=False))
    purchases = purchases_of(
        offers.step_s[0],
        batch=offers.batch,
        device_count=np.array([max(1, one.offer.gpu_count) for one in priced]),
        started=replace(started, machine_count=offers.terms.machine_count),
        job=job,
    )
    is_candidate = candidates_of(
        amounts,
        is_trusted=[one.is_trusted for one in priced],
        is_measured=predictions.time_sources[at] != "datasheet",
        trial_usd=trial_usd(offers.terms, job=job),
        purchases=purchases,
        left_out=left_out,
    )
    leads = may_lead(is_candidate, amounts[0], purchases=purchases)
    errors_of_usd = _errors(offers, predictions, job=job, billing=billing, of="cost")
    usd, by_time, usd_errors = offers.step_usd[0], None, errors_of_usd
    if job.requests_per_day is not None:
        by_time, usd_errors = _costs_by_time(offers, predictions, job=job), _price_errors(offers, predictions)
    candidates = np.flatnonzero(is_candidate if is_candidate.any() else ~is_candidate)
    chances = chances_of_cheapest(usd, errors=usd_errors, by_time=by_time)
    is_all = len(candidates) == len(chances)
    among = chances if is_all else chances_of_cheapest(usd, errors=usd_errors, by_time=by_time, among=candidates)
    errors = errors_of_usd
    if job.objective != "cost":
        errors = _errors(offers, predictions, job=job, billing=billing, of=job.objective)
    best = int(leads.argmax())
    is_too_close = indistinguishable(amounts[0], errors=errors, best=best)
    if by_time is not None and job.objective == "cost":
        is_too_close |= (among >= _LIKELY) & (np.arange(len(usd)) != best)
    return Standing(
        is_candidate=is_candidate,
        may_lead=leads,
        chance_cheapest=chances,
        chance_among_candidates=among,
        is_too_close=is_too_close,
        on_pareto_front=pareto_front(offers.job_usd[0], offers.step_time_s[0]),
        on_co2_front=pareto_front(offers.job_usd[0], np.where(np.isnan(offers.co2_kg[0]), np.inf, offers.co2_kg[0])),
    )


def _costs_by_time(offers: ChosenOffers, predictions: Predictions, *, job: Job) -> CostsByTime:
    """Return the costs of a service by the error of its step's time: a slower step may need more instances."""
    at = offers.device, offers.batch_index
    model = SharedError(log_spread=predictions.shared_log_spread(*at), source=[""] * len(offers.priced))
    log_error = np.linspace(-1.0, 1.0, _POINT_COUNT) * REACH * float(predictions.log_spread[at].max())
    costs = [
        cost_job(offers.step_s[0] * ratio, batch=offers.batch, terms=offers.terms, job=job).job_usd
        for ratio in np.exp(log_error)
    ]
    return CostsByTime(
        log_error=log_error, usd=np.stack(costs), errors=[*_time_errors(offers, predictions, elasticity=1.0), model]
    )


def _time_errors(
    offers: ChosenOffers, predictions: Predictions, *, elasticity: FloatArray | float
) -> list[SharedError]:
    """Return the errors of the step's time by device and by host, times an elasticity."""
    at, ids = (offers.device, offers.batch_index), _device_ids(offers, predictions)
    own_log_spread = predictions.own_log_spread[at]
    host_log_spread = np.zeros_like(own_log_spread)
    if predictions.host_log_spread is not None:
        host_log_spread = predictions.host_log_spread[at]
    device_log_spread = np.sqrt(np.maximum(own_log_spread**2 - host_log_spread**2, 0.0))
    return [
        SharedError(log_spread=device_log_spread * elasticity, source=ids),
        SharedError(log_spread=host_log_spread * elasticity, source=[one.offer.cpu for one in offers.priced]),
    ]


def _errors(
    offers: ChosenOffers, predictions: Predictions, *, job: Job, billing: Billing, of: Objective
) -> list[SharedError]:
    """Return the independent errors of the compared amount (cost, time, cost x time or CO2), as shares of it."""
    elasticity = _of_objective(of, *(_elasticity(one, offers.step_s) for one in (offers.step_usd, offers.step_time_s)))
    errors = _time_errors(offers, predictions, elasticity=elasticity)
    if job.requests_per_day is None:
        errors.append(_start_up_error(offers, job=job, of=of))
    if of == "co2":
        return [
            *errors,
            SharedError(log_spread=offers.power.log_spread, source=_device_ids(offers, predictions)),
            _grid_error(offers.priced, billing.energy),
        ]
    return errors if of == "time" else [*errors, *_price_errors(offers, predictions)]


def _start_up_error(offers: ChosenOffers, *, job: Job, of: Objective) -> SharedError:
    """Return the error from the start-up time of a job that ends, which the offers of a provider share."""
    low, high = (
        cost_job(offers.step_s[0], batch=offers.batch, terms=replace(offers.terms, start_up_s=end_s), job=job)
        for end_s in (offers.terms.start_up_low_s, offers.terms.start_up_high_s)
    )

    def log_spread(less: JobCosts, more: JobCosts) -> FloatArray:
        of_usd, of_time = (
            np.log(np.divide(most, least, out=np.ones_like(least), where=least > 0)) / Z_90
            for least, most in ((less.job_usd, more.job_usd), (less.job_s, more.job_s))
        )
        return _of_objective(of, of_usd, of_time)

    return SharedError(
        log_spread=log_spread(offers.costs, high),
        log_spread_below=log_spread(low, offers.costs),
        source=[one.offer.provider for one in offers.priced],
    )


def _of_objective(of: Objective, of_usd: FloatArray, of_time: FloatArray) -> FloatArray:
    """Return the spread or elasticity of what `of` compares, from those of cost and time; CO2 follows the time."""
    return {"cost": of_usd, "time": of_time, "cost-time": of_usd + of_time, "co2": of_time}[of]


def _price_errors(offers: ChosenOffers, predictions: Predictions) -> list[SharedError]:
    """Return the errors of the cost that do not come from time: of list prices, and of owned machines' electricity."""
    ids = _device_ids(offers, predictions)
    sources = [(one.offer.provider, device, one.price.kind) for one, device in zip(offers.priced, ids, strict=True)]
    return [
        SharedError(log_spread=offers.price_log_spread, source=sources),
        SharedError(log_spread=offers.electricity_log_spread, source=ids),
    ]


def _device_ids(offers: ChosenOffers, predictions: Predictions) -> list[str]:
    return [predictions.devices[index].id for index in offers.device.tolist()]


def _grid_error(priced: Sequence[PricedOffer], energy: EnergyData) -> SharedError:
    """Return the error of the grids, which regions at one place share."""
    grids = [grid_of(energy, one.offer) for one in priced]
    log_spread = energy.grids.log_spread if energy.grids else 0.0
    return SharedError(
        log_spread=np.full(len(priced), log_spread), source=["" if grid is None else grid.place for grid in grids]
    )


def _elasticity(amounts: FloatArray, step_s: FloatArray) -> FloatArray:
    """Return the elasticity of an amount to the step's time: the ratio of the widths of their intervals' logarithms.

    It is 1 for computing alone, less with start-up, a minimum or whole instances, and more if work is lost. It is set
    to 1 for an interval without width, whose spread is 0 anyway, and for an amount of 0.
    """
    has_width = (step_s[2] > step_s[1]) & (amounts[1] > 0)
    safe_step_s, safe_amounts = (np.where(has_width, values, [[1.0], [1.0], [2.0]]) for values in (step_s, amounts))
    elasticity: FloatArray = np.log(safe_amounts[2] / safe_amounts[1]) / np.log(safe_step_s[2] / safe_step_s[1])
    return elasticity


def pareto_front(cost: FloatArray, time: FloatArray) -> list[bool]:
    """Return which points no other point dominates; equal points are on the front together."""
    points = list(zip(cost.tolist(), time.tolist(), strict=True))
    front: set[tuple[float, float]] = set()
    fastest = math.inf
    for point in sorted(points):
        if point[1] < fastest:
            front.add(point)
            fastest = point[1]
    return [point in front for point in points]
