"""Gives the costs of a job without a size as rates: per million samples, or per billion where that is under a cent."""

from dataclasses import dataclass

from advisor.records.answer import Interval, Job, Recommendation

_MILLION, _BILLION = 10**6, 10**9
_LEAST_READABLE_USD = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleUnit:
    """A number of samples, or of requests in LLM serving, whose cost is given; `job_samples` is that of the quotes."""

    count: int
    job_samples: int

    @property
    def name(self) -> str:
        """Return "million" or "billion"."""
        return "million" if self.count == _MILLION else "billion"

    @property
    def symbol(self) -> str:
        """Return "M" or "G"."""
        return "M" if self.count == _MILLION else "G"

    def of(self, whole: Interval) -> Interval:
        """Return the cost or the time of this many samples, from that of the job."""
        mid, low, high = (end / self.job_samples * self.count for end in (whole.mid, whole.low, whole.high))
        return Interval(mid=mid, low=low, high=high)


def sample_unit(job_usd: float, *, job_samples: int) -> SampleUnit:
    """Return the unit in which this cost of a job is readable."""
    is_readable = job_usd / job_samples * _MILLION >= _LEAST_READABLE_USD or not job_usd
    return SampleUnit(count=_MILLION if is_readable else _BILLION, job_samples=job_samples)


def unit_of(recommendation: Recommendation) -> SampleUnit | None:
    """Return the unit of the costs of an answer; None if its job has a size."""
    job, best = recommendation.job, recommendation.best
    if not is_rate(job):
        return None
    return sample_unit(0.0 if best is None else best.job_usd.mid, job_samples=job.samples)


def is_rate(job: Job) -> bool:
    """Return True if the job has no size, so that its cost and time are rates."""
    return job.assumed and job.requests_per_day is None
