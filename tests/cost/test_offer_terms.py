from advisor.cost.offer_terms import latest_starts_s, offer_terms
from tests.cost.toys import billing, device, fleet, job, offer, selection

SLOW, QUICK, HERE = device("slow"), device("quick"), device("here")
OFFERS = selection(offer("a"), offer("b", wait_s=50.0), offer("c"), offer("d"))
FLEET = fleet(0, 0, 1, -1, devices=(SLOW, QUICK, HERE))


def test_a_device_starts_when_the_slowest_of_its_offers_does() -> None:
    # acme takes 30 s, and b is waited for 50 s more; the third device has no offer.
    found = latest_starts_s(offer_terms(OFFERS.priced, billing=billing(start_up_s=30.0), job=job()), FLEET)
    assert found.tolist() == [80.0, 30.0, 0.0]
