"""The load of a service in, the instances that carry it and how long a request waits out."""

import math

import numpy as np

from advisor.records.prediction import FloatArray

HOURS_PER_MONTH = 730
"""365 x 24 / 12: the month that clouds bill by."""
SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600
_SECONDS_PER_DAY = 86400
_STEPS_WAITED = 2
"""A request that arrives as a step begins waits for its end, then takes part in the next."""


def requests_per_day(requests_per_second: float) -> int:
    """Of a day as even as that second."""
    return math.ceil(requests_per_second * _SECONDS_PER_DAY)


def requests_per_month(requests_per_day: int) -> int:
    """Of a month of 730 hours."""
    return math.ceil(requests_per_day * HOURS_PER_MONTH / 24)


def instance_counts(samples_per_s: FloatArray, *, requests_per_day: int) -> FloatArray:
    """ceil(load / throughput): the fewest instances that carry an even load."""
    # A load that fills its instances to the last digit needs no other one.
    counts: FloatArray = np.ceil(requests_per_day / _SECONDS_PER_DAY / samples_per_s * (1 - 1e-12))
    return counts


def idle_ratios(samples_per_s: FloatArray, *, instance_counts: FloatArray, requests_per_day: int) -> FloatArray:
    """The share of the paid time in which the instances wait for requests."""
    ratios: FloatArray = np.maximum(0.0, 1 - requests_per_day / _SECONDS_PER_DAY / (samples_per_s * instance_counts))
    return ratios


def request_latency_s(step_s: FloatArray) -> FloatArray:
    """The longest that a request takes where the instances carry the load: two steps."""
    return _STEPS_WAITED * step_s
