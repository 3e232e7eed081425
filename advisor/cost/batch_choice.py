"""Chooses the batch size at which each device runs the job."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.cost.job_cost import step_counts
from advisor.cost.limits import Limit, keeps_all, price_limits, step_limits
from advisor.cost.market import DeviceTerms, no_terms
from advisor.cost.service import P99_TAIL, instance_counts, latencies_s, machines_together, server_counts, with_spare
from advisor.cost.token_queue import FewestMachines, fewest_machines, percentile_limits
from advisor.records.answer import Job
from advisor.records.prediction import BoolArray, FloatArray, IndexArray, Predictions

TOLERATED_RATIO = 1.02
"""Up to this cost per sample, relative to the cheapest batch, a smaller batch is preferred: far less than the error of
any prediction, and a smaller batch leaves memory for allocations that no prediction knows."""
KNEE_RATIO = 1.05
"""Tokens per second at more requests in flight over those at the number chosen, at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchChoice:
    """The index of the batch chosen for each device, (devices,), and the limits that it keeps.

    `is_possible` is False for a device on which no batch fits in memory and within the limits. `least` is the index of
    the batch with the least cost, for a job whose limits no offer keeps at `index`; None for services and LLM serving.
    `fewest` are the machines that keep limits on percentiles of a served language model's times; None without such
    limits.
    """

    index: IndexArray
    is_possible: BoolArray
    limits: list[Limit]
    least: IndexArray | None = None
    fewest: FewestMachines | None = None


def choose_batches(
    predictions: Predictions,
    *,
    job: Job,
    terms: DeviceTerms | None = None,
) -> BatchChoice:
    """Choose the cheapest batch that keeps the deadline, of those up to the smallest with about the best throughput.

    That is the smallest whose machine time per sample is at most `TOLERATED_RATIO` times the least. It depends neither
    on the number of samples nor on limits: more samples never cost less, and a limit that is kept anyway changes
    nothing. A larger batch is chosen if it needs fewer machines, if no other keeps the limits, or if time or CO2 is the
    objective; by time, of those that keep the limits on money under the `terms` of the device. A batch that is tight in
    memory is chosen only if no other one is allowed.

    For a service, choose the batch with the lowest 99th percentile, and of several the one with the fewest machines; by
    cost, of those that need at most `TOLERATED_RATIO` times the fewest instances; by time, of those that need at most
    `terms.most_machines`, if there are any. Each family of plans chooses its own batch, and a later one counts
    only if it is better, so that more families never cost more.
    """
    terms = terms or no_terms(len(predictions.devices))
    servers = server_counts(predictions, job=job)
    limits = step_limits(predictions.step_s, predictions.tokens, batches=predictions.batches, servers=servers, job=job)
    allowed = keeps_all(limits, among=predictions.fits)
    together, counts, latency_s = machines_together(predictions), None, predictions.step_s
    most = np.floor(np.reshape(terms.most_machines, (-1, 1)) / together)
    if job.requests_per_day is not None:
        load: dict[str, Any] = {"batch": predictions.batches, "servers": servers, "job": job}
        step_s = np.where(allowed, predictions.step_s, np.inf)
        counts = with_spare(instance_counts(step_s, **load), step_s, **load, most=most)
        latency_s = latencies_s(step_s, **load, instance_counts=counts, tail=P99_TAIL)
    machine_s = predictions.step_s * together / predictions.batches if counts is None else counts * together
    amount = machine_s
    if counts is not None and job.objective in ("time", "cost-time"):
        is_affordable = allowed & (counts <= most)
        can_afford = is_affordable.any(axis=1, keepdims=True)
        allowed = np.where(can_afford, is_affordable, allowed)
        amount = np.where(can_afford, latency_s * (machine_s if job.objective == "cost-time" else 1.0), machine_s)
    candidates, least = [], None
    for of_family in _families(predictions):
        some = _safe(predictions, allowed & of_family)
        if counts is not None:
            possible = np.where(some, amount, np.inf)
            tolerated_ratio = TOLERATED_RATIO if job.objective in ("cost", "co2") else 1.0
            is_good = possible <= tolerated_ratio * possible.min(axis=1, keepdims=True)
            good_s = np.where(is_good, latency_s, np.inf)
            index = np.argmin(np.where(good_s == good_s.min(axis=1, keepdims=True), machine_s, np.inf), axis=1)
        elif job.generation is not None:
            index = _knee(predictions, some)
        else:
            index, least = _for_job(predictions, some, job=job, terms=terms)
        candidates.append(index)
        if percentile_limits(job):
            candidates.append(_largest_within(predictions, some, index=index, job=job))
    devices = np.arange(len(allowed))
    if percentile_limits(job) and counts is not None:
        return _within_percentiles(predictions, counts, candidates=np.stack(candidates), limits=limits, job=job)
    chosen = candidates[0]
    for index in candidates[1:]:
        amounts = [np.where(allowed[devices, one], amount[devices, one], np.inf) for one in (chosen, index)]
        chosen = np.where(amounts[1] < amounts[0], index, chosen)
    return BatchChoice(index=chosen, is_possible=np.any(allowed, axis=1), limits=limits, least=least)


