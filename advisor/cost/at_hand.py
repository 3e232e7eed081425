"""Turns the devices of this machine into offers, priced at the cost of their electricity."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from advisor.cost.selection import Selection
from advisor.records.answer import Quote
from advisor.records.device import Device
from advisor.records.machine import LOCAL, LocalDevice
from advisor.records.prediction import Fleet
from advisor.records.price import Offer, Price, PricedOffer


def selection_at_hand(devices: Sequence[LocalDevice], *, offers: Iterable[Offer]) -> Selection:
    """Return one offer for each device that can be predicted, in the order of `devices`.

    The hourly price is the running cost of the user's own hardware with the same device, without its purchase price;
    it is 0 if no such hardware is in `offers`.
    """
    owned = [offer for offer in offers if offer.tier == "owned"]
    priced = tuple(_priced(local, local.device, owned=owned) for local in devices if local.device)
    return Selection(priced=priced, apart=(), rejected=())


def fleet_at_hand(fleet: Fleet, devices: Sequence[LocalDevice]) -> Fleet:
    """Return a fleet for the offers of `selection_at_hand`: the devices of `fleet`, then those of this machine."""
    found = tuple(local.device for local in devices if local.device)
    index = np.arange(len(found), dtype=np.intp) + len(fleet.devices)
    return Fleet(devices=(*fleet.devices, *found), device_index=index, problems=("",) * len(found))


def join(here: Selection, rented: Selection) -> Selection:
    """Return one selection of both, with the offers of this machine first."""
    return replace(rented, priced=(*here.priced, *rented.priced))


def join_fleets(here: Fleet, rented: Fleet) -> Fleet:
    """Return the fleet of the joined selection; `here` already has the devices of both."""
    return Fleet(
        devices=here.devices,
        device_index=np.concatenate((here.device_index, rented.device_index)),
        problems=(*here.problems, *rented.problems),
    )


def fastest(quotes: Iterable[Quote]) -> Quote | None:
    """Return the quote with the least `time_s`, without a chance of being the cheapest: it is not ranked."""
    first = min(quotes, key=lambda quote: quote.time_s, default=None)
    return (
        None
        if first is None
        else replace(first, chance_cheapest=0.0, chance_among_trusted=0.0, indistinguishable=False)
    )


def _priced(local: LocalDevice, device: Device, *, owned: Sequence[Offer]) -> PricedOffer:
    is_gpu = device.kind == "gpu"
    same = (one for one in owned if (one.gpu == device.id if is_gpu else one.gpu is None and one.cpu == device.id))
    own = next(same, None)
    paid = own.prices[0] if own else None
    price = Price(
        kind="owned",
        usd_per_hour=(own.running_usd_per_hour or 0.0) if own else 0.0,
        date=paid.date if paid else "",
        source=paid.source if paid else "",
        basis="own_hardware",
    )
    offer = Offer(
        id=f"{LOCAL}/{local.id}",
        provider=LOCAL,
        tier="owned",
        region=LOCAL,
        geo="",
        instance=f"this machine's {local.id}",
        vcpus=local.thread_count,
        threads_per_core=None,
        memory_bytes=device.memory_bytes,
        cpu=None if is_gpu else device.id,
        gpu=device.id if is_gpu else None,
        gpu_count=1 if is_gpu else 0,
        prices=(price,),
        running_usd_per_hour=own.running_usd_per_hour if own else None,
        quota_instances=1,
        electricity_usd_per_kwh=own.electricity_usd_per_kwh if own else None,
        power_w=own.power_w if own else None,
        gco2_per_kwh=own.gco2_per_kwh if own else None,
    )
    return PricedOffer(offer=offer, price=price)
