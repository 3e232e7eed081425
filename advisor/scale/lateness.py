"""Computes by how much the steps of a plan exceed the user's limits on time and money."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.cost.limits import price_limits, step_limits
from advisor.cost.market import DeviceTerms
from advisor.records.answer import Job, JobLimits
from advisor.records.prediction import FloatArray, IndexArray, TokenTimes
from advisor.scale.best_plans import Lateness, never_late


def lateness_of(job: Job, batches: IndexArray, *, terms: DeviceTerms) -> Lateness:
    """Return a function that gives needed over allowed time or money of a plan's steps, the largest over all limits.

    Start-up takes a part of a deadline.
    """
    cheapest = terms.cheapest
    if job.limits == JobLimits() and (cheapest is None or np.isinf(cheapest.quota_instances).all()):
        return never_late
    job = replace(job, limits=replace(job.limits, ttft_of="mean", tpot_of="mean"))  # as a guide to the plan
    most_step_s = _most_step_s(job, batches, start_up_s=terms.start_up_s)

    def lateness(
        step_s: FloatArray, members: Sequence[int], servers: FloatArray, machines: FloatArray, tokens: TokenTimes | None
    ) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):  # no time left, or no possible step
            limits = step_limits(step_s, tokens, batches=batches, servers=servers, job=job)
            if cheapest is not None:
                of_members = cheapest.of(np.array(members, dtype=np.intp))
                limits += price_limits(step_s, batches=batches, machines=machines, terms=of_members, job=job)
            ratios = [step_s / most_step_s[list(members)], *(one.needed / one.available for one in limits)]
        largest: FloatArray = np.where(np.isfinite(step_s), np.max(ratios, axis=0), np.inf)
        return largest

    return lateness


def _most_step_s(job: Job, batches: IndexArray, *, start_up_s: FloatArray) -> FloatArray:
    """Return the longest step that keeps the deadline, (devices, batches)."""
    if job.limits.deadline_s is None:
        return np.full((len(start_up_s), len(batches)), np.inf)
    left_s = np.maximum(0.0, job.limits.deadline_s - start_up_s)
    most_s: FloatArray = left_s[:, np.newaxis] / np.ceil(job.samples / batches)
    return most_s
