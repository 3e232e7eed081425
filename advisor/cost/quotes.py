"""Builds quotes, with intervals and chances, from the costs of the job on each offer."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

import numpy as np

from advisor.cost.cheapest import compare_costs
from advisor.cost.coverage import KnownTerms, commitment_usd, coverage
from advisor.cost.interval_arrays import intervals
from advisor.cost.job_cost import JobCosts, cost_job
from advisor.cost.machines import gpu_count, plans_at
from advisor.cost.offer_terms import OfferTerms
from advisor.cost.pareto import pareto_front
from advisor.cost.start_up import joint_ends
from advisor.cost.token_quotes import token_quotes
from advisor.records.answer import BOUNDS, CostParts, Job, Quote, QuotedDevice
from advisor.records.billing import Billing
from advisor.records.columns import from_columns
from advisor.records.options import Objective
from advisor.records.prediction import BoolArray, FloatArray, IndexArray, Predictions
from advisor.records.price import PricedOffer

_SECONDS_PER_HOUR = 3600
_OF_OFFERS = ("id", "provider", "tier", "region", "instance", "vcpus")
_OF_PRICES = {"price_kind": "kind", "price_basis": "basis", "usd_per_hour": "usd_per_hour", "price_date": "date"}
"""Fields of a quote, with the field of the price that each is copied from."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostedOffers:
    """Offers with all their numbers as arrays of (offers,). `device` is an index, -1 for none.

    `time_s` is the time that the ranking by time uses: of the job, or of a step for a service.
    """

    priced: Sequence[PricedOffer]
    device: IndexArray
    batch_index: IndexArray
    terms: OfferTerms
    costs: JobCosts
    time_s: FloatArray


def ranked_time_s(costs: JobCosts, step_s: FloatArray, *, job: Job) -> FloatArray:
    """Return the time that the ranking by time uses: of the job, or of a step for a service."""
    return costs.job_s if job.requests_per_day is None else step_s


def quotes_of(
    costed: CostedOffers, chosen: IndexArray, *, predictions: Predictions, job: Job, billing: Billing
) -> tuple[Quote, ...]:
    """Return the quotes of the offers at the indices `chosen`, in that order."""
    if not len(chosen):
        return ()
    devices, batches = costed.device[chosen], costed.batch_index[chosen]
    step_s = np.stack(
        [times[devices, batches] for times in (predictions.step_s, predictions.step_low_s, predictions.step_high_s)]
    )
    terms, batch_sizes = costed.terms.of(chosen), predictions.batches[batches]
    mid, low, high = (cost_job(times, batch=batch_sizes, terms=terms, job=job) for times in step_s)
    ends = _costs_at_ends(step_s, batch_sizes=batch_sizes, terms=terms, job=job)
    step = _same_steps(predictions, devices, batch_sizes=batch_sizes, step_s=step_s[0])
    step_usd = np.stack([one.job_usd for one in (mid, low, high)])
    time_s = np.stack([ranked_time_s(one, times, job=job) for one, times in zip((mid, low, high), step_s, strict=True)])
    job_s, job_usd = (np.stack([getattr(one, name) for one in (mid, *ends)]) for name in ("job_s", "job_usd"))
    chances, indistinguishable = _compare(
        step_usd,
        time_s,
        step_s=step_s,
        own_log_spread=predictions.own_log_spread[devices, batches],
        step=step,
        objective=job.objective,
    )
    on_front = pareto_front(job_usd[0], time_s[0])
    samples_per_s = batch_sizes / step_s[0]
    usd_per_million = terms.usd_per_hour * terms.machine_count / _SECONDS_PER_HOUR / samples_per_s * 1e6
    priced = [costed.priced[index] for index in chosen.tolist()]
    columns = {
        **_offered(priced, job=job, billing=billing),
        **_predicted(predictions, devices, batches, priced=priced),
        "batch": batch_sizes.tolist(),
        "step_s": intervals(step_s),
        "samples_per_s": samples_per_s.tolist(),
        "usd_per_million_samples": usd_per_million.tolist(),
        "job_usd": intervals(job_usd),
        "job_s": intervals(job_s),
        "chance_cheapest": chances.tolist(),
        "indistinguishable": indistinguishable.tolist(),
        "on_pareto_front": on_front.tolist(),
        "instance_count": mid.instance_count.astype(np.intp).tolist(),
        **{name: getattr(mid, name).tolist() for name in ("idle_ratio", "lost_s")},
        **{name: getattr(terms, name).tolist() for name in ("wait_s", "start_up_s", "start_up_measured")},
        "job_parts_usd": _all_parts(mid),
        "tokens": token_quotes(predictions, devices, batches, step_s=step_s, job_usd=job_usd[0], job=job),
    }
    columns["commitment_usd"] = [
        commitment_usd(one.price.kind, usd_per_hour=one.price.usd_per_hour, instance_count=count)
        for one, count in zip(priced, columns["instance_count"], strict=True)
    ]
    return tuple(from_columns(Quote, columns, count=len(priced)))


