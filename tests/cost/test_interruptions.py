import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.catalog.overlay import load_catalog
from advisor.cost.interruptions import expected_s, interruption_count, interruption_of, interruptions_per_s
from advisor.records.billing import Billing
from advisor.records.price import PricedOffer
from tests.cost.toys import offer, price

MONTH_S = 730 * 3600
RATE = interruptions_per_s("15-20 %")


def expected(work_s: float, *, every_s: float | None = None, rate: float = RATE, restart_s: float = 60.0) -> float:
    work, per_s = np.array([work_s]), np.array([rate])
    counts = interruption_count(work, checkpoint_every_s=every_s, interruptions_per_s=per_s)
    (seconds,) = expected_s(work, counts=counts, interruptions_per_s=per_s, restart_s=np.array([restart_s]))
    return float(seconds)


@pytest.mark.parametrize(("said", "share"), [("<5 %", 0.05), ("5-10 %", 0.1), (">20 %", 0.2)])
def test_the_rate_leaves_after_a_month_what_the_range_says(said: str, share: float) -> None:
    assert math.exp(-interruptions_per_s(said) * MONTH_S) == pytest.approx(1 - share)


def test_a_provider_without_a_known_rate_gets_the_middle_of_awss_classes() -> None:
    shipped, spot, listed = load_catalog().billing, price(kind="spot"), price()
    known, unknown = offer(interruption=">20 %"), offer()
    assert interruption_of(PricedOffer(offer=known, price=spot), billing=shipped) == ">20 %"
    assert interruption_of(PricedOffer(offer=unknown, price=spot), billing=shipped) == "10-15 %"
    assert interruption_of(PricedOffer(offer=unknown, price=listed), billing=shipped) is None
    assert interruption_of(PricedOffer(offer=unknown, price=spot), billing=Billing()) is None


def test_without_interruptions_the_work_takes_as_long_as_it_takes() -> None:
    assert expected(1e6, rate=0.0) == 1e6


def test_a_checkpoint_longer_than_the_work_is_none() -> None:
    assert expected(3600.0, every_s=1e6) == expected(3600.0)


def test_work_that_is_never_done_takes_a_time_that_is_still_a_number() -> None:
    assert math.isfinite(expected(1e12))
    assert expected(math.inf) == math.inf


@given(
    st.floats(1.0, 1e7), st.floats(1.0, 10.0), st.floats(60.0, 1e5), st.floats(1.0, 10.0), st.floats(1e-9, 1e-6),
    st.floats(1.0, 10.0),
)  # fmt: skip
def test_more_work_rarer_checkpoints_and_more_interruptions_are_never_sooner(
    work_s: float, more_work: float, every_s: float, rarer: float, rate: float, more_often: float
) -> None:
    least = expected(work_s, every_s=every_s, rate=rate)

    assert least >= work_s * (1 - 1e-9)
    assert expected(work_s * more_work, every_s=every_s, rate=rate) >= least * (1 - 1e-9)
    assert expected(work_s, every_s=every_s * rarer, rate=rate) >= least * (1 - 1e-9)
    assert expected(work_s, every_s=every_s, rate=rate * more_often) >= least * (1 - 1e-9)
