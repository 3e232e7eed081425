"""Which offers may lead the answer."""

import numpy as np

from advisor.cost.quotes import may_lead

MEASURED = np.array([True, True, True])


def amounts(*mid: float, spread: float = 2.0) -> np.ndarray:
    return np.stack([np.array(mid), np.array(mid) / spread, np.array(mid) * spread])


def test_an_offer_whose_price_is_not_trusted_does_not_lead() -> None:
    leads = may_lead(amounts(1, 2, 3), is_trusted=[False, True, True], is_measured=MEASURED)
    assert leads.tolist() == [False, True, True]


def test_a_prediction_from_the_datasheet_leads_by_its_upper_end_alone() -> None:
    unmeasured = np.array([False, True, True])
    # Its upper end is 2 x 1, against the other's 1.9 and 2.1.
    assert may_lead(amounts(1, 1.9, 3), is_trusted=[True] * 3, is_measured=unmeasured).tolist() == [False, True, True]
    assert may_lead(amounts(1, 2.1, 3), is_trusted=[True] * 3, is_measured=unmeasured).tolist() == [True, True, True]


def test_it_is_compared_with_offers_of_trusted_prices() -> None:
    leads = may_lead(amounts(1, 1.9, 3), is_trusted=[True, False, True], is_measured=np.array([False, True, True]))
    assert leads.tolist() == [True, False, True]


def test_where_nothing_was_measured_datasheets_lead() -> None:
    leads = may_lead(amounts(1, 2, 3), is_trusted=[True, True, False], is_measured=~MEASURED)
    assert leads.tolist() == [True, True, False]


def test_an_offer_does_not_lead_one_that_costs_about_the_same_and_rents_for_less_than_half() -> None:
    rents = np.array([22.0, 0.7, 0.4])
    leads = may_lead(amounts(1, 1.09, 1.2), is_trusted=[True] * 3, is_measured=MEASURED, usd_per_hour=rents)
    assert leads.tolist() == [False, True, True]  # 1.09 is within 10 % of 1; 0.4 is more than half of 0.7
    leads = may_lead(amounts(1, 1.11, 1.3), is_trusted=[True] * 3, is_measured=MEASURED, usd_per_hour=rents)
    assert leads.tolist() == [True, True, True]


def test_a_machine_that_may_not_lead_itself_takes_the_lead_from_none() -> None:
    rents = np.array([22.0, 0.7, 0.4])
    leads = may_lead(amounts(1, 1.05, 9), is_trusted=[True, False, True], is_measured=MEASURED, usd_per_hour=rents)
    assert leads.tolist() == [True, False, True]