def _offered(priced: Sequence[PricedOffer], *, job: Job, billing: Billing) -> dict[str, list[Any]]:
    """Return the columns of quotes that come from their offers and prices."""
    offers, prices = [one.offer for one in priced], [one.price for one in priced]
    known = [
        KnownTerms(
            price_kind=price.kind,
            start_up=bool(billing.start_ups),
            increments=offer.provider in billing.rules,
            interruptions=offer.interruption is not None,
            quota=offer.quota_instances is not None,
            wait=offer.wait_s is not None,
        )
        for offer, price in zip(offers, prices, strict=True)
    ]
    coverages = {terms: coverage(job, extras=billing.extras, known=terms) for terms in set(known)}
    covers = [coverages[terms] for terms in known]
    return {
        **{name: list(map(attrgetter(name), offers)) for name in _OF_OFFERS},
        **{name: list(map(attrgetter(field), prices)) for name, field in _OF_PRICES.items()},
        "price_marks": [one.marks for one in priced],
        "interruption": [
            offer.interruption if price.kind == "spot" else None for offer, price in zip(offers, prices, strict=True)
        ],
        "covers": [covered for covered, _ in covers],
        "not_covered": [not_covered for _, not_covered in covers],
    }


def _predicted(
    predictions: Predictions, devices: IndexArray, batches: IndexArray, *, priced: Sequence[PricedOffer]
) -> dict[str, list[Any]]:
    """Return the columns of quotes that come from the predictions for their devices."""
    indices, count = devices.tolist(), len(priced)
    used = [predictions.devices[index] for index in indices]
    precisions = [predictions.precisions[index] for index in indices]
    for device, precision in zip(used, precisions, strict=True):
        if precision is None:
            raise ValueError(f"{device.id} was ranked without a precision")
    plans, ratios = plans_at(predictions, devices, batches)

    def column(array: FloatArray | BoolArray | IndexArray | None, *, without: Any) -> list[Any]:
        values: list[Any] = [without] * count if array is None else array[devices, batches].tolist()
        return values

    is_measured = column(predictions.measured, without=False)
    return {
        "device": [
            QuotedDevice(id=device.id, name=device.name, kind=device.kind, count=max(1, one.offer.gpu_count))
            for device, one in zip(used, priced, strict=True)
        ],
        "gpus_used": [gpu_count(plan) if device.kind == "gpu" else 0 for device, plan in zip(used, plans, strict=True)],
        "precision": precisions,
        "compile": [predictions.compile] * count,
        "peak_memory_bytes": column(predictions.peak_memory_bytes, without=None),
        "device_memory_bytes": [device.memory_bytes for device in used],
        "fits": [True] * count,
        "is_tight": column(predictions.is_tight, without=False),
        "bound": [BOUNDS[bound] for bound in column(predictions.bound, without=None)],
        "time_source": [
            "measured" if measured else predictions.time_sources[index]
            for measured, index in zip(is_measured, indices, strict=True)
        ],
        "loader_vcpus": column(predictions.loader_vcpus, without=None),
        "plan": plans,
        "scaling_efficiency_ratio": ratios,
    }


