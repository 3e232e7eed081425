"""Defines the timing of a real step."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTiming:
    """The times of `step_count` steps of `batch` samples.

    - `step_s`: median of the faster half
    - `low_s`, `high_s`: range of 90 % of the steps
    - `iqr_ratio`: interquartile range over the median
    - `others_cpu_count`: CPUs that other processes kept busy during the timing; 0 if not checked
    - `loader_wait_s`: mean time the device waited for the data of a step; None if the data was already in memory
    """

    batch: int
    step_s: float
    low_s: float
    high_s: float
    step_count: int
    iqr_ratio: float
    others_cpu_count: float = 0.0
    loader_wait_s: float | None = None
