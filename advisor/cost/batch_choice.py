"""Chooses the batch size at which each device runs the job."""

import math
from dataclasses import dataclass

import numpy as np

from advisor import units
from advisor.cost.miss import LimitViolation
from advisor.cost.service import instance_counts
from advisor.cost.time_limits import time_limits
from advisor.records.answer import Job
from advisor.records.prediction import BoolArray, IndexArray, Predictions
from advisor.records.sample_words import at_batch_text


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchChoice:
    """The index of the batch chosen for each device, (devices,).

    `is_possible` is False for a device on which no batch fits in memory and within the limits.
    """

    index: IndexArray
    is_possible: BoolArray


def choose_batches(predictions: Predictions, *, job: Job) -> BatchChoice:
    """Choose the batch that finishes the job first.

    For a service, choose the batch with the shortest step among those that need the fewest instances.
    """
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


def why_over_limits(predictions: Predictions, device: int, *, job: Job) -> LimitViolation | None:
    """Return the limit that every batch on the device breaks, with the excess at the batch nearest to it.

    Return None if no batch fits in memory, or if some batch is within all limits.
    """
    fits = predictions.fits[device]
    if not fits.any():
        return None
    duration = units.format_duration
    within = fits.copy()
    limits = time_limits(predictions.step_s, predictions.tokens, job=job)
    for one in limits:
        taken_s = one.taken_s[device]
        before, within = within, within & (taken_s <= one.limit_s)
        if not within.any():
            nearest = int(np.where(before, taken_s, np.inf).argmin())
            at = at_batch_text(int(predictions.batches[nearest]), job.generation)
            return LimitViolation(
                code=one.code,
                reason=f"{one.verb} {duration(taken_s[nearest])} {at}, "
                f"{duration(taken_s[nearest] - one.limit_s)} more than {one.flag} {duration(one.limit_s)}",
                ratio=float(taken_s[nearest]) / one.limit_s if one.limit_s else math.inf,
            )
    rates = predictions.batches[within] / predictions.step_s[device][within]
    least = job.limits.min_samples_per_s
    if least is not None and rates.max() < least:
        flags = "".join(f" within {one.flag}" for one in limits)
        unit = "samples" if job.generation is None else "requests"
        return LimitViolation(
            code="under-throughput",
            reason=f"reaches at most {units.format_rate(rates.max())} {unit}/s{flags}, "
            f"{units.format_rate(least - rates.max())} fewer than --min-throughput {units.format_rate(least)}",
            ratio=least / float(rates.max()),
        )
    return None


def _keeps_limits(predictions: Predictions, job: Job) -> BoolArray:
    keeps: BoolArray = np.ones_like(predictions.fits)
    for one in time_limits(predictions.step_s, predictions.tokens, job=job):
        keeps &= one.taken_s <= one.limit_s
    if job.limits.min_samples_per_s is not None:
        keeps &= predictions.batches / predictions.step_s >= job.limits.min_samples_per_s
    return keeps
