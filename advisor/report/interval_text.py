"""Formats an interval of time."""

from advisor import units
from advisor.records.answer import Interval


def interval_text(time_s: Interval) -> str:
    """Return the interval as text, such as "10 ms [8-12.5]"."""
    return units.format_interval_s(time_s.mid, time_s.low, time_s.high)
