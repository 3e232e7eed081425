"""Formats counts, times and money in the currency of the answer; costs of a job without a size are rates."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from advisor import units
from advisor.records.answer import Interval, Job, Recommendation
from advisor.records.price import ExchangeRate
from advisor.records.sample_words import samples_noun

_EXACT_BELOW = 10_000


def count_text(count: int) -> str:
    """Return an exact count: "12,345"."""
    return f"{count:,}"


def number_text(count: int) -> str:
    """Return a count with three significant digits if it is large: "9,876", "17,600"."""
    return f"{count if count < _EXACT_BELOW else round(float(f'{count:.3g}')):,}"


def interval_text(time_s: Interval) -> str:
    """Return an interval of time, such as "10 ms [8-12.5]"."""
    return units.format_interval_s(time_s.mid, time_s.low, time_s.high)


def in_currency(usd: Interval, *, rate: ExchangeRate | None) -> Interval:
    """Return the amount in the currency of `rate`."""
    one_usd = 1.0 if rate is None else rate.usd
    return Interval(mid=usd.mid / one_usd, low=usd.low / one_usd, high=usd.high / one_usd)


def money_interval(usd: Interval, *, rate: ExchangeRate | None) -> str:
    """Return an amount with its interval, such as "$0.42 [0.38-0.46]"."""
    return f"{units.format_money(usd.mid, rate=rate)} [{money_range(usd, rate=rate)}]"


def money_range(usd: Interval, *, rate: ExchangeRate | None) -> str:
    """Return the ends of an amount's interval, such as "0.38-0.46"."""
    inside = in_currency(usd, rate=rate)
    return "-".join(units.format_amount(end) for end in (inside.low, inside.high))


def money_text(rate: ExchangeRate | None, *, digits: int = 2) -> Callable[[float], str]:
    """Return the function that formats dollars in the currency of `rate`."""
    return lambda usd: units.format_money(usd, rate=rate, digits=digits)


def rate_note(rate: ExchangeRate | None) -> tuple[str, ...]:
    """Return the note on the exchange rate, if one was used."""
    return () if rate is None else (f"converted at {rate.usd:g} dollars per {rate.currency} (rate of {rate.date})",)


_MILLION, _BILLION = 10**6, 10**9
_LEAST_READABLE_USD = 0.01
_AmountT = TypeVar("_AmountT", Interval, Interval | None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleUnit:
    """A number of samples, or of requests in LLM serving, whose cost is given; `job_samples` is that of the quotes."""

    count: int
    name: str
    symbol: str
    job_samples: int

    def of(self, whole: Interval) -> Interval:
        """Return the cost or the time of this many samples, from that of the job."""
        mid, low, high = (end / self.job_samples * self.count for end in (whole.mid, whole.low, whole.high))
        return Interval(mid=mid, low=low, high=high)


def sample_unit(job_usd: float, *, job_samples: int) -> SampleUnit:
    """Return the unit in which this cost of a job is readable."""
    if job_usd / job_samples * _MILLION >= _LEAST_READABLE_USD or not job_usd:
        return SampleUnit(count=_MILLION, name="million", symbol="M", job_samples=job_samples)
    return SampleUnit(count=_BILLION, name="billion", symbol="B", job_samples=job_samples)


def unit_of(recommendation: Recommendation) -> SampleUnit | None:
    """Return the unit of the costs of an answer; None if its job has a size."""
    job, best = recommendation.job, recommendation.best
    if not is_rate(job):
        return None
    return sample_unit(0.0 if best is None else best.job_usd.mid, job_samples=job.samples)


def in_unit(whole: _AmountT, *, unit: SampleUnit | None) -> _AmountT:
    """Return an amount of the job, or that of a unit of samples if the job has no size; None stays None."""
    return whole if whole is None or unit is None else unit.of(whole)


def per_samples(recommendation: Recommendation) -> str:
    """Return what a cost or a time is for if the job has no size, as " per million samples"; otherwise nothing."""
    unit = unit_of(recommendation)
    return "" if unit is None else f" per {unit.name} {samples_noun(recommendation.job.generation)}"


def is_rate(job: Job) -> bool:
    """Return True if the job has no size, so that its cost and time are rates."""
    return job.assumed and job.requests_per_day is None
