"""Finds how many machines keep limits on the percentiles of a served language model's times."""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain, islice
from typing import NamedTuple, TypeAlias

import numpy as np

from advisor.cost.engine_queue import TAILS, QueueTimes, queue_times
from advisor.cost.service import MOST_SPARE, machines_together, requests_per_s
from advisor.records.answer import Job
from advisor.records.prediction import EnginePasses, FloatArray, IndexArray, Predictions
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
    job.
    """
    limits, device_count = percentile_limits(job), candidates.shape[1]
    is_new = np.isfinite(least)
    for later in range(1, len(candidates)):
        is_new[later] &= (candidates[:later] != candidates[later]).all(axis=0)
    numbers, devices = np.nonzero(is_new)
    batches = candidates[is_new]
    passes = _passes(predictions, devices, batches)
    together = machines_together(predictions)[devices, batches]
    alone = _alone(passes, job=job)
    searches: dict[int, _Search] = {}
    columns = (one.tolist() for one in (devices, numbers, least[is_new].astype(np.intp), together.astype(np.intp)))
    for row, (device, *values) in enumerate(zip(*columns, _ratios(alone, limits), strict=True)):
        searches.setdefault(device, _Search()).candidates.append(_Candidate(row, *values))
    found: dict[_Trial, tuple[QueueTimes, int]] = {}
    running = {device: search.trials() for device, search in searches.items()}
    asked = {device: next(trials) for device, trials in running.items()}
    while asked := {device: trials for device, trials in asked.items() if trials}:
        tried = list(chain.from_iterable(asked.values()))
        rows, counts = np.array(tried, dtype=np.intp).T
        times = _times(passes.of(rows), counts, job=job)
        found |= {trial: (times, place) for place, trial in enumerate(tried)}
        ratios = iter(_ratios(times, limits))
        asked = {device: running[device].send(list(islice(ratios, len(trials)))) for device, trials in asked.items()}
    machines, chosen = np.full(device_count, np.inf), np.zeros(device_count, dtype=np.intp)
    shown = {one.name: np.full((len(TAILS), device_count), np.inf) for one in fields(QueueTimes)}
    for device, search in searches.items():
        if search.best is not None:
            machines[device], chosen[device] = search.shown[1], search.best.number
        times, place = found.get(search.shown, (alone, search.shown[0]))
        for name, times_s in shown.items():
            times_s[:, device] = getattr(times, name)[:, place]
    return FewestMachines(counts=machines, candidate=chosen, times=QueueTimes(**shown))


_Trial: TypeAlias = tuple[int, int]
"""A candidate, by the row of its passes, and a number of groups of machines."""
_Ratios: TypeAlias = tuple[float, ...]
"""Time over limit for each limit."""


class _Candidate(NamedTuple):
    """A batch of a device; `over_alone` is time over limit of a request alone."""

    row: int
    number: int
    least: int
    together: int
    over_alone: _Ratios


@dataclass(slots=True)
class _Search:
    """The search of one device for its fewest machines.

    Candidates are searched in their order, and a later one only if it keeps the limits with fewer machines than the
    best before, so that more candidates never need more machines, and few more trials.
    """

    candidates: list[_Candidate] = field(default_factory=list)
    best: _Candidate | None = None
    shown: _Trial = (0, 0)

    def trials(self) -> Generator[list[_Trial], list[_Ratios], None]:
        """Yield what to try next, for which time over limit is sent; nothing at the end."""
        self.shown = (self.candidates[0].row, 0)
        left = [one for one in self.candidates if max(one.over_alone) <= 1]
        over: dict[int, dict[int, _Ratios]] = {one.row: {} for one in left}
        while left:
            one, *left = left
            if one.least > (most := self._most(one)):
                continue
            known = {count: ratios for count, ratios in over[one.row].items() if count <= most}
            asked = [one.least] if self.best is None else [most]
            asked = _next_counts(known, one, most=most) if asked[0] in known else asked
            while asked:
                ratios = yield [(one.row, count) for count in asked]
                known |= zip(asked, ratios, strict=True)
                asked = _next_counts(known, one, most=most)
            kept = [count for count, ratios in known.items() if max(ratios) <= 1]
            if kept:
                self.best, self.shown = one, (one.row, min(kept))
                left = [other for other in left if other.least <= self._most(other)]
                tried = [(other.row, self._most(other)) for other in left]
                for (row, count), ratio in zip(tried, (yield tried) if tried else [], strict=True):
                    over[row][count] = ratio
                left = [other for other in left if max(over[other.row][self._most(other)]) <= 1]
            elif known and self.best is None and one is self.candidates[0]:
                self.shown = (one.row, max(known))
        yield []

    def _most(self, one: _Candidate) -> int:
        """Return the most groups of machines that may be tried with a candidate: with fewer machines than the best."""
        most = MOST_SPARE * one.least
        if self.best is None:
            return most
        return min(most, -(-self.shown[1] * self.best.together // one.together) - 1)


def _next_counts(over: Mapping[int, _Ratios], one: _Candidate, *, most: int) -> list[int]:
    """Return the numbers of machines to try next, up to `most`; none if the fewest are known.

    `over` is time over limit at the numbers tried before, which falls with the machines. Two numbers are tried at once,
    on both sides of the one at which all would be 1 if their logarithms were linear in the load of a machine.
    """
    kept = min((count for count, ratios in over.items() if max(ratios) <= 1), default=None)
    end = most + 1 if kept is None else kept
    failed = max((count for count, ratios in over.items() if max(ratios) > 1 and count < end), default=one.least - 1)
    left = range(failed + 1, end)
    if len(left) <= 2:
        return list(left)
    if failed < one.least:
        return [one.least]
    ratios_kept, load_kept = (one.over_alone, 0.0) if kept is None else (over[kept], 1 / kept)
    guess = left[0]
    for high, low in zip(over[failed], ratios_kept, strict=True):
        if high > 1:
            load = load_kept + math.log(low) / math.log(low / high) * (1 / failed - load_kept)
            guess = max(guess, math.ceil(1 / load) if load * end > 1 else end)
    step = max(1, guess // 20 if kept is None else len(left) // 8)  # affects only how soon the fewest are found
    middle = [(failed + end) // 2] if len(over) > 4 else []
    return sorted({min(max(count, left[0]), left[-1]) for count in (guess - step, guess + step - 1, *middle)})


def _ratios(times: QueueTimes, limits: Sequence[PercentileLimit]) -> list[_Ratios]:
    """Return time over limit for each limit, of each service."""
    ratios = [getattr(times, one.name)[one.tail] / one.most_s for one in limits]
    return list(zip(*(one.tolist() for one in ratios), strict=True))


def _passes(predictions: Predictions, devices: IndexArray, batches: IndexArray) -> EnginePasses:
    if predictions.tokens is None or predictions.tokens.passes_at is None:
        raise ValueError("no engine serves the model")
    return predictions.tokens.passes_at(devices, batches)


def _times(passes: EnginePasses, machines: FloatArray | IndexArray, *, job: Job) -> QueueTimes:
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
