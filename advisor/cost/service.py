"""Computes how many instances a service needs, how idle they are, and how long a request takes."""

import math

import numpy as np

from advisor.records.prediction import FloatArray

HOURS_PER_MONTH = 730
"""365 x 24 / 12: the length of a month in cloud billing."""
SECONDS_PER_HOUR = 3600
SECONDS_PER_MONTH = HOURS_PER_MONTH * SECONDS_PER_HOUR
_SECONDS_PER_DAY = 86400
_STEPS_WAITED = 2
"""A request that arrives as a step begins waits for its end, then takes part in the next."""


def requests_per_day(requests_per_second: float) -> int:
    """Return the requests of a day at this constant rate."""
    return math.ceil(requests_per_second * _SECONDS_PER_DAY)


def requests_per_month(requests_per_day: int) -> int:
    """Return the requests of a month of 730 hours."""
    return math.ceil(requests_per_day * HOURS_PER_MONTH / 24)


def instance_counts(samples_per_s: FloatArray, *, requests_per_day: int) -> FloatArray:
    """Return ceil(load / throughput): the fewest instances that can serve an evenly spread load."""
    # A load that fills its instances exactly must not need one more because of rounding.
    counts: FloatArray = np.ceil(requests_per_day / _SECONDS_PER_DAY / samples_per_s * (1 - 1e-12))
    return counts


def idle_ratios(samples_per_s: FloatArray, *, instance_counts: FloatArray, requests_per_day: int) -> FloatArray:
    """Return the share of the paid time in which the instances wait for requests."""
    ratios: FloatArray = np.maximum(0.0, 1 - requests_per_day / _SECONDS_PER_DAY / (samples_per_s * instance_counts))
    return ratios


def request_latency_s(step_s: FloatArray) -> FloatArray:
    """Return the longest latency of a request when the instances can serve the load: two steps."""
    return _STEPS_WAITED * step_s
