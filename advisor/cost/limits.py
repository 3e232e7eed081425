"""Compares predicted times and costs with the user's limits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.cost.interruptions import MOST_INTERRUPTIONS
from advisor.cost.job_cost import JobCosts, cost_job
from advisor.cost.offer_terms import OfferTerms
from advisor.cost.service import least_p99_s
from advisor.records.answer import Job, JobLimits
from advisor.records.prediction import BoolArray, FloatArray, IndexArray, TokenTimes
from advisor.records.rejection import Cause, RejectionCode

_OF_ALL_MACHINES = ("over-quota", "over-max-hourly")
"""Limits that fewer machines may keep, though they cost more for the same work."""
_OF_PRICES = (*_OF_ALL_MACHINES, "over-max-usd")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Limit:
    """A limit, kept where the amount needed is at most the amount available; one of the two may be a single number."""

    code: RejectionCode
    needed: FloatArray
    available: FloatArray

    @property
    def is_kept(self) -> BoolArray:
        """Return where the limit is kept."""
        kept: BoolArray = self.needed <= self.available
        return kept


def step_limits(
    step_s: FloatArray, tokens: TokenTimes | None, *, batches: IndexArray, servers: FloatArray, job: Job
) -> list[Limit]:
    """Return the limits on a step that are set, for steps of `step_s`, (devices, batches).

    Limits on percentiles of a served language model's times are left to `token_queue`.
    `tokens` are the token times of LLM serving, and `servers` the `server_counts` of an instance.
    """
    limits, nothing = job.limits, np.zeros_like(step_s)
    found: list[tuple[RejectionCode, float | None, FloatArray]] = [
        ("over-latency", limits.max_latency_s, _latency_s(step_s, tokens, job=job)),
        ("over-ttft", limits.max_ttft_s if limits.ttft_of == "mean" else None, tokens.first_s if tokens else nothing),
        ("over-tpot", limits.max_tpot_s if limits.tpot_of == "mean" else None, tokens.between_s if tokens else nothing),
    ]
    if job.requests_per_day is not None and limits.p99_s is not None and job.generation is None:
        found.append(("over-p99", limits.p99_s, least_p99_s(step_s, batch=batches, servers=servers, job=job)))
    set_limits = _set_limits(found, shape=step_s.shape)
    if limits.min_samples_per_s is not None:
        least = np.full_like(step_s, limits.min_samples_per_s)
        set_limits.append(Limit(code="under-throughput", needed=least, available=batches / step_s))
    return set_limits


def offer_limits(
    limits: JobLimits, *, costs: JobCosts, terms: OfferTerms, co2_kg: FloatArray | None = None
) -> list[Limit]:
    """Return the user's quota and the limits on time, money and CO2 that are set, for each offer, and on interruptions.

    An offer whose CO2 is not known (NaN) does not keep a limit on CO2.
    """
    count = costs.instance_count
    # The local machine costs $0 an hour, and an offer that cannot serve the load would need infinitely many.
    usd_per_hour = np.multiply(terms.usd_per_hour, count, out=np.full_like(count, np.inf), where=np.isfinite(count))
    found: list[tuple[RejectionCode, float | None, FloatArray]] = [
        ("over-deadline", limits.deadline_s, costs.job_s),
        ("over-max-usd", limits.max_usd, costs.job_usd),
        ("over-max-hourly", limits.max_usd_per_hour, usd_per_hour),
    ]
    if co2_kg is not None:
        found.append(("over-max-co2", limits.max_co2_kg, co2_kg))
    quota = Limit(code="over-quota", needed=count, available=terms.quota_instances)
    most = np.full_like(count, MOST_INTERRUPTIONS)
    endless = Limit(code="never-done", needed=costs.interruption_count, available=most)
    return [endless, quota, *_set_limits(found, shape=count.shape)]


def price_limits(
    step_s: FloatArray, *, batches: IndexArray, machines: FloatArray, terms: OfferTerms, job: Job
) -> list[Limit]:
    """Return the quota and the limits on money that are set, for steps of `step_s`, (devices, batches).

    `machines` is the number that work together, and `terms` are those of one offer for each device. A service has no
    such limits here, because its load decides how many instances there are.
    """
    if job.requests_per_day is not None:
        return []
    shape = step_s.shape
    each = terms.of(np.repeat(np.arange(shape[0]), shape[1]))
    each = replace(each, machine_count=np.broadcast_to(machines, shape).ravel())
    costs = cost_job(step_s.ravel(), batch=np.tile(batches, shape[0]), terms=each, job=job)
    return [
        replace(one, needed=one.needed.reshape(shape), available=one.available.reshape(shape))
        for one in offer_limits(job.limits, costs=costs, terms=each)
        if one.code in _OF_PRICES
    ]


def keeps_all(limits: Sequence[Limit], *, among: BoolArray) -> BoolArray:
    """Return where all limits are kept, `among` these steps or offers."""
    kept = among.copy()
    for limit in limits:
        kept &= limit.is_kept
    return kept


def broken_limits(limits: Sequence[Limit], offer: int, *, machine_count: int) -> tuple[Cause, ...]:
    """Return the limits that the offer at this index breaks; its plan takes `machine_count` machines together."""
    amounts = ((limit.code, float(limit.needed[offer]), float(limit.available[offer])) for limit in limits)
    together = f"{machine_count} machines" if machine_count > 1 else ""
    return tuple(
        Cause(code=code, needed=needed, available=available, what=together if code in _OF_ALL_MACHINES else "")
        for code, needed, available in amounts
        if needed > available
    )


def closest_batch(limits: Sequence[Limit], device: int, *, fits: BoolArray, batches: IndexArray) -> Cause | None:
    """Return the first limit that no batch of the device keeps together with those before it, at the closest batch.

    `fits` says which batches fit in memory. Return None if some batch keeps all limits.
    """
    left = fits
    for number, limit in enumerate(limits):
        before, left = left, left & limit.is_kept[device]
        if not left.any():
            needed, available = limit.needed[device], limit.available[device]
            closest = int(np.where(before, needed - available, np.inf).argmin())
            return Cause(
                code=limit.code,
                needed=float(needed[closest]),
                available=float(available[closest]),
                batch=int(batches[closest]),
                within=tuple(one.code for one in limits[:number]),
            )
    return None


def _set_limits(
    found: Sequence[tuple[RejectionCode, float | None, FloatArray]], *, shape: tuple[int, ...]
) -> list[Limit]:
    return [
        Limit(code=code, needed=needed, available=np.full(shape, most))
        for code, most, needed in found
        if most is not None
    ]


def _latency_s(step_s: FloatArray, tokens: TokenTimes | None, *, job: Job) -> FloatArray:
    """Return the latency that `--max-latency` limits: a step; in LLM serving, the whole request."""
    if tokens is not None and job.generation is not None:
        return tokens.first_s + job.generation.decode_count * tokens.between_s
    return step_s
