"""Finds how many machines keep limits on the percentiles of a served language model's times."""

from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from advisor.cost.engine_queue import TAILS, QueueTimes, queue_times
from advisor.cost.service import MOST_SPARE, machines_together, requests_per_s
from advisor.records.answer import Job
from advisor.records.prediction import BoolArray, EnginePasses, FloatArray, IndexArray, Predictions
from advisor.records.rejection import RejectionCode


@dataclass(frozen=True, slots=True, kw_only=True)
class PercentileLimit:
    """The longest time `name` of `QueueTimes` at the percentile of `TAILS` with the index `tail`."""

    code: RejectionCode
    name: str
    tail: int
    most_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FewestMachines:
    """The fewest machines of each device that keep all limits, (devices,), or infinity.

    - `counts`: as groups of the machines that work together
    - `candidate`: the index of the batch that needs them
    - `times`: of requests on these machines; on those that break a limit, the shortest that were found
    """

    counts: FloatArray
    candidate: IndexArray
    times: QueueTimes


def is_queued(job: Job) -> bool:
    """Return whether the times of requests come from the simulation of an engine's queue."""
    return job.generation is not None and job.requests_per_day is not None


def percentile_limits(job: Job) -> tuple[PercentileLimit, ...]:
    """Return the limits that are kept by more machines."""
    limits = job.limits
    asked: tuple[tuple[RejectionCode, str, str, float | None], ...] = (
        ("over-ttft", "first_s", limits.ttft_of, limits.max_ttft_s),
        ("over-tpot", "between_s", limits.tpot_of, limits.max_tpot_s),
        ("over-p99", "whole_s", "p99", limits.p99_s),
    )
    tails = list(TAILS)
    if not is_queued(job):
        return ()
    return tuple(
        PercentileLimit(code=code, name=name, tail=tails.index(of), most_s=most_s)
        for code, name, of, most_s in asked
        if most_s is not None and of in tails
    )


def times_at(
    predictions: Predictions, devices: IndexArray, batches: IndexArray, *, instance_counts: FloatArray, job: Job
) -> QueueTimes:
    """Return the times of requests on these devices at these batches, both by index, with so many machines each."""
    distinct, back = np.unique(np.stack([devices, batches, instance_counts]), axis=1, return_inverse=True)
    passes = _passes(predictions, *distinct[:2].astype(np.intp))
    return _times(passes, distinct[2], job=job).of(back)


def fewest_machines(predictions: Predictions, candidates: IndexArray, *, least: FloatArray, job: Job) -> FewestMachines:
    """Return the fewest machines of each device at any of its candidate batches, (candidates, devices) by index.

    `least` are the groups of machines that the load needs, of the same shape; infinite where the device cannot do the
    job. The search doubles them, up to `MOST_SPARE` times, and then bisects, since times grow with the load of a group.
    """
    limits, devices = percentile_limits(job), np.tile(np.arange(candidates.shape[1]), len(candidates))
    candidate = np.repeat(np.arange(len(candidates)), candidates.shape[1])
    least, batches = least.ravel(), candidates.ravel()
    is_new = np.isfinite(least) & ((candidate == 0) | (batches != candidates[0, devices]))
    together = np.broadcast_to(machines_together(predictions), predictions.step_s.shape)[devices, batches]
    places = np.flatnonzero(is_new)
    passes = _passes(predictions, devices[places], batches[places])
    row = np.zeros(len(least), dtype=np.intp)
    row[places] = np.arange(len(places))
    found = {name: np.full((len(TAILS), len(least)), np.inf) for name in ("first_s", "between_s", "whole_s")}

    def is_over(times: QueueTimes) -> BoolArray:
        """Return where a limit is broken."""
        broken: BoolArray = np.any([getattr(times, one.name)[one.tail] > one.most_s for one in limits], axis=0)
        return broken

    alone = _alone(passes, job=job)
    over = is_over(alone)
    for name, times_s in found.items():
        times_s[:, places] = getattr(alone, name)
    is_open = np.zeros(len(least), dtype=np.bool_)
    is_open[places[~over]] = True
    failed, counts, best = least - 1, np.full(len(least), np.inf), np.full(candidates.shape[1], np.inf)
    for turn in count():
        known = best[devices] / together
        with np.errstate(invalid="ignore"):
            doubled = np.where(failed < least, least, np.minimum(2 * failed, MOST_SPARE * least))
            asked = np.where(np.isfinite(known), np.maximum(least, np.floor((failed + np.ceil(known)) / 2)), doubled)
            is_asked = is_open & (asked > failed) & (asked < known)
        if turn == 0:
            is_asked &= candidate == 0  # most devices need no other
        elif not is_asked.any():
            break
        if not len(places := np.flatnonzero(is_asked)):
            continue
        times = _times(passes.of(row[places]), asked[places], job=job)
        over = is_over(times)
        failed[places[over]] = asked[places[over]]
        counts[places[~over]] = asked[places[~over]]
        is_shown = ~over | ~np.isfinite(counts[places])
        for name, times_s in found.items():
            times_s[:, places[is_shown]] = getattr(times, name)[:, is_shown]
        np.minimum.at(best, devices[places[~over]], (asked * together)[places[~over]])
    chosen = (counts * together).reshape(candidates.shape).argmin(axis=0)
    at = chosen * candidates.shape[1] + np.arange(candidates.shape[1])
    return FewestMachines(
        counts=counts[at], candidate=chosen, times=QueueTimes(**{k: v[:, at] for k, v in found.items()})
    )


def _passes(predictions: Predictions, devices: IndexArray, batches: IndexArray) -> EnginePasses:
    if predictions.tokens is None or predictions.tokens.passes_at is None:
        raise ValueError("no engine serves the model")
    return predictions.tokens.passes_at(devices, batches)


def _times(passes: EnginePasses, machines: FloatArray, *, job: Job) -> QueueTimes:
    if job.generation is None:
        raise ValueError("only a served language model has tokens")
    rate = requests_per_s(job) / (machines * passes.replica_count)
    times = queue_times(passes, requests_per_s=rate, decode_counts=job.generation.decode_passes)
    return replace(times, between_s=times.between_s / job.generation.tokens_per_pass)


def _alone(passes: EnginePasses, *, job: Job) -> QueueTimes:
    """Return the times of a request alone, which no number of machines goes below."""
    if job.generation is None:
        raise ValueError("only a served language model has tokens")
    decode_count = job.generation.decode_count
    first_s = passes.serving_s + passes.part_count * passes.pass_s[:, 1, 0]
    between_s = passes.pass_s[:, 0, 1] / job.generation.tokens_per_pass
    times = (np.tile(one, (len(TAILS), 1)) for one in (first_s, between_s, first_s + decode_count * between_s))
    return QueueTimes(**dict(zip(("first_s", "between_s", "whole_s"), times, strict=True)))
