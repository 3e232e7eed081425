import pytest

from advisor.cost.offer_terms import latest_starts_s, offer_terms
from tests.cost.toys import billing, device, fleet, job, offer, price, selection

SLOW, QUICK, HERE = device("slow"), device("quick"), device("here")
OFFERS = selection(offer("a"), offer("b", wait_s=50.0), offer("c"), offer("d"))
FLEET = fleet(0, 0, 1, -1, devices=(SLOW, QUICK, HERE))


def test_a_service_spreads_the_purchase_of_a_machine_over_all_hours() -> None:
    # 0.40 $/h, of it 0.15 $ of electricity; 0.25 $ of purchase in 40 % of the hours are 0.10 $ in all of them.
    own = [price(0.40, kind="owned")]
    box = offer("box", tier="owned", prices=tuple(own), running_usd_per_hour=0.15, used_ratio=0.4)
    for asked, usd_per_hour in ((job(), 0.40), (job(requests_per_day=1), 0.25)):
        found = offer_terms(selection(box).priced, billing=billing(), job=asked).usd_per_hour
        assert found.tolist() == pytest.approx([usd_per_hour])


def test_a_device_starts_when_the_slowest_of_its_offers_does() -> None:
    # acme takes 30 s, and b is waited for 50 s more; the third device has no offer.
    found = latest_starts_s(offer_terms(OFFERS.priced, billing=billing(start_up_s=30.0), job=job()), FLEET)
    assert found.tolist() == [80.0, 30.0, 0.0]
