"""Computes how many instances a service needs, how busy they are, and how long its requests take."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.cost.waiting import wait_steps
from advisor.records.answer import Job, JobLimits
from advisor.records.prediction import BoolArray, FloatArray, IndexArray, Predictions
from advisor.records.scale import Plan

HOURS_PER_MONTH = 730
"""365 x 24 / 12: the length of a month in cloud billing."""
SECONDS_PER_HOUR = 3600
SECONDS_PER_MONTH = HOURS_PER_MONTH * SECONDS_PER_HOUR
_SECONDS_PER_DAY = 86400
P99_TAIL, P50_TAIL = 0.01, 0.5
"""Shares of the requests that take longer than the 99th percentile and than the median."""
MOST_SPARE = 8
"""Most instances that keep a latency limit, as a multiple of the fewest that carry the load. At a twelfth of the
capacity hardly a request waits for more than a step, and a smaller batch helps more than another instance."""


def requests_per_day(requests_per_second: float) -> int:
    """Return the requests of a day at this constant rate."""
    return math.ceil(requests_per_second * _SECONDS_PER_DAY)


def requests_per_month(requests_per_day: int) -> int:
    """Return the requests of a month of 730 hours."""
    return math.ceil(requests_per_day * HOURS_PER_MONTH / 24)


def server_counts(predictions: Predictions, *, job: Job) -> FloatArray:
    """Return how many batches an instance works on at a time, (devices, batches): one for each copy of the model.

    In LLM serving, each request in flight has a slot of its own, which the next one takes (continuous batching).
    """
    if job.generation is not None:
        return np.ones(predictions.step_s.shape) * predictions.batches
    return of_plans(predictions, lambda plan: plan.data)


def machines_together(predictions: Predictions) -> FloatArray:
    """Return the machines that work together, (devices, batches), under the plans of the predictions."""
    return of_plans(predictions, lambda plan: plan.machines)


def of_plans(predictions: Predictions, number: Callable[[Plan], float]) -> FloatArray:
    """Return a number of the plan of each step, (devices, batches); 1 without plans."""
    if predictions.scaling is None:
        return np.ones(predictions.step_s.shape)
    numbers = np.array([number(plan) for plan in predictions.scaling.plans], dtype=np.float64)
    return numbers[predictions.scaling.plan]


def instance_counts(step_s: FloatArray, *, batch: IndexArray | FloatArray, servers: FloatArray, job: Job) -> FloatArray:
    """Return the fewest instances that keep the largest utilization and the limit on the 99th percentile.

    `servers` are the `server_counts` of an instance. The arrays have the shape of `step_s`, whose infinite times need
    an infinite number. If even `MOST_SPARE` times the fewest break the limit, only the utilization counts. So it does
    for a served language model, whose limits `token_queue` keeps.
    """
    is_possible = np.isfinite(step_s)
    possible_s = np.where(is_possible, step_s, 1.0)
    # A load that fills its instances exactly must not need one more because of rounding.
    counts = np.ceil(requests_per_s(job) / job.max_utilization * possible_s / batch * (1 - 1e-12))
    limit_s = job.limits.p99_s
    if limit_s is not None and job.generation is None:
        counts = _counts_within(limit_s, possible_s, batch=batch, servers=servers, least=counts, job=job)
    return np.where(is_possible, counts, np.inf)


def with_spare(
    counts: FloatArray,
    step_s: FloatArray,
    *,
    batch: IndexArray | FloatArray,
    servers: FloatArray,
    most: FloatArray,
    job: Job,
) -> FloatArray:
    """Return the instances of a service; if time is the objective, more than `counts` where that shortens the latency.

    It is then the fewest with the 99th percentile of `MOST_SPARE` times those that the load needs, but at most `most`
    instances. Served language models get no more.
    """
    if job.objective != "time" or job.generation is not None:
        return counts
    possible_s = np.where(np.isfinite(step_s), step_s, 1.0)
    load: dict[str, Any] = {"batch": batch, "servers": servers}
    least = instance_counts(possible_s, **load, job=replace(job, limits=JobLimits()))
    fastest = _counts_within(least_p99_s(possible_s, **load, job=job), possible_s, **load, least=least, job=job)
    return np.maximum(counts, np.minimum(fastest, most))


def least_p99_s(step_s: FloatArray, *, batch: IndexArray | FloatArray, servers: FloatArray, job: Job) -> FloatArray:
    """Return the 99th percentile of the latency with the most instances that a limit on it may take."""
    most = MOST_SPARE * instance_counts(step_s, batch=batch, servers=servers, job=replace(job, limits=JobLimits()))
    return latencies_s(step_s, batch=batch, servers=servers, instance_counts=most, job=job, tail=P99_TAIL)


def _counts_within(
    limit_s: FloatArray | float,
    step_s: FloatArray,
    *,
    batch: IndexArray | FloatArray,
    servers: FloatArray,
    least: FloatArray,
    job: Job,
) -> FloatArray:
    """Return the fewest instances that keep the limit, or `least` where `MOST_SPARE` times as many do not."""

    def is_over(counts: FloatArray) -> BoolArray:
        late_s = latencies_s(step_s, batch=batch, servers=servers, instance_counts=counts, job=job, tail=P99_TAIL)
        return late_s > limit_s

    too_few, enough = least - 1, MOST_SPARE * least
    can_keep = ~is_over(enough)
    while (is_open := can_keep & (enough - too_few > 1)).any():
        middle = np.where(is_open, np.floor((too_few + enough) / 2), enough)
        over = is_over(middle)
        too_few, enough = np.where(over, middle, too_few), np.where(over, enough, middle)
    return np.where(can_keep, enough, least)


def utilizations(
    step_s: FloatArray, *, batch: IndexArray | FloatArray, instance_counts: FloatArray, job: Job
) -> FloatArray:
    """Return the load over what the instances can serve."""
    is_possible = np.isfinite(step_s)
    possible_s, counts = (np.where(is_possible, one, 1.0) for one in (step_s, instance_counts))
    return np.where(is_possible, requests_per_s(job) * possible_s / (batch * counts), 0.0)


def latencies_s(
    step_s: FloatArray,
    *,
    batch: IndexArray | FloatArray,
    servers: FloatArray,
    instance_counts: FloatArray,
    job: Job,
    tail: float,
) -> FloatArray:
    """Return the time from the arrival of a request to its answer that the share `tail` of the requests exceeds."""
    waits = wait_steps(
        utilizations(step_s, batch=batch, instance_counts=instance_counts, job=job),
        batch=batch / servers,
        servers=servers * np.where(np.isfinite(instance_counts), instance_counts, 1.0),
        tail=tail,
    )
    return step_s * (1 + waits)


def requests_per_s(job: Job) -> float:
    """Return the load of a service."""
    if job.requests_per_day is None:
        raise ValueError("only a service has a load")
    return job.requests_per_day / _SECONDS_PER_DAY
