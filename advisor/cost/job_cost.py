"""Computes the time and the cost of a job on each offer."""

from dataclasses import dataclass

import numpy as np

from advisor.cost.interruptions import expected_s
from advisor.cost.offer_terms import OfferTerms
from advisor.cost.service import (
    SECONDS_PER_HOUR,
    SECONDS_PER_MONTH,
    instance_counts,
    utilizations,
)
from advisor.records.answer import Job
from advisor.records.prediction import FloatArray, IndexArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobCosts:
    """Time and cost of the job on each offer; all arrays are (offers,).

    `job_s` runs from the request for the instance to the end of the job; for a service it is a month. The parts of the
    cost add up to `job_usd`. An offer that cannot do the job has infinite time and cost.
    """

    job_s: FloatArray
    job_usd: FloatArray
    instance_count: FloatArray
    idle_ratio: FloatArray
    lost_s: FloatArray
    compute_usd: FloatArray
    start_up_usd: FloatArray
    lost_work_usd: FloatArray
    billing_increments_usd: FloatArray
    idle_time_usd: FloatArray
    storage_usd: FloatArray
    egress_usd: FloatArray
    tax_usd: FloatArray


def cost_job(step_s: FloatArray, *, batch: IndexArray, terms: OfferTerms, job: Job) -> JobCosts:
    """Price the job at one step time per offer; an infinite step time means that the device cannot run the step."""
    if job.requests_per_day is not None:
        return _cost_service(step_s, batch=batch, terms=terms, job=job)
    compute_s = np.ceil(job.samples / batch) * step_s
    working_s = expected_s(
        compute_s,
        checkpoint_every_s=job.checkpoint_every_s,
        interruptions_per_s=terms.interruptions_per_s * terms.machine_count,
        restart_s=terms.start_up_s,
    )
    running_s = terms.start_up_s + working_s
    paid_s = billed_s(running_s, increment_s=terms.increment_s, minimum_s=terms.minimum_s)
    lost_s = _difference(working_s, compute_s)
    nothing = np.zeros_like(step_s)
    return _with_extras(
        terms,
        machine_s=paid_s * terms.machine_count,
        job_s=terms.wait_s + running_s,
        instance_count=terms.machine_count,
        idle_ratio=nothing,
        lost_s=lost_s,
        compute_usd=_usd(compute_s * terms.machine_count, terms),
        start_up_usd=_usd(terms.start_up_s * terms.machine_count, terms),
        lost_work_usd=_usd(lost_s * terms.machine_count, terms),
        billing_increments_usd=_usd(_difference(paid_s, running_s) * terms.machine_count, terms),
        idle_time_usd=nothing,
    )


def billed_s(running_s: FloatArray, *, increment_s: FloatArray, minimum_s: FloatArray) -> FloatArray:
    """Return the billed time: rounded up to whole increments if these are known, and at least the minimum."""
    increment = np.where(increment_s > 0, increment_s, 1.0)
    # A time that exceeds whole increments only by rounding error must not be billed for one more.
    rounded = np.ceil(running_s / increment * (1 - 1e-12)) * increment
    paid: FloatArray = np.maximum(np.where(increment_s > 0, np.maximum(rounded, running_s), running_s), minimum_s)
    return paid


def _cost_service(step_s: FloatArray, *, batch: IndexArray, terms: OfferTerms, job: Job) -> JobCosts:
    """Price a month with enough instances, or groups of them, running for the load, busy or idle."""
    is_possible = np.isfinite(step_s)
    groups = np.maximum(instance_counts(step_s, batch=batch, servers=terms.server_count, job=job), terms.least_count)
    idle = np.where(is_possible, 1 - utilizations(step_s, batch=batch, instance_counts=groups, job=job), 0.0)
    counts = groups * terms.machine_count
    machine_s = counts * SECONDS_PER_MONTH
    rent_usd = _usd(machine_s, terms)
    nothing = np.zeros_like(step_s)
    return _with_extras(
        terms,
        machine_s=machine_s,
        job_s=np.where(is_possible, float(SECONDS_PER_MONTH), np.inf),
        instance_count=counts,
        idle_ratio=idle,
        lost_s=nothing,
        compute_usd=rent_usd * (1 - idle),
        start_up_usd=nothing,
        lost_work_usd=nothing,
        billing_increments_usd=nothing,
        idle_time_usd=np.where(is_possible, rent_usd, 0.0) * idle,
    )


def _with_extras(terms: OfferTerms, *, machine_s: FloatArray, compute_usd: FloatArray, **parts: FloatArray) -> JobCosts:
    """Add storage, egress and tax, and the total."""
    rent_usd = sum((usd for name, usd in parts.items() if name.endswith("_usd")), start=compute_usd)
    storage_usd = np.where(np.isfinite(machine_s), machine_s, 0.0) * terms.storage_usd_per_s
    untaxed_usd = rent_usd + storage_usd + terms.egress_usd
    tax_usd = np.where(np.isfinite(untaxed_usd), untaxed_usd, 0.0) * terms.tax_ratio
    return JobCosts(
        job_usd=untaxed_usd + tax_usd,
        compute_usd=compute_usd,
        storage_usd=storage_usd,
        egress_usd=terms.egress_usd,
        tax_usd=tax_usd,
        **parts,
    )


def _usd(seconds: FloatArray, terms: OfferTerms) -> FloatArray:
    usd = np.full_like(seconds, np.inf)  # infinite time costs infinity even at a price of 0
    np.multiply(seconds / SECONDS_PER_HOUR, terms.usd_per_hour, out=usd, where=np.isfinite(seconds))
    return usd


def _difference(longer_s: FloatArray, shorter_s: FloatArray) -> FloatArray:
    """Return the difference, 0 where both are infinite."""
    difference = np.zeros_like(longer_s)
    np.subtract(longer_s, shorter_s, out=difference, where=np.isfinite(longer_s))
    return difference
