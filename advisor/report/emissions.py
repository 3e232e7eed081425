"""Writes the CO2 of quotes."""

from advisor import units
from advisor.records.answer import Interval, Job, Quote
from advisor.report.amounts import SampleUnit, in_unit


def asks_for_co2(job: Job) -> bool:
    """Return whether the job is ranked by its CO2 or has a limit on it."""
    return job.objective == "co2" or job.limits.max_co2_kg is not None


def co2_text(quote: Quote, *, unit: SampleUnit | None) -> str:
    """Return the CO2 of the job, or of a unit of samples, with its interval; a dash if it is not known."""
    co2_kg = in_unit(quote.co2_kg, unit=unit)
    return "-" if co2_kg is None else co2_interval(co2_kg)


def co2_interval(co2_kg: Interval) -> str:
    """Return an interval of CO2, such as "1.2 kg [0.8-1.7]"."""
    return units.format_interval_co2(co2_kg.mid, co2_kg.low, co2_kg.high)
