from hypothesis import given
from hypothesis import strategies as st

from advisor.records.columns import from_columns, to_columns
from advisor.records.price import Price

PRICES = st.builds(Price, kind=st.just("spot"), usd_per_hour=st.floats(0, 9), date=st.text(), source=st.text())


@given(st.lists(PRICES, max_size=5))
def test_records_from_the_columns_of_records_are_those_records(prices: list[Price]) -> None:
    assert from_columns(Price, to_columns(Price, prices), count=len(prices)) == prices
