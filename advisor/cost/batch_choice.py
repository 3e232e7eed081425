"""Predictions and the job in, the batch that each device runs it at out."""

from dataclasses import dataclass

import numpy as np

from advisor import units
from advisor.cost.service import instance_counts, request_latency_s
from advisor.records.answer import Job
from advisor.records.prediction import BoolArray, FloatArray, IndexArray, Predictions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchChoice:
    """The index of each device's batch; where `is_possible` is False none fits or keeps the limits. (devices,)."""

    index: IndexArray
    is_possible: BoolArray


def choose_batches(predictions: Predictions, *, job: Job) -> BatchChoice:
    """The batch that finishes the job soonest; for a service, of those that need the fewest instances the quickest."""
    allowed = predictions.fits & _keeps_limits(predictions, job)
    if job.requests_per_day is None:
        job_s = np.where(allowed, np.ceil(job.samples / predictions.batches) * predictions.step_s, np.inf)
        index = np.argmin(job_s, axis=1)
    else:
        step_s = np.where(allowed, predictions.step_s, np.inf)
        with np.errstate(divide="ignore"):  # a device that fits no batch has a throughput of 0
            counts = instance_counts(predictions.batches / step_s, requests_per_day=job.requests_per_day)
        fewest = counts == counts.min(axis=1, keepdims=True)
        index = np.argmin(np.where(fewest, step_s, np.inf), axis=1)
    is_possible: BoolArray = np.any(allowed, axis=1)
    return BatchChoice(index=index, is_possible=is_possible)


def latency_s(step_s: FloatArray, *, job: Job) -> FloatArray:
    """What `--max-latency` is held against: a step, of a service also the wait for the one before."""
    return step_s if job.requests_per_day is None else request_latency_s(step_s)


def why_over_limits(predictions: Predictions, device: int, *, job: Job) -> tuple[str, str] | None:
    """Code and reason where a device can run the step, but at no batch within the limits, with how much is missing."""
    fits = predictions.fits[device]
    step_s, batches = predictions.step_s[device][fits], predictions.batches[fits]
    if not len(step_s):
        return None
    latencies_s, rates = latency_s(step_s, job=job), batches / step_s
    limits = job.limits
    if limits.max_latency_s is not None:
        within = latencies_s <= limits.max_latency_s
        if not within.any():
            nearest = int(latencies_s.argmin())
            over_s = latencies_s[nearest] - limits.max_latency_s
            return "over-latency", (
                f"takes {units.format_duration(latencies_s[nearest])} at batch {batches[nearest]}, "
                f"{units.format_duration(over_s)} more than --max-latency {units.format_duration(limits.max_latency_s)}"
            )
        rates = rates[within]
    if limits.min_samples_per_s is not None and rates.max() < limits.min_samples_per_s:
        within_latency = "" if limits.max_latency_s is None else " within --max-latency"
        return "under-throughput", (
            f"does {units.format_rate(rates.max())} samples/s at most{within_latency}, "
            f"{units.format_rate(limits.min_samples_per_s - rates.max())} fewer than "
            f"--min-throughput {units.format_rate(limits.min_samples_per_s)}"
        )
    return None


def _keeps_limits(predictions: Predictions, job: Job) -> BoolArray:
    keeps: BoolArray = np.ones_like(predictions.fits)
    if job.limits.max_latency_s is not None:
        keeps &= latency_s(predictions.step_s, job=job) <= job.limits.max_latency_s
    if job.limits.min_samples_per_s is not None:
        keeps &= predictions.batches / predictions.step_s >= job.limits.min_samples_per_s
    return keeps