def _families(predictions: Predictions) -> list[BoolArray]:
    """Return the batches of each family of plans, (batches,)."""
    if predictions.scaling is None or predictions.scaling.family is None:
        return [np.ones(len(predictions.batches), dtype=np.bool_)]
    return [predictions.scaling.family == one for one in np.unique(predictions.scaling.family)]


def _safe(predictions: Predictions, some: BoolArray) -> BoolArray:
    """Return those of `some`, (devices, batches), that are not tight in memory; all of a device that has no others."""
    safe = some if predictions.is_tight is None else some & ~predictions.is_tight
    return np.where(np.any(safe, axis=1, keepdims=True), safe, some)


def _for_job(
    predictions: Predictions, allowed: BoolArray, *, job: Job, terms: DeviceTerms
) -> tuple[IndexArray, IndexArray]:
    """Return the index of the batch to choose for the job, and of the one that costs (or takes) least."""
    by_cost, batches = job.objective in ("cost", "co2"), predictions.batches
    together = machines_together(predictions)
    machines = together if by_cost else np.ones_like(predictions.step_s)
    run_s = step_counts(job, batches) * predictions.step_s
    job_s = np.where(allowed, run_s + np.reshape(terms.start_up_s, (-1, 1)), np.inf)
    deadline_s = job.limits.deadline_s
    in_time = allowed if deadline_s is None else job_s <= deadline_s
    if terms.cheapest is not None and not by_cost:
        step_s = np.where(allowed, predictions.step_s, np.inf)
        limits = price_limits(step_s, batches=batches, machines=together, terms=terms.cheapest, job=job)
        in_time = keeps_all(limits, among=in_time)
    amount = np.where(in_time.any(axis=1, keepdims=True), np.where(in_time, job_s * machines, np.inf), job_s)
    least: IndexArray = np.argmin(amount, axis=1)
    if job.objective in ("time", "co2"):
        return least, least
    usable = _safe(predictions, predictions.fits)
    per_sample_s = np.where(usable, predictions.step_s * machines / batches, np.inf)
    is_enough = per_sample_s <= TOLERATED_RATIO * per_sample_s.min(axis=1, keepdims=True)
    enough = np.argmax(is_enough, axis=1)[:, np.newaxis]
    is_small = (np.arange(len(batches)) <= enough) | (machines < np.take_along_axis(machines, enough, axis=1))
    index = np.argmin(np.where(is_small, amount, np.inf), axis=1)
    return np.where((is_small & in_time).any(axis=1), index, least), least


def _largest_within(predictions: Predictions, allowed: BoolArray, *, index: IndexArray, job: Job) -> IndexArray:
    """Return the index of the largest batch that keeps the limits on percentiles even with all its requests in flight.

    It is `index` if there is none.
    """
    tokens, safe = predictions.tokens, allowed.copy()
    for limit in percentile_limits(job):
        if tokens is not None and limit.name in ("first_s", "between_s"):
            safe &= getattr(tokens, limit.name) <= limit.most_s
    largest: IndexArray = safe.shape[1] - 1 - safe[:, ::-1].argmax(axis=1)
    return np.where(safe.any(axis=1), largest, index)


def _within_percentiles(
    predictions: Predictions, counts: FloatArray, *, candidates: IndexArray, limits: list[Limit], job: Job
) -> BatchChoice:
    """Choose the batch of each device that needs the fewest machines of the `candidates`, (candidates, devices).

    `counts` are the machines that the load needs, (devices, batches).
    """
    devices = np.arange(candidates.shape[1])
    found = fewest_machines(predictions, candidates, least=counts[devices, candidates], job=job)
    shape = predictions.step_s.shape
    for limit in percentile_limits(job):
        needed = getattr(found.times, limit.name)[limit.tail][:, np.newaxis]
        available = np.full(shape, limit.most_s)
        limits.append(Limit(code=limit.code, needed=np.broadcast_to(needed, shape), available=available))
    return BatchChoice(
        index=candidates[found.candidate, devices], is_possible=np.isfinite(found.counts), limits=limits, fewest=found
    )


def _knee(predictions: Predictions, allowed: BoolArray) -> IndexArray:
    """Return the index of the smallest number of requests above which throughput grows by less than `KNEE_RATIO`.

    Each further request slows down all others, so the last few percent of throughput cost latency.
    """
    machine_s = np.where(allowed, predictions.step_s, 1.0) * machines_together(predictions)
    rate = np.where(allowed, predictions.batches / machine_s, 0.0)
    best_later = np.maximum.accumulate(rate[:, ::-1], axis=1)[:, ::-1]
    is_enough = allowed & (rate * KNEE_RATIO >= np.where(best_later > 0, best_later, np.inf))
    index: IndexArray = np.argmax(is_enough, axis=1)
    return index
