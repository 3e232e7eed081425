"""Converts arrays of middles and ends to intervals."""

from advisor.records.answer import Interval
from advisor.records.columns import from_columns
from advisor.records.prediction import FloatArray


def intervals(mid_low_high: FloatArray) -> list[Interval]:
    """Return one interval per column of (3, amounts): the middle, the low and the high end."""
    ends = zip(("mid", "low", "high"), mid_low_high.tolist(), strict=True)
    return from_columns(Interval, dict(ends), count=mid_low_high.shape[1])
