"""Writes the CO2 and the energy of quotes."""

from advisor import units
from advisor.records.answer import Interval, Job, Quote, Recommendation
from advisor.records.energy import Grid
from advisor.report.amounts import SampleUnit


def asks_for_co2(job: Job) -> bool:
    """Return whether the job is ranked by its CO2 or has a limit on it."""
    return job.objective == "co2" or job.limits.max_co2_kg is not None


def grid_of(quote: Quote, recommendation: Recommendation) -> Grid | None:
    """Return the grid that the quote's CO2 is computed with; None if it is not known."""
    grids = recommendation.grids
    return grids.get(quote.id) or grids.get(f"{quote.provider}/{quote.region}")


def co2_of(quote: Quote, *, unit: SampleUnit | None) -> Interval | None:
    """Return the CO2 of the job in kg, or of a unit of samples if it has no size; None if it is not known."""
    return quote.co2_kg if quote.co2_kg is None or unit is None else unit.of(quote.co2_kg)


def kwh_of(quote: Quote, *, unit: SampleUnit | None) -> Interval | None:
    """Return the energy of the job, or of a unit of samples if it has no size; None if it is not known."""
    return quote.energy_kwh if quote.energy_kwh is None or unit is None else unit.of(quote.energy_kwh)


def co2_text(quote: Quote, *, unit: SampleUnit | None) -> str:
    """Return the CO2 of a quote with its interval; a dash if it is not known."""
    co2_kg = co2_of(quote, unit=unit)
    return "-" if co2_kg is None else co2_interval(co2_kg)


def co2_interval(co2_kg: Interval) -> str:
    """Return an interval of CO2, such as "1.2 kg [0.8-1.7]"."""
    return units.format_interval_co2(co2_kg.mid, co2_kg.low, co2_kg.high)
