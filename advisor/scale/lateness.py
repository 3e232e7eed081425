"""Computes by how much the steps of a plan exceed the user's time limits."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.cost.limits import step_limits
from advisor.records.answer import Job, JobLimits
from advisor.records.prediction import FloatArray, IndexArray, TokenTimes
from advisor.records.scale import Plan
from advisor.scale.served_best import Lateness as ServedLateness
from advisor.scale.spread_out import Lateness, never_late


def lateness_of(job: Job, batches: IndexArray, *, rows: Sequence[int], start_up_s: FloatArray | float) -> Lateness:
    """Return a function that gives predicted over allowed time for the steps of a plan.

    `rows` are the indices of the devices in `start_up_s`. The ratio is the largest over all limits.
    """
    if job.limits == JobLimits():
        return never_late
    most_step_s = _most_step_s(job, batches, start_up_s=start_up_s)

    def lateness(step_s: FloatArray, plan: Plan, members: Sequence[int]) -> FloatArray:
        most_s = most_step_s if len(most_step_s) == 1 else most_step_s[[rows[member] for member in members]]
        return _largest_ratio(step_s, None, most_s, batches, float(plan.data), job)

    return lateness


def served_lateness(job: Job, batches: IndexArray, *, start_up_s: FloatArray | float) -> ServedLateness | None:
    """Return the same for requests to a served language model; None if the job has no limits."""
    if job.limits == JobLimits():
        return None
    job = replace(job, limits=replace(job.limits, ttft_of="mean", tpot_of="mean"))  # as a guide to the plan
    most_step_s = _most_step_s(job, batches, start_up_s=start_up_s)

    def lateness(step_s: FloatArray, tokens: TokenTimes, members: Sequence[int]) -> FloatArray:
        most_s = most_step_s if len(most_step_s) == 1 else most_step_s[list(members)]
        return _largest_ratio(step_s, tokens, most_s, batches, batches.astype(np.float64), job)

    return lateness


def _largest_ratio(
    step_s: FloatArray,
    tokens: TokenTimes | None,
    most_s: FloatArray,
    batches: IndexArray,
    servers: FloatArray | float,
    job: Job,
) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):  # no time left, or no possible step
        limits = step_limits(step_s, tokens, batches=batches, servers=np.asarray(servers), job=job)
        ratios = [step_s / most_s, *(one.needed / one.available for one in limits)]
    largest: FloatArray = np.where(np.isfinite(step_s), np.max(ratios, axis=0), np.inf)
    return largest


def _most_step_s(job: Job, batches: IndexArray, *, start_up_s: FloatArray | float) -> FloatArray:
    """Return the longest step that keeps the deadline, (devices, batches) or (1, batches)."""
    if job.limits.deadline_s is None:
        return np.full((1, len(batches)), np.inf)
    left_s = np.maximum(0.0, job.limits.deadline_s - np.atleast_1d(start_up_s))
    most_s: FloatArray = left_s[:, np.newaxis] / np.ceil(job.samples / batches)
    return most_s
