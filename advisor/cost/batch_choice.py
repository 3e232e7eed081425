"""Chooses the batch size at which each device runs the job."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.cost.limits import Limit, keeps_all, step_limits
from advisor.cost.service import P99_TAIL, instance_counts, latencies_s, machines_together, server_counts
from advisor.cost.token_queue import FewestMachines, fewest_machines, percentile_limits
from advisor.records.answer import Job
from advisor.records.prediction import BoolArray, FloatArray, IndexArray, Predictions

TOLERATED_RATIO = 1.02
"""Up to this cost, relative to the cheapest batch, a smaller batch is preferred: far less than the error of any
prediction, and a smaller batch leaves memory for allocations that no prediction knows."""
KNEE_RATIO = 1.05
"""Tokens per second at more requests in flight over those at the number chosen, at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchChoice:
    """The index of the batch chosen for each device, (devices,), and the limits that it keeps.

    `is_possible` is False for a device on which no batch fits in memory and within the limits. `fewest`
    are the machines that keep limits on percentiles of a served language model's times; None without such limits.
    """

    index: IndexArray
    is_possible: BoolArray
    limits: list[Limit]
    fewest: FewestMachines | None = None


def choose_batches(predictions: Predictions, *, job: Job, start_up_s: FloatArray | float = 0.0) -> BatchChoice:
    """Choose the smallest batch that costs at most `TOLERATED_RATIO` times the least, of those that are not tight.

    On one device cost grows with the time of all its machines, each of which starts up for `start_up_s`, (devices,).
    With a limit on the job's time, cost or CO2, choose the cheapest that keeps the deadline, or else the fastest; if
    time is the objective, the fastest. A batch that is tight in memory is chosen only if no other one is allowed. For a
    service, choose the batch with the lowest 99th percentile among those that need at most `TOLERATED_RATIO` times the
    fewest instances. Each family of plans chooses its own batch, and a later one counts only if it costs less, so that
    more families never cost more.
    """
    servers = server_counts(predictions, job=job)
    limits = step_limits(predictions.step_s, predictions.tokens, batches=predictions.batches, servers=servers, job=job)
    allowed = keeps_all(limits, among=predictions.fits)
    together, counts, latency_s = machines_together(predictions), None, predictions.step_s
    if job.requests_per_day is not None:
        load: dict[str, Any] = {"batch": predictions.batches, "servers": servers, "job": job}
        step_s = np.where(allowed, predictions.step_s, np.inf)
        counts = instance_counts(step_s, **load)
        latency_s = latencies_s(step_s, **load, instance_counts=counts, tail=P99_TAIL)
    machine_s = predictions.step_s * together / predictions.batches if counts is None else counts * together
    candidates = []
    for of_family in _families(predictions):
        some = allowed & of_family
        if predictions.is_tight is not None:
            safe = some & ~predictions.is_tight
            some = np.where(np.any(safe, axis=1, keepdims=True), safe, some)
        if counts is not None:
            machines = np.where(some, counts * together, np.inf)
            fewest = machines <= TOLERATED_RATIO * machines.min(axis=1, keepdims=True)
            index = np.argmin(np.where(fewest, latency_s, np.inf), axis=1)
        elif job.generation is not None:
            index = _knee(predictions, some)
        else:
            index = _least(predictions, some, job=job, start_up_s=start_up_s)
        candidates.append(index)
        if percentile_limits(job):
            candidates.append(_largest_within(predictions, some, index=index, job=job))
    devices = np.arange(len(allowed))
    if percentile_limits(job) and counts is not None:
        return _within_percentiles(predictions, counts, candidates=np.stack(candidates), limits=limits, job=job)
    chosen = candidates[0]
    for index in candidates[1:]:
        amounts = [np.where(allowed[devices, one], machine_s[devices, one], np.inf) for one in (chosen, index)]
        chosen = np.where(amounts[1] < amounts[0], index, chosen)
    return BatchChoice(index=chosen, is_possible=np.any(allowed, axis=1), limits=limits)


def _families(predictions: Predictions) -> list[BoolArray]:
    """Return the batches of each family of plans, (batches,)."""
    if predictions.scaling is None or predictions.scaling.family is None:
        return [np.ones(len(predictions.batches), dtype=np.bool_)]
    return [predictions.scaling.family == one for one in np.unique(predictions.scaling.family)]


def _least(predictions: Predictions, allowed: BoolArray, *, job: Job, start_up_s: FloatArray | float) -> IndexArray:
    """Return the index of the batch that costs (or takes) least for the job, or of a smaller one about as good."""
    run_s = np.ceil(job.samples / predictions.batches) * predictions.step_s
    job_s = np.where(allowed, run_s + np.reshape(start_up_s, (-1, 1)), np.inf)
    limits, amount = job.limits, job_s
    if job.objective in ("cost", "co2"):
        in_time = job_s <= (np.inf if limits.deadline_s is None else limits.deadline_s)
        machine_s = np.where(in_time, job_s * machines_together(predictions), np.inf)
        amount = np.where(in_time.any(axis=1, keepdims=True), machine_s, job_s)
    is_limited = any(most is not None for most in (limits.deadline_s, limits.max_usd, limits.max_co2_kg))
    must_be_least = job.objective in ("time", "co2") or is_limited
    most = amount.min(axis=1, keepdims=True) * (1.0 if must_be_least else TOLERATED_RATIO)
    index: IndexArray = np.argmax(amount <= most, axis=1)
    return index


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
    """Return the index of the smallest number of requests in flight above which `KNEE_RATIO` is gained no more.

    Requests wait longer for each token with every other one in flight, so that the last few percent are dear.
    """
    machine_s = np.where(allowed, predictions.step_s, 1.0) * machines_together(predictions)
    rate = np.where(allowed, predictions.batches / machine_s, 0.0)
    best_later = np.maximum.accumulate(rate[:, ::-1], axis=1)[:, ::-1]
    is_enough = allowed & (rate * KNEE_RATIO >= np.where(best_later > 0, best_later, np.inf))
    index: IndexArray = np.argmax(is_enough, axis=1)
    return index
