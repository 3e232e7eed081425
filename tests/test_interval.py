"""The middle of an interval is never outside of it."""

import math

from hypothesis import given
from hypothesis import strategies as st

from advisor.records.answer import Interval

NUMBERS = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_the_ends_enclose_the_middle(mid: float, low: float, high: float) -> None:
    found = Interval(mid=mid, low=low, high=high)
    assert found.low <= found.mid <= found.high
    assert found.mid == mid


def test_an_end_that_rounding_put_on_the_wrong_side_is_the_middle() -> None:
    above, below = math.nextafter(0.3, 1), math.nextafter(0.3, 0)
    assert Interval(mid=0.3, low=above, high=below) == Interval(mid=0.3, low=0.3, high=0.3)
