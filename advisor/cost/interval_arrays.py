"""Middles and ends of amounts as arrays in, intervals out."""

from advisor.records.answer import Interval
from advisor.records.columns import from_columns
from advisor.records.prediction import FloatArray


def intervals(mid_low_high: FloatArray) -> list[Interval]:
    """Of (3, amounts): the middle and the ends of each."""
    ends = zip(("mid", "low", "high"), mid_low_high.tolist(), strict=True)
    return from_columns(Interval, dict(ends), count=mid_low_high.shape[1])
