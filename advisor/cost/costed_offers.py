"""Computes what the job takes on each offer: money, time, energy and CO2, with the ends of their intervals."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.cost.engine_queue import QueueTimes
from advisor.cost.job_cost import JobCosts, cost_job, step_counts
from advisor.cost.offer_terms import OfferTerms
from advisor.cost.power import MachinePower, co2_kg_per_kwh, energy_kwh, machine_power
from advisor.cost.service import P50_TAIL, P99_TAIL, latencies_s
from advisor.cost.start_up import joint_ends
from advisor.cost.token_queue import is_queued, times_at
from advisor.records.answer import Z_90, Job
from advisor.records.energy import EnergyData
from advisor.records.prediction import FloatArray, IndexArray, Predictions
from advisor.records.price import PricedOffer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostedOffers:
    """Offers with all their numbers as arrays of (offers,).

    - `device`, `batch_index`: of the predictions; `device` is -1 for none
    - `time_s`: the time that the ranking by time uses (`ranked_time_s`)
    - `queued`: times of a served language model's requests on each device, (tails, devices), where the choice of
      batches has found them
    - `co2_kg`: NaN where it is not known; None if neither the objective nor a limit needs it
    """

    priced: Sequence[PricedOffer]
    device: IndexArray
    batch_index: IndexArray
    terms: OfferTerms
    costs: JobCosts
    time_s: FloatArray
    queued: QueueTimes | None = None
    co2_kg: FloatArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChosenOffers:
    """Some offers with what the job takes on each; amounts are (3, offers): point estimates and the ends of intervals.

    - `device`, `batch_index`: of the predictions; `batch` is the size
    - `costs`: point estimates
    - `step_usd`, `step_time_s`: cost and ranked time if only the step's time is uncertain
    - `job_usd`, `job_s`: with the error of start-up and, of the cost, those of the price and of the electricity of
      owned machines, whose shares are `price_log_spread` and `electricity_log_spread`
    - `p50_s`, `p99_s`: latency of a service; None for a job that ends
    - `queued`: times of a served language model's requests; None for other jobs
    - `kwh`, `co2_kg`: NaN where they are not known
    """

    priced: Sequence[PricedOffer]
    device: IndexArray
    batch_index: IndexArray
    batch: IndexArray
    terms: OfferTerms
    costs: JobCosts
    step_s: FloatArray
    step_usd: FloatArray
    step_time_s: FloatArray
    job_usd: FloatArray
    job_s: FloatArray
    price_log_spread: FloatArray
    electricity_log_spread: FloatArray
    p50_s: FloatArray | None
    p99_s: FloatArray | None
    queued: QueueTimes | None
    power: MachinePower
    kwh: FloatArray
    co2_kg: FloatArray


def ranked_time_s(
    costs: JobCosts, step_s: FloatArray, *, batch: IndexArray, terms: OfferTerms, job: Job, tail: float = P99_TAIL
) -> FloatArray:
    """Return the time that the ranking by time uses: of the job, or the latency exceeded by `tail` of the requests."""
    if job.requests_per_day is None:
        return costs.job_s
    counts = costs.instance_count / terms.machine_count
    return latencies_s(step_s, batch=batch, servers=terms.server_count, instance_counts=counts, job=job, tail=tail)


def chosen_offers(
    costed: CostedOffers, chosen: Sequence[int], *, predictions: Predictions, job: Job, energy: EnergyData
) -> ChosenOffers:
    """Return the offers at the indices `chosen`, of which there is at least one, with the ends of their intervals."""
    indices = np.array(chosen, dtype=np.intp)
    at = costed.device[indices], costed.batch_index[indices]
    priced = [costed.priced[index] for index in chosen]
    terms, batch, step_s = costed.terms.of(indices), predictions.batches[at[1]], _steps_s(predictions, at)
    by_step = [cost_job(times, batch=batch, terms=terms, job=job) for times in step_s]
    costs, ends = by_step[0], _costs_at_ends(step_s, batch=batch, terms=terms, job=job)
    job_usd, job_s = (np.stack([getattr(one, name) for one in (costs, *ends)]) for name in ("job_usd", "job_s"))
    price_log_spread = np.array([one.log_spread for one in priced]) * _rent_ratio(costs)
    from_electricity = electricity_log_spread(costs, terms)
    step_time_s = np.stack([one.job_s for one in by_step])
    queued = None
    if costed.queued is not None:
        queued = costed.queued.of(at[0])
    elif is_queued(job):
        queued = times_at(predictions, *at, instance_counts=costs.instance_count / terms.machine_count, job=job)
    p50_s = p99_s = None
    if job.requests_per_day is not None:
        if queued:
            p50_s, p99_s = queued.whole_s[0], queued.whole_s[-1]
        else:
            p50_s, p99_s = (
                ranked_time_s(costs, step_s[0], batch=batch, terms=terms, job=job, tail=tail)
                for tail in (P50_TAIL, P99_TAIL)
            )
        step_time_s = p99_s * step_s / step_s[0]  # the ends of the step's time at the same number of instances
    power = machine_power(priced, device=at[0], batch=at[1], predictions=predictions, energy=energy)
    kwh, co2_kg = _energies((costs, *ends), power=power, terms=terms, priced=priced, energy=energy, job=job)
    return ChosenOffers(
        priced=priced,
        device=at[0],
        batch_index=at[1],
        batch=batch,
        terms=terms,
        costs=costs,
        step_s=step_s,
        step_usd=np.stack([one.job_usd for one in by_step]),
        step_time_s=step_time_s,
        job_usd=_widened(job_usd, np.hypot(price_log_spread, from_electricity)),
        job_s=job_s,
        price_log_spread=price_log_spread,
        electricity_log_spread=from_electricity,
        p50_s=p50_s,
        p99_s=p99_s,
        queued=queued,
        power=power,
        kwh=kwh,
        co2_kg=co2_kg,
    )


def job_usd_with_ends(costed: CostedOffers, chosen: IndexArray, *, predictions: Predictions, job: Job) -> FloatArray:
    """Return `job_usd` of `chosen_offers` alone, which takes a fraction of the time."""
    at = costed.device[chosen], costed.batch_index[chosen]
    terms, batch, step_s = costed.terms.of(chosen), predictions.batches[at[1]], _steps_s(predictions, at)
    costs = cost_job(step_s[0], batch=batch, terms=terms, job=job)
    ends = _costs_at_ends(step_s, batch=batch, terms=terms, job=job)
    price_log_spread = np.array([costed.priced[index].log_spread for index in chosen.tolist()]) * _rent_ratio(costs)
    job_usd = np.stack([one.job_usd for one in (costs, *ends)])
    return _widened(job_usd, np.hypot(price_log_spread, electricity_log_spread(costs, terms)))


def _steps_s(predictions: Predictions, at: tuple[IndexArray, IndexArray]) -> FloatArray:
    return np.stack([times[at] for times in (predictions.step_s, predictions.step_low_s, predictions.step_high_s)])


def _costs_at_ends(step_s: FloatArray, *, batch: IndexArray, terms: OfferTerms, job: Job) -> tuple[JobCosts, ...]:
    """Return the costs at the low and at the high end of the time of computing and start-up together."""
    if job.requests_per_day is not None:
        return tuple(cost_job(end_s, batch=batch, terms=terms, job=job) for end_s in step_s[1:])
    steps = step_counts(job, batch)
    start_up_s = np.stack([terms.start_up_s, terms.start_up_low_s, terms.start_up_high_s])
    return tuple(
        cost_job(end_step_s, batch=batch, terms=replace(terms, start_up_s=end_start_up_s), job=job)
        for end_step_s, end_start_up_s in joint_ends(step_s, steps=steps, start_up_s=start_up_s)
    )


def _rent_ratio(costs: JobCosts) -> FloatArray:
    """Return the share of each cost that grows with the hourly price: all but storage and egress, with their tax."""
    parts_usd = costs.parts_usd
    untaxed_usd = costs.job_usd - parts_usd["tax"]
    ratio: FloatArray = np.ones_like(untaxed_usd)
    rent_usd = untaxed_usd - parts_usd["storage"] - parts_usd["egress"]
    np.divide(rent_usd, untaxed_usd, out=ratio, where=untaxed_usd > 0)
    return ratio


def electricity_log_spread(costs: JobCosts, terms: OfferTerms) -> FloatArray:
    """Return the error of each cost that comes from predicted watts: 0 except for owned machines.

    Their cost has no other parts than computing and being idle, with independent errors.
    """
    idle = np.zeros_like(costs.job_usd)
    if "idle_time" in costs.parts_usd:
        np.divide(costs.parts_usd["idle_time"], costs.job_usd, out=idle, where=costs.job_usd > 0)
    spread: FloatArray = np.hypot((1 - idle) * terms.power_log_spread, idle * terms.idle_power_log_spread)
    return spread


def _widened(job_usd: FloatArray, log_spread: FloatArray) -> FloatArray:
    """Return amounts and the ends of their intervals, (3, offers), with another error, such as that of the price.

    It is independent of those within, so the distances from the point estimate add as squares, in the logarithm.
    """
    safe = np.where(job_usd[0] > 0, job_usd, 1.0)
    distance = np.hypot(np.log(safe[1:] / safe[0]), Z_90 * log_spread)
    return np.stack([job_usd[0], job_usd[0] * np.exp(-distance[0]), job_usd[0] * np.exp(distance[1])])


def _energies(
    costs: Sequence[JobCosts],
    *,
    power: MachinePower,
    terms: OfferTerms,
    priced: Sequence[PricedOffer],
    energy: EnergyData,
    job: Job,
) -> tuple[FloatArray, FloatArray]:
    """Return the energy in kWh and the CO2 in kg with the ends of their intervals, (3, offers); NaN if not known.

    `costs` are those at the point estimate and the ends of the time, whose error is independent of that of the power.
    """
    of_parts = [energy_kwh(one, terms=terms, power=power, job=job) for one in costs]
    totals = np.stack([busy_kwh + idle_kwh for busy_kwh, idle_kwh in of_parts])
    busy, idle = (part / totals[0] for part in of_parts[0])
    kwh = _widened(totals, np.hypot(busy * power.log_spread, idle * power.idle_log_spread))
    grid_log_spread = energy.grids.log_spread if energy.grids else 0.0
    return kwh, _widened(kwh * co2_kg_per_kwh(energy, priced), np.full(len(priced), grid_log_spread))
