"""Builds quotes, with intervals and chances, from the costs of the job on each offer."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from advisor.cost.cheapest import chances_of_cheapest, indistinguishable
from advisor.cost.coverage import commitment_usd, coverage
from advisor.cost.job_cost import JobCosts, cost_job
from advisor.cost.offer_terms import OfferTerms
from advisor.cost.service import SECONDS_PER_HOUR
from advisor.cost.start_up import joint_ends
from advisor.cost.token_quotes import token_quote
from advisor.records.answer import BOUNDS, CostParts, Interval, Job, Quote, QuotedDevice
from advisor.records.billing import Billing
from advisor.records.options import Objective
from advisor.records.prediction import BoolArray, FloatArray, IndexArray, Predictions
from advisor.records.price import PricedOffer
from advisor.records.scale import Plan


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
    costed: CostedOffers, chosen: Sequence[int], *, predictions: Predictions, job: Job, billing: Billing
) -> tuple[Quote, ...]:
    """Return the quotes of the offers at the indices `chosen`, in that order."""
    if not chosen:
        return ()
    indices = np.array(chosen, dtype=np.intp)
    devices, batches = costed.device[indices], costed.batch_index[indices]
    step_s = np.stack(
        [times[devices, batches] for times in (predictions.step_s, predictions.step_low_s, predictions.step_high_s)]
    )
    terms, batch_sizes = costed.terms.of(indices), predictions.batches[batches]
    mid, low, high = (cost_job(times, batch=batch_sizes, terms=terms, job=job) for times in step_s)
    ends = _costs_at_ends(step_s, batch_sizes=batch_sizes, terms=terms, job=job)
    step_usd = np.stack([one.job_usd for one in (mid, low, high)])
    time_s = np.stack([ranked_time_s(one, times, job=job) for one, times in zip((mid, low, high), step_s, strict=True)])
    job_s, job_usd = (np.stack([getattr(one, name) for one in (mid, *ends)]) for name in ("job_s", "job_usd"))
    # A device is the same on every cloud, unless a step is bound by its copy rate.
    ids = [predictions.devices[index].id for index in devices.tolist()]
    steps = list(zip(ids, batch_sizes.tolist(), step_s[0].tolist(), strict=True))
    chances, too_close = _compare(
        step_usd,
        time_s,
        step_s=step_s,
        own_log_spread=predictions.own_log_spread[devices, batches],
        steps=steps,
        objective=job.objective,
    )
    on_front = pareto_front(job_usd[0], time_s[0])
    samples_per_s = batch_sizes / step_s[0]
    usd_per_million = terms.usd_per_hour * terms.machine_count / SECONDS_PER_HOUR / samples_per_s * 1e6
    quotes = []
    for place, (index, at) in enumerate(zip(chosen, zip(devices.tolist(), batches.tolist(), strict=True), strict=True)):
        offer, price = costed.priced[index].offer, costed.priced[index].price
        device, precision = predictions.devices[at[0]], predictions.precisions[at[0]]
        if precision is None:
            raise ValueError(f"{device.id} was ranked without a precision")
        plan, efficiency_ratio = _plan_at(predictions, at)
        is_measured = predictions.measured is not None and predictions.measured[at]
        instance_count = int(mid.instance_count[place])
        covers, not_covered = coverage(job, costed.priced[index], billing=billing)
        quotes.append(
            Quote(
                id=offer.id,
                provider=offer.provider,
                tier=offer.tier,
                region=offer.region,
                instance=offer.instance,
                vcpus=offer.vcpus,
                device=QuotedDevice(id=device.id, name=device.name, kind=device.kind, count=max(1, offer.gpu_count)),
                gpus_used=_gpu_count(plan) if device.kind == "gpu" else 0,
                price_kind=price.kind,
                price_basis=price.basis,
                usd_per_hour=price.usd_per_hour,
                price_date=price.date,
                price_marks=costed.priced[index].marks,
                precision=precision,
                compile=predictions.compile,
                batch=int(batch_sizes[place]),
                step_s=_interval(step_s[:, place]),
                samples_per_s=float(samples_per_s[place]),
                usd_per_million_samples=float(usd_per_million[place]),
                job_usd=_interval(job_usd[:, place]),
                job_s=_interval(job_s[:, place]),
                peak_memory_bytes=float(predictions.peak_memory_bytes[at]),
                device_memory_bytes=device.memory_bytes,
                fits=True,
                bound=BOUNDS[predictions.bound[at]],
                time_source="measured" if is_measured else predictions.time_sources[at[0]],
                chance_cheapest=float(chances[place]),
                indistinguishable=bool(too_close[place]),
                on_pareto_front=on_front[place],
                architecture=offer.architecture,
                wheel=offer.wheel,
                instance_count=instance_count,
                idle_ratio=float(mid.idle_ratio[place]),
                wait_s=float(terms.wait_s[place]),
                start_up_s=float(terms.start_up_s[place]),
                start_up_measured=bool(terms.start_up_measured[place]),
                lost_s=float(mid.lost_s[place]),
                interruption=offer.interruption if price.kind == "spot" else None,
                commitment_usd=commitment_usd(
                    price.kind, usd_per_hour=price.usd_per_hour, instance_count=instance_count
                ),
                loader_vcpus=None if predictions.loader_vcpus is None else float(predictions.loader_vcpus[at]),
                is_tight=predictions.is_tight is not None and bool(predictions.is_tight[at]),
                plan=plan,
                scaling_efficiency_ratio=efficiency_ratio,
                tokens=token_quote(
                    predictions, *at, step_s=step_s[:, place], job_usd=float(job_usd[0, place]), job=job
                ),
                job_parts_usd=CostParts(
                    **{part.name: float(getattr(mid, f"{part.name}_usd")[place]) for part in fields(CostParts)}
                ),
                covers=covers,
                not_covered=not_covered,
            )
        )
    return tuple(quotes)


def quoted_fields(quote: Quote, record: type[Any]) -> dict[str, Any]:
    """Return the values of the fields that `record` has in common with a quote."""
    common = {field.name for field in fields(Quote)} & {field.name for field in fields(record)}
    return {name: getattr(quote, name) for name in common}


def _interval(mid_low_high: FloatArray) -> Interval:
    mid, low, high = mid_low_high.tolist()
    return Interval(mid=mid, low=low, high=high)


def _plan_at(predictions: Predictions, at: tuple[int, int]) -> tuple[Plan | None, float | None]:
    """Return the plan and the scaling efficiency of a step; None if it runs on one GPU in one pass."""
    scaling = predictions.scaling
    if scaling is None or scaling.plans[scaling.plan[at]] == Plan():
        return None, None
    return scaling.plans[scaling.plan[at]], float(scaling.efficiency_ratio[at])


def _gpu_count(plan: Plan | None) -> int:
    """Return the number of GPUs on all machines of the plan."""
    return 1 if plan is None else plan.data * plan.tensor * plan.pipeline


def _costs_at_ends(step_s: FloatArray, *, batch_sizes: IndexArray, terms: OfferTerms, job: Job) -> tuple[JobCosts, ...]:
    """Return the costs at the low and at the high end of the time of computing and start-up together."""
    steps = np.ceil(job.samples / batch_sizes)
    start_up_s = np.stack([terms.start_up_s, terms.start_up_low_s, terms.start_up_high_s])
    return tuple(
        cost_job(end_step_s, batch=batch_sizes, terms=replace(terms, start_up_s=end_start_up_s), job=job)
        for end_step_s, end_start_up_s in joint_ends(step_s, steps=steps, start_up_s=start_up_s)
    )


def _compare(
    job_usd: FloatArray,
    time_s: FloatArray,
    *,
    step_s: FloatArray,
    own_log_spread: FloatArray,
    steps: Sequence[Hashable],
    objective: Objective,
) -> tuple[FloatArray, BoolArray]:
    """Return the chance that each offer is the cheapest, and which offers are too close to the first by the objective.

    Amounts are (3, offers): the middle and the ends of the interval.
    """
    usd_log_spread, time_log_spread = (own_log_spread * _elasticity(amounts, step_s) for amounts in (job_usd, time_s))
    amounts, log_spread = {
        "cost": (job_usd[0], usd_log_spread),
        "time": (time_s[0], time_log_spread),
        "cost-time": (job_usd[0] * time_s[0], usd_log_spread + time_log_spread),
    }[objective]
    return (
        chances_of_cheapest(job_usd[0], own_log_spread=usd_log_spread, steps=steps),
        indistinguishable(amounts, own_log_spread=log_spread, steps=steps),
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
