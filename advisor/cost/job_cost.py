"""Computes the time and the cost of a job on each offer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.cost.interruptions import expected_s, interruption_count
from advisor.cost.offer_terms import OfferTerms, most_machines
from advisor.cost.service import (
    SECONDS_PER_HOUR,
    SECONDS_PER_MONTH,
    instance_counts,
    utilizations,
    with_spare,
)
from advisor.records.answer import Job
from advisor.records.prediction import FloatArray, IndexArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobCosts:
    """Time and cost of the job on each offer; all arrays are (offers,).

    `job_s` runs from the request for the instance to the end of the job; for a service it is a month. `parts_usd`,
    by the fields of `CostParts`, add up to `job_usd`. An offer that cannot do the job has infinite time and cost.
    `interruption_count` is that of a stretch of work between checkpoints.
    """

    job_s: FloatArray
    job_usd: FloatArray
    instance_count: FloatArray
    idle_ratio: FloatArray
    lost_s: FloatArray
    interruption_count: FloatArray
    parts_usd: Mapping[str, FloatArray]


def cost_job(step_s: FloatArray, *, batch: IndexArray, terms: OfferTerms, job: Job) -> JobCosts:
    """Price the job at one step time per offer; an infinite step time means that the device cannot run the step."""
    if job.requests_per_day is not None:
        return _cost_service(step_s, batch=batch, terms=terms, job=job)
    compute_s = step_counts(job, batch) * step_s
    per_s = terms.interruptions_per_s * terms.machine_count
    counts = interruption_count(compute_s, checkpoint_every_s=job.checkpoint_every_s, interruptions_per_s=per_s)
    working_s = expected_s(compute_s, counts=counts, interruptions_per_s=per_s, restart_s=terms.start_up_s)
    running_s = terms.start_up_s + working_s
    paid_s = billed_s(running_s, increment_s=terms.increment_s, minimum_s=terms.minimum_s)
    lost_s = _difference(working_s, compute_s)
    parts_s = {
        "compute": compute_s,
        "start_up": terms.start_up_s,
        "lost_work": lost_s,
        "billing_increments": _difference(paid_s, running_s),
    }
    return _with_extras(
        terms,
        {name: _usd(part_s * terms.machine_count, terms) for name, part_s in parts_s.items()},
        machine_s=paid_s * terms.machine_count,
        job_s=terms.wait_s + running_s,
        instance_count=terms.machine_count,
        idle_ratio=np.zeros_like(step_s),
        lost_s=lost_s,
        interruption_count=counts,
    )


def step_counts(job: Job, batch: IndexArray) -> FloatArray:
    """Return the steps of the job at each batch size. The last batch counts in whole, as if it were full.

    A job of assumed size has no last batch, since it keeps the device busy.
    """
    counts: FloatArray = job.samples / batch
    return counts if job.assumed else np.ceil(counts)


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
    load: dict[str, Any] = {"batch": batch, "servers": terms.server_count, "job": job}
    most = np.floor(most_machines(terms, job.limits) / terms.machine_count)
    groups = with_spare(np.maximum(instance_counts(step_s, **load), terms.least_count), step_s, **load, most=most)
    idle = np.where(is_possible, 1 - utilizations(step_s, batch=batch, instance_counts=groups, job=job), 0.0)
    counts = groups * terms.machine_count
    machine_s = counts * SECONDS_PER_MONTH
    rent_usd = _usd(machine_s, terms)
    return _with_extras(
        terms,
        {
            "compute": rent_usd * (1 - idle),
            "idle_time": np.where(is_possible, rent_usd, 0.0) * idle * terms.idle_price_ratio,
        },
        machine_s=machine_s,
        job_s=np.where(is_possible, float(SECONDS_PER_MONTH), np.inf),
        instance_count=counts,
        idle_ratio=idle,
        lost_s=np.zeros_like(step_s),
        interruption_count=np.zeros_like(step_s),
    )


def _with_extras(
    terms: OfferTerms, rent_usd: Mapping[str, FloatArray], *, machine_s: FloatArray, **others: FloatArray
) -> JobCosts:
    """Add storage, egress and tax to the parts of the rent, and the total."""
    storage_usd = np.where(np.isfinite(machine_s), machine_s, 0.0) * terms.storage_usd_per_s
    untaxed = {**rent_usd, "storage": storage_usd, "egress": terms.egress_usd}
    untaxed_usd = sum(untaxed.values(), start=np.zeros_like(machine_s))
    tax_usd = np.where(np.isfinite(untaxed_usd), untaxed_usd, 0.0) * terms.tax_ratio
    return JobCosts(job_usd=untaxed_usd + tax_usd, parts_usd={**untaxed, "tax": tax_usd}, **others)


def _usd(seconds: FloatArray, terms: OfferTerms) -> FloatArray:
    usd = np.full_like(seconds, np.inf)  # infinite time costs infinity even at a price of 0
    np.multiply(seconds / SECONDS_PER_HOUR, terms.usd_per_hour, out=usd, where=np.isfinite(seconds))
    return usd


def _difference(longer_s: FloatArray, shorter_s: FloatArray) -> FloatArray:
    """Return the difference, 0 where both are infinite."""
    difference = np.zeros_like(longer_s)
    np.subtract(longer_s, shorter_s, out=difference, where=np.isfinite(longer_s))
    return difference
