"""A step that was run for real: how long it took, and how often it was timed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTiming:
    """Steps of `batch` samples: the median of the faster half, and the ends between which 90 % of them took.

    `iqr_ratio` is their interquartile range over their median.
    `others_cpu_count` is how many CPUs other processes kept busy meanwhile, 0 where that was not looked at.
    `loader_wait_s`: what the device waited for the data of a step, at the mean; None: its data was at hand.
    """

    batch: int
    step_s: float
    low_s: float
    high_s: float
    step_count: int
    iqr_ratio: float
    others_cpu_count: float = 0.0
    loader_wait_s: float | None = None
