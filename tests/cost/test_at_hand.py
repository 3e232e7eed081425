"""The machine at hand beside what is rented: its price, its place, and what is said of it."""

from typing import Any

from advisor.cost.at_hand import fastest, fleet_at_hand, join, join_fleets, selection_at_hand
from advisor.cost.rank_offers import Ranking
from advisor.records.device import Device
from advisor.records.machine import LocalDevice
from advisor.records.prediction import Predictions
from tests.cost import toys

CPU = toys.device("xeon")
GPU = toys.device("t4", kind="gpu", memory_bytes=16e9)
RENTED = toys.device("rented")


def local(identifier: str, device: Device | None, *, note: str = "") -> LocalDevice:
    return LocalDevice(id=identifier, name=identifier.upper(), thread_count=8, device=device, profile=None, note=note)


def ranked(*devices: LocalDevice, predictions: Predictions, offers: tuple[toys.Offer, ...] = (), **job: Any) -> Ranking:
    fleet = fleet_at_hand(toys.fleet(devices=()), devices)
    return toys.rank(
        selection_at_hand(devices, offers=offers), fleet=fleet, predictions=predictions, job=toys.job(**job)
    )


def test_what_nobody_priced_costs_nothing() -> None:
    (quote,) = ranked(local("cpu", CPU), predictions=toys.predictions(CPU, step_s=[[2.0]])).quotes

    assert (quote.id, quote.provider, quote.instance) == ("local/cpu", "local", "this machine's cpu")
    assert (quote.usd_per_hour, quote.job_usd.mid, quote.vcpus) == (0.0, 0.0, 8)
    assert quote.job_s.mid == 2000.0  # 1,000 samples, one a step


def test_own_hardware_with_the_same_device_gives_the_price_of_electricity() -> None:
    own = toys.offer("box", tier="owned", gpu="t4", gpu_count=1, running_usd_per_hour=0.09, prices=(toys.price(0.5),))
    other = toys.offer("rack", tier="owned", cpu="epyc", running_usd_per_hour=0.7)

    ranking = ranked(
        local("cpu", CPU),
        local("cuda:0", GPU),
        predictions=toys.predictions(CPU, GPU, step_s=[[2.0], [1.0]]),
        offers=(other, own),
    )

    assert {quote.instance: quote.usd_per_hour for quote in ranking.quotes} == {
        "this machine's cpu": 0.0,
        "this machine's cuda:0": 0.09,
    }


def test_a_gpu_machine_of_ones_own_does_not_price_its_cpu_alone() -> None:
    own = toys.offer("box", tier="owned", gpu="t4", gpu_count=1, running_usd_per_hour=0.09)

    (quote,) = ranked(local("cpu", CPU), predictions=toys.predictions(CPU, step_s=[[2.0]]), offers=(own,)).quotes

    assert quote.usd_per_hour == 0.0


def test_a_service_that_needs_several_such_machines_is_left_out_with_their_number() -> None:
    # A step of one request takes 2 s: at 70 % utilization a machine serves 0.35 requests/s, and 1/s needs three.
    devices, predictions = (local("cpu", CPU),), toys.predictions(CPU, step_s=[[2.0]])

    def served(requests_per_day: int) -> Ranking:
        return toys.rank(
            selection_at_hand(devices, offers=()),
            fleet=fleet_at_hand(toys.fleet(devices=()), devices),
            predictions=predictions,
            job=toys.job(requests_per_day=requests_per_day),
        )

    (alone,) = served(86_400 // 3).quotes
    assert alone.instance_count == 1
    found = served(86_400)
    assert found.quotes == ()
    ((instance, code, reason),) = toys.said(found.rejected)
    assert (instance, code) == ("this machine's cpu", "only-machine")
    assert "3 such machines" in reason


def test_of_several_devices_the_fastest_is_shown_and_has_no_chance_in_a_ranking() -> None:
    predictions = toys.predictions(CPU, GPU, step_s=[[2.0], [1.0]])

    first = fastest(ranked(local("cpu", CPU), local("cuda:0", GPU), predictions=predictions).quotes)

    assert first is not None
    assert (first.id, first.chance_cheapest, first.indistinguishable) == ("local/cuda:0", 0.0, False)
    assert fastest(()) is None
    # A service takes a month on each, whichever stands first.
    served = ranked(local("cpu", CPU), local("cuda:0", GPU), predictions=predictions, requests_per_day=1).quotes
    assert {one.id for order in (served, served[::-1]) if (one := fastest(order))} == {"local/cuda:0"}


def test_in_one_ranking_what_costs_nothing_comes_first_and_is_surely_the_cheapest() -> None:
    devices = (local("cpu", CPU),)
    rented = toys.selection(toys.offer("m1", cpu="rented"))
    rented_fleet = toys.fleet(0, devices=(RENTED,))
    own_fleet = fleet_at_hand(rented_fleet, devices)

    ranking = toys.rank(
        join(selection_at_hand(devices, offers=()), rented),
        fleet=join_fleets(own_fleet, rented_fleet),
        predictions=toys.predictions(RENTED, CPU, step_s=[[1.0], [50.0]]),
        job=toys.job(),
    )

    assert [(quote.instance, quote.device.id) for quote in ranking.quotes] == [
        ("this machine's cpu", "xeon"),
        ("m1", "rented"),
    ]
    assert [quote.chance_cheapest for quote in ranking.quotes] == [1.0, 0.0]
    assert not any(quote.indistinguishable for quote in ranking.quotes)


def test_two_devices_for_nothing_share_the_chance_the_faster_first() -> None:
    predictions = toys.predictions(CPU, GPU, step_s=[[2.0], [1.0]])

    quotes = ranked(local("cpu", CPU), local("cuda:0", GPU), predictions=predictions).quotes

    assert [quote.id for quote in quotes] == ["local/cuda:0", "local/cpu"]
    assert [quote.chance_cheapest for quote in quotes] == [0.5, 0.5]
    assert [quote.indistinguishable for quote in quotes] == [False, True]
