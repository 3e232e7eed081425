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


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimeLimit:
    """What a flag lets something take, beside what it takes on every device at every batch."""

    code: str
    flag: str
    verb: str
    limit_s: float
    taken_s: FloatArray


def latency_s(predictions: Predictions, *, job: Job) -> FloatArray:
    """What `--max-latency` is held against: a step, of a service also the wait for the one before.

    A request for tokens waits for no step: it takes its first token, and the time between all others.
    """
    tokens, generation = predictions.tokens, job.generation
    if tokens is not None and generation is not None:
        return tokens.first_s + generation.decode_count * tokens.between_s
    return predictions.step_s if job.requests_per_day is None else request_latency_s(predictions.step_s)


def _time_limits(predictions: Predictions, job: Job) -> list[_TimeLimit]:
    """The limits that the user has set."""
    tokens, limits = predictions.tokens, job.limits
    nothing = np.zeros_like(predictions.step_s)
    asked = (
        ("over-latency", "--max-latency", "takes", limits.max_latency_s, latency_s(predictions, job=job)),
        ("over-ttft", "--max-ttft", "its first token takes", limits.max_ttft_s, tokens.first_s if tokens else nothing),
        ("over-tpot", "--max-tpot", "a token takes", limits.max_tpot_s, tokens.between_s if tokens else nothing),
    )
    return [
        _TimeLimit(code=code, flag=flag, verb=verb, limit_s=limit_s, taken_s=taken_s)
        for code, flag, verb, limit_s, taken_s in asked
        if limit_s is not None
    ]


def why_over_limits(predictions: Predictions, device: int, *, job: Job) -> tuple[str, str] | None:
    """Code and reason where a device can run the step, but at no batch within the limits, with how much is missing."""
    fits = predictions.fits[device]
    if not fits.any():
        return None
    duration = units.format_duration
    within = fits.copy()
    limits = _time_limits(predictions, job)
    for one in limits:
        taken_s = one.taken_s[device]
        before, within = within, within & (taken_s <= one.limit_s)
        if not within.any():
            nearest = int(np.where(before, taken_s, np.inf).argmin())
            return one.code, (
                f"{one.verb} {duration(taken_s[nearest])} at batch {predictions.batches[nearest]}, "
                f"{duration(taken_s[nearest] - one.limit_s)} more than {one.flag} {duration(one.limit_s)}"
            )
    rates = predictions.batches[within] / predictions.step_s[device][within]
    least = job.limits.min_samples_per_s
    if least is not None and rates.max() < least:
        flags = "".join(f" within {one.flag}" for one in limits)
        return "under-throughput", (
            f"does {units.format_rate(rates.max())} samples/s at most{flags}, "
            f"{units.format_rate(least - rates.max())} fewer than --min-throughput {units.format_rate(least)}"
        )
    return None


def _keeps_limits(predictions: Predictions, job: Job) -> BoolArray:
    keeps: BoolArray = np.ones_like(predictions.fits)
    for one in _time_limits(predictions, job):
        keeps &= one.taken_s <= one.limit_s
    if job.limits.min_samples_per_s is not None:
        keeps &= predictions.batches / predictions.step_s >= job.limits.min_samples_per_s
    return keeps
