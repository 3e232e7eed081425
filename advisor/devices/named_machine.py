"""Finds the machine that `--on` names or that a quote rents: an offer's machine, or a single device."""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.devices.local_device import local_devices
from advisor.devices.named_device import named_device
from advisor.errors import UsageError
from advisor.predict.capability import fleet_of
from advisor.records.answer import Quote
from advisor.records.device import Device
from advisor.records.machine import Machine
from advisor.records.price import Catalog, Offer
from advisor.records.rejection import Rejection


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMachine:
    """A device with its display name, and the ids of the offers that rent it: empty for a single device."""

    name: str
    device: Device
    device_count: int
    offer_ids: frozenset[str] = frozenset()


def named_machine(name: str, catalog: Catalog) -> NamedMachine:
    """Return the machine of that name in any case; raise `UsageError` for none or for more than one provider."""
    wanted = name.casefold()
    offers = [offer for offer in catalog.offers if wanted in _names_of(offer)]
    if offers:
        return offered_machine(offers, catalog)
    unusable = next((offer for offer in catalog.rejected if wanted in _names_of(offer)), None)
    if unusable:
        raise UsageError(f"--on {name}: {unusable.reason}", hint="name another offer, or a device")
    try:
        device = named_device(name, catalog)[1]
    except UsageError as error:
        hint = error.hint if "," not in name else f"write {' '.join(f'--on {one.strip()}' for one in name.split(','))}"
        raise UsageError(f"--on {name}: no offer has this name, and {error.message}", hint=hint) from error
    return NamedMachine(name=name, device=device, device_count=1)


def offered_machine(offers: Sequence[Offer], catalog: Catalog) -> NamedMachine:
    """Return the machine of these offers, which must be one instance type, in any number of regions."""
    types = dict.fromkeys(f"{offer.provider} {offer.instance}" for offer in offers)
    if len(types) > 1:
        raise UsageError(f"--on {offers[0].instance}: {len(types)} providers have it", hint=f"use {' or '.join(types)}")
    fleet = fleet_of(offers, gpus=catalog.gpus, cpus=catalog.cpus)
    if not fleet.devices:
        raise UsageError(f"--on {offers[0].instance}: {fleet.problems[0]}", hint="name another offer, or a device")
    return NamedMachine(
        name=next(iter(types)),
        device=fleet.devices[0],
        device_count=max(1, offers[0].gpu_count),
        offer_ids=frozenset(offer.id for offer in offers),
    )


def quoted_machine(quote: Quote, catalog: Catalog) -> NamedMachine:
    """Return the machine that the quote rents."""
    (offer,) = (offer for offer in catalog.offers if offer.id == quote.id)
    return offered_machine([offer], catalog)


def machine_at_hand(quote: Quote, machine: Machine, catalog: Catalog) -> NamedMachine:
    """Return the device of this machine that was quoted."""

    found = (local.device for local in local_devices(machine, catalog))
    device = next(device for device in found if device is not None and device.id == quote.device.id)
    return NamedMachine(name=quote.instance, device=device, device_count=1)


def _names_of(offer: Offer | Rejection) -> tuple[str, ...]:
    names = (offer.id, offer.instance, f"{offer.provider} {offer.instance}")
    return tuple(name.casefold() for name in names)
