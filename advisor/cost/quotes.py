"""Builds quotes, with intervals and chances, from the costs of the job on each offer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from advisor.cost.cheapest import SharedError, chances_of_cheapest, indistinguishable
from advisor.cost.coverage import commitment_usd, coverage
from advisor.cost.engine_queue import QueueTimes
from advisor.cost.interruptions import interruption_of
from advisor.cost.job_cost import JobCosts, cost_job
from advisor.cost.leading import candidates_of, may_lead, purchases_of, trial_usd
from advisor.cost.offer_terms import OfferTerms, offer_terms
from advisor.cost.power import MachinePower, co2_kg_per_kwh, energy_kwh, grid_of, machine_power
from advisor.cost.service import P50_TAIL, P99_TAIL, SECONDS_PER_HOUR, latencies_s
from advisor.cost.start_up import joint_ends
from advisor.cost.token_queue import is_queued, times_at
from advisor.cost.token_quotes import token_quote
from advisor.records.answer import BOUNDS, Z_90, CostParts, Interval, Job, Quote, QuotedDevice
from advisor.records.billing import Billing
from advisor.records.energy import EnergyData
from advisor.records.options import Objective
from advisor.records.prediction import BoolArray, FloatArray, IndexArray, Predictions
from advisor.records.price import PricedOffer
from advisor.records.scale import Plan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostedOffers:
    """Offers with all their numbers as arrays of (offers,). `device` is an index, -1 for none.

    `co2_kg` is NaN where it is not known, and None if neither the objective nor a limit needs it. `time_s` is the time
    that the ranking by time uses: `ranked_time_s`. `queued` are the times of a served language model's requests on each
    device, (tails, devices), where the choice of batches has found them.
    """

    priced: Sequence[PricedOffer]
    device: IndexArray
    batch_index: IndexArray
    terms: OfferTerms
    costs: JobCosts
    time_s: FloatArray
    queued: QueueTimes | None = None
    co2_kg: FloatArray | None = None


def ranked_time_s(
    costs: JobCosts, step_s: FloatArray, *, batch: IndexArray, terms: OfferTerms, job: Job, tail: float = P99_TAIL
) -> FloatArray:
    """Return the time that the ranking by time uses: of the job, or the latency exceeded by `tail` of the requests."""
    if job.requests_per_day is None:
        return costs.job_s
    counts = costs.instance_count / terms.machine_count
    return latencies_s(step_s, batch=batch, servers=terms.server_count, instance_counts=counts, job=job, tail=tail)


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
    time_s = np.stack([one.job_s for one in (mid, low, high)])
    queued = None
    if costed.queued is not None:
        queued = costed.queued.of(devices)
    elif is_queued(job):
        queued = times_at(
            predictions, devices, batches, instance_counts=mid.instance_count / terms.machine_count, job=job
        )
    if job.requests_per_day is not None:
        p50_s, p99_s = (
            (queued.whole_s[0], queued.whole_s[-1])
            if queued
            else (
                ranked_time_s(mid, step_s[0], batch=batch_sizes, terms=terms, job=job, tail=tail)
                for tail in (P50_TAIL, P99_TAIL)
            )
        )
        time_s = p99_s * step_s / step_s[0]  # the ends of the step's time at the same number of instances
    job_s, job_usd = (np.stack([getattr(one, name) for one in (mid, *ends)]) for name in ("job_s", "job_usd"))
    priced = [costed.priced[index] for index in chosen]
    price_log_spread = np.array([one.log_spread for one in priced]) * _rent_ratio(mid)
    job_usd = _widened(job_usd, price_log_spread)
    own_log_spread = predictions.own_log_spread[devices, batches]
    host_log_spread = np.zeros_like(own_log_spread)
    if predictions.host_log_spread is not None:
        host_log_spread = predictions.host_log_spread[devices, batches]
    ids = [predictions.devices[index].id for index in devices.tolist()]
    started = offer_terms(priced, billing=billing, job=replace(job, assumed=False))
    power = machine_power(priced, device=devices, batch=batches, predictions=predictions, energy=billing.energy)
    kwh, co2_kg = _energies((mid, *ends), power=power, terms=terms, priced=priced, energy=billing.energy, job=job)
    amounts = {"cost": job_usd, "time": job_s, "cost-time": job_usd * job_s, "co2": co2_kg}[job.objective]
    purchases = purchases_of(
        step_s[0],
        batch=batch_sizes,
        device_count=np.array([max(1, one.offer.gpu_count) for one in priced]),
        started=replace(started, machine_count=terms.machine_count),
        job=job,
    )
    candidates = candidates_of(
        amounts,
        is_trusted=[one.is_trusted for one in priced],
        is_measured=predictions.time_sources[devices, batches] != "datasheet",
        trial_usd=trial_usd(terms, job=job),
        purchases=purchases,
    )
    lead = may_lead(candidates, amounts[0], purchases=purchases)
    chances, among_candidates, too_close = _compare(
        step_usd,
        time_s,
        co2_kg,
        step_s=step_s,
        time_errors=[
            SharedError(log_spread=np.sqrt(np.maximum(own_log_spread**2 - host_log_spread**2, 0.0)), source=ids),
            SharedError(log_spread=host_log_spread, source=[one.offer.cpu for one in priced]),
        ],
        price_error=SharedError(
            log_spread=price_log_spread,
            source=[(one.offer.provider, device, one.price.kind) for one, device in zip(priced, ids, strict=True)],
        ),
        co2_errors=[SharedError(log_spread=power.log_spread, source=ids), _grid_error(priced, billing.energy)],
        candidates=np.flatnonzero(candidates if candidates.any() else ~candidates),
        best=int(lead.argmax()),
        objective=job.objective,
    )
    watts = power.parts()
    on_front = pareto_front(job_usd[0], time_s[0])
    on_co2_front = pareto_front(job_usd[0], np.where(np.isnan(co2_kg[0]), np.inf, co2_kg[0]))
    samples_per_s = batch_sizes / step_s[0]
    usd_per_million = terms.usd_per_hour * terms.machine_count / SECONDS_PER_HOUR / samples_per_s * 1e6
    quotes = []
    for place, (index, at) in enumerate(zip(chosen, zip(devices.tolist(), batches.tolist(), strict=True), strict=True)):
        offer, price = costed.priced[index].offer, costed.priced[index].price
        device, precision = predictions.devices[at[0]], predictions.precisions[at]
        if precision is None:
            raise ValueError(f"{device.id} was ranked without a precision")
        plan = plan_at(predictions, at)
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
                gpus_used=(plan or Plan()).gpu_count if device.kind == "gpu" else 0,
                price_kind=price.kind,
                price_basis=price.basis,
                usd_per_hour=float(terms.usd_per_hour[place]),
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
                time_source="measured" if is_measured else predictions.time_sources[at],
                chance_cheapest=float(chances[place]),
                chance_among_trusted=float(among_candidates[place]),
                indistinguishable=bool(too_close[place]),
                price_is_trusted=costed.priced[index].is_trusted,
                is_candidate=bool(candidates[place]),
                may_lead=bool(lead[place]),
                on_pareto_front=on_front[place],
                architecture=offer.architecture,
                wheel=offer.wheel,
                instance_count=instance_count,
                idle_ratio=float(mid.idle_ratio[place]),
                p50_s=None if job.requests_per_day is None else float(p50_s[place]),
                p99_s=None if job.requests_per_day is None else float(p99_s[place]),
                server_count=int(terms.server_count[place]),
                wait_s=float(terms.wait_s[place]),
                start_up_s=float(terms.start_up_s[place]),
                software_s=float(terms.software_s[place]),
                weights_s=float(terms.weights_s[place]),
                start_up_measured=bool(terms.start_up_measured[place]),
                lost_s=float(mid.lost_s[place]),
                interruption=interruption_of(costed.priced[index], billing=billing),
                interruption_is_assumed=price.kind == "spot" and offer.interruption is None,
                commitment_usd=commitment_usd(
                    price.kind, usd_per_hour=price.usd_per_hour, instance_count=instance_count
                ),
                loader_vcpus=None if predictions.loader_vcpus is None else float(predictions.loader_vcpus[at]),
                is_tight=predictions.is_tight is not None and bool(predictions.is_tight[at]),
                host_cpu=device.host_cpu,
                plan=plan,
                scaling_efficiency_ratio=None
                if plan is None or predictions.scaling is None
                else float(predictions.scaling.efficiency_ratio[at]),
                tokens=token_quote(
                    predictions,
                    *at,
                    step_s=step_s[:, place],
                    job_usd=float(job_usd[0, place]),
                    job=job,
                    queued=queued.at(place) if queued else {},
                ),
                power=watts[place],
                energy_kwh=_known_interval(kwh[:, place]),
                co2_kg=_known_interval(co2_kg[:, place]),
                on_co2_front=on_co2_front[place],
                job_parts_usd=CostParts(**{name: float(usd[place]) for name, usd in mid.parts_usd.items()}),
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


def _known_interval(mid_low_high: FloatArray) -> Interval | None:
    return None if np.isnan(mid_low_high[0]) else _interval(mid_low_high)


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

    `costs` are those at the middle and at the ends of the time, whose error is independent of that of the power.
    """
    of_parts = [energy_kwh(one, terms=terms, power=power, job=job) for one in costs]
    totals = np.stack([busy_kwh + idle_kwh for busy_kwh, idle_kwh in of_parts])
    busy, idle = (part / totals[0] for part in of_parts[0])
    kwh = _widened(totals, np.hypot(busy * power.log_spread, idle * power.idle_log_spread))
    grid_log_spread = energy.grids.log_spread if energy.grids else 0.0
    return kwh, _widened(kwh * co2_kg_per_kwh(energy, priced), np.full(len(priced), grid_log_spread))