def _costs_at_ends(step_s: FloatArray, *, batch_sizes: IndexArray, terms: OfferTerms, job: Job) -> tuple[JobCosts, ...]:
    """Return the costs at the low and at the high end of the time of computing and start-up together."""
    steps = np.ceil(job.samples / batch_sizes)
    start_up_s = np.stack([terms.start_up_s, terms.start_up_low_s, terms.start_up_high_s])
    return tuple(
        cost_job(end_step_s, batch=batch_sizes, terms=replace(terms, start_up_s=end_start_up_s), job=job)
        for end_step_s, end_start_up_s in joint_ends(step_s, steps=steps, start_up_s=start_up_s)
    )


def _all_parts(costs: JobCosts) -> list[CostParts]:
    columns = {field.name: getattr(costs, f"{field.name}_usd").tolist() for field in fields(CostParts)}
    return from_columns(CostParts, columns, count=len(costs.job_usd))


def _compare(
    job_usd: FloatArray,
    time_s: FloatArray,
    *,
    step_s: FloatArray,
    own_log_spread: FloatArray,
    step: IndexArray,
    objective: Objective,
) -> tuple[FloatArray, BoolArray]:
    """Return the chance that each offer is the cheapest, and which offers are too close to the first by the objective.

    Amounts are (3, offers): the middle and the ends of the interval. `compare_costs` needs the cheapest offer first.
    """
    usd_log_spread, time_log_spread = (own_log_spread * _elasticity(amounts, step_s) for amounts in (job_usd, time_s))
    by_cost = np.argsort(job_usd[0], kind="stable")
    cheapest = compare_costs(
        job_usd[0][by_cost], own_log_spread=usd_log_spread[by_cost], step=_renumbered(step[by_cost])
    )
    chances: FloatArray = np.empty_like(job_usd[0])
    chances[by_cost] = cheapest.chance_cheapest
    if objective == "cost":
        return chances, cheapest.indistinguishable
    amounts, log_spread = {
        "time": (time_s[0], time_log_spread),
        "cost-time": (job_usd[0] * time_s[0], usd_log_spread + time_log_spread),
    }[objective]
    return chances, compare_costs(amounts, own_log_spread=log_spread, step=step).indistinguishable


def _elasticity(amounts: FloatArray, step_s: FloatArray) -> FloatArray:
    """Return the elasticity of an amount to the step's time: the ratio of the widths of their intervals' logarithms.

    It is 1 for computing alone, less with start-up, a minimum or whole instances, and more if work is lost. It is set
    to 1 for an interval without width, whose spread is 0 anyway, and for an amount of 0.

    """
    has_width = (step_s[2] > step_s[1]) & (amounts[1] > 0)
    safe_step_s, safe_amounts = (np.where(has_width, values, [[1.0], [1.0], [2.0]]) for values in (step_s, amounts))
    elasticity: FloatArray = np.log(safe_amounts[2] / safe_amounts[1]) / np.log(safe_step_s[2] / safe_step_s[1])
    return elasticity


def _renumbered(step: IndexArray) -> IndexArray:
    """Number the same groups from 0 in order of first appearance."""
    _, first, group = np.unique(step, return_index=True, return_inverse=True)
    place: IndexArray = np.argsort(np.argsort(first))
    return place[group]


def _same_steps(
    predictions: Predictions, devices: IndexArray, *, batch_sizes: IndexArray, step_s: FloatArray
) -> IndexArray:
    """Number the distinct steps from 0, in the order of the quotes.

    A device is the same on every cloud: if only its copy rate differs, the step is the same unless it is
    transfer-bound.
    """
    ids = [predictions.devices[index].id for index in devices]
    numbers: dict[tuple[str, int, float], int] = {}
    keys = zip(ids, batch_sizes.tolist(), step_s.tolist(), strict=True)
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.intp)