def _grid_error(priced: Sequence[PricedOffer], energy: EnergyData) -> SharedError:
    """Return the error of the grids, which regions at one place share."""
    grids = [grid_of(energy, one.offer) for one in priced]
    log_spread = energy.grids.log_spread if energy.grids else 0.0
    return SharedError(
        log_spread=np.full(len(priced), log_spread), source=["" if grid is None else grid.place for grid in grids]
    )


def plan_at(predictions: Predictions, at: tuple[int, int]) -> Plan | None:
    """Return the plan of a step, given as (device, batch); None if it runs on one GPU in one pass."""
    scaling = predictions.scaling
    plan = None if scaling is None else scaling.plans[scaling.plan[at]]
    return None if plan == Plan() else plan


def _costs_at_ends(step_s: FloatArray, *, batch_sizes: IndexArray, terms: OfferTerms, job: Job) -> tuple[JobCosts, ...]:
    """Return the costs at the low and at the high end of the time of computing and start-up together."""
    if job.requests_per_day is not None:
        return tuple(cost_job(end_s, batch=batch_sizes, terms=terms, job=job) for end_s in step_s[1:])
    steps = np.ceil(job.samples / batch_sizes)
    start_up_s = np.stack([terms.start_up_s, terms.start_up_low_s, terms.start_up_high_s])
    return tuple(
        cost_job(end_step_s, batch=batch_sizes, terms=replace(terms, start_up_s=end_start_up_s), job=job)
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


def _widened(job_usd: FloatArray, price_log_spread: FloatArray) -> FloatArray:
    """Return amounts and the ends of their intervals, (3, offers), with another error, such as that of the price.

    It is independent of those within, so their distances from the middle add as squares, in the logarithm.
    """
    safe = np.where(job_usd[0] > 0, job_usd, 1.0)
    distance = np.hypot(np.log(safe[1:] / safe[0]), Z_90 * price_log_spread)
    return np.stack([job_usd[0], job_usd[0] * np.exp(-distance[0]), job_usd[0] * np.exp(distance[1])])


def _compare(
    job_usd: FloatArray,
    time_s: FloatArray,
    co2_kg: FloatArray,
    *,
    step_s: FloatArray,
    time_errors: Sequence[SharedError],
    price_error: SharedError,
    co2_errors: Sequence[SharedError],
    candidates: IndexArray,
    best: int,
    objective: Objective,
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return the chances to be the cheapest of all and of the candidates, and which are too close to the best to call.

    Amounts are (3, offers): the middle and the ends of the interval. `candidates` are indices, and `best` is one. The
    error of the price is given as a share of the cost.
    """

    def errors(elasticity: FloatArray, others: Sequence[SharedError]) -> list[SharedError]:
        """Return the errors of amounts that grow with the step's time by `elasticity`."""
        return [*(replace(one, log_spread=one.log_spread * elasticity) for one in time_errors), *others]

    of_usd, of_time = (_elasticity(amounts, step_s) for amounts in (job_usd, time_s))
    usd_errors = errors(of_usd, [price_error])
    amounts, amount_errors = {
        "cost": (job_usd[0], usd_errors),
        "time": (time_s[0], errors(of_time, [])),
        "cost-time": (job_usd[0] * time_s[0], errors(of_usd + of_time, [price_error])),
        "co2": (co2_kg[0], errors(of_time, co2_errors)),
    }[objective]
    chances = chances_of_cheapest(job_usd[0], errors=usd_errors)
    is_all = len(candidates) == len(chances)
    return (
        chances,
        chances if is_all else chances_of_cheapest(job_usd[0], errors=usd_errors, among=candidates),
        indistinguishable(amounts, errors=amount_errors, best=best),
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
