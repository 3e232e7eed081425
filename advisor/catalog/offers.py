"""Joins price rows with their machines and devices into offers, or rejects them."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from advisor.catalog.device_files import MeasuredInstance
from advisor.catalog.price_files import Machine, PriceRow
from advisor.catalog.strict_yaml import Document
from advisor.errors import ProfileError, did_you_mean
from advisor.records.device import Cpu, Gpu
from advisor.records.price import Offer, Tier
from advisor.records.rejection import Rejection, RejectionCode

_NOT_MEASURED = MeasuredInstance()


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The data to join rows with: devices by id, name or alias, and measurements by (provider, type).

    `rented_gpu` returns the GPU that a provider's own name means, None if it is ambiguous or has no profile. `regions`
    are those of big providers, in which an own price file may have more types than are on offer here.
    """

    gpu_ids: Mapping[str, str]
    cpu_ids: Mapping[str, str]
    measured: Mapping[tuple[str, str], MeasuredInstance]
    rented_gpu: Callable[[str], Gpu | None]
    regions: Mapping[str, Collection[str]] = field(default_factory=dict)


def names_of(devices: Mapping[str, Gpu] | Mapping[str, Cpu]) -> dict[str, str]:
    """Return the id for every id, name and alias; an id wins over another device's alias."""
    aliases = {name: device.id for device in devices.values() for name in (device.name, *device.aliases)}
    return aliases | {identifier: identifier for identifier in devices}


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Offers of price rows; those that cannot be predicted are in `unpredicted`, and their reasons in `rejected`."""

    offers: list[Offer] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)
    unpredicted: list[Offer] = field(default_factory=list)


def build_offers(rows: Iterable[PriceRow], *, known: Known) -> Joined:
    """Join the rows, in order of their ids; the first row of each (provider, type, region) wins.

    If a row leaves out its machine, tier or place, a later row of the same type, provider or region supplies it. Rows
    of a provider after its complete list are ignored.
    Raise `ProfileError` for a device without a profile, a new type without a machine, a new provider without a tier, or
    a region that its provider does not have.
    """
    winners: dict[str, PriceRow] = {}
    machines: dict[tuple[str, str], Machine] = {}
    type_tiers: dict[tuple[str, str], Tier] = {}
    provider_tiers: dict[str, Tier] = {}
    geos: dict[tuple[str, str], str] = {}
    complete_lists: dict[str, Document] = {}
    for row in rows:
        if complete_lists.get(row.provider, row.node.document) is row.node.document:
            winners.setdefault(f"{row.provider}/{row.region}/{row.instance}", row)
        if row.is_of_complete_list:
            complete_lists.setdefault(row.provider, row.node.document)
        if row.machine is not None:
            machines.setdefault((row.provider, row.instance), row.machine)
        if row.tier is not None:
            type_tiers.setdefault((row.provider, row.instance), row.tier)
            provider_tiers.setdefault(row.provider, row.tier)
        if row.geo is not None:
            geos.setdefault((row.provider, row.region), row.geo)

    found = Joined()
    for identifier, row in sorted(winners.items()):
        machine = machines.get((row.provider, row.instance))
        if machine is None:
            raise _new_type_error(row, known_types=[name for provider, name in machines if provider == row.provider])
        tier = type_tiers.get((row.provider, row.instance)) or provider_tiers.get(row.provider)
        if tier is None:
            message = f"{row.provider!r} is a new provider without a tier"
            raise row.node.document.root["provider"].error(
                message, hint="add `tier: neocloud`, hyperscaler or marketplace"
            )
        geo = geos.get((row.provider, row.region), "any")
        theirs = known.regions.get(row.provider)
        if theirs and row.region not in theirs and (row.provider, row.region) not in geos:
            raise _new_region_error(row, theirs)
        offer, rejection = _join(identifier, row, machine=machine, tier=tier, geo=geo, known=known)
        if rejection is None:
            found.offers.append(offer)
        else:
            found.unpredicted.append(replace(offer, cpu=None, gpu=None))
            found.rejected.append(rejection)
    return found


def _new_region_error(row: PriceRow, known: Collection[str]) -> ProfileError:
    close = did_you_mean(row.region, known, most=2)
    new = f"If it is new, add `regions: {{{row.region}: EU}}` at the top of the file, with its part of the world"
    return row.node.error(f"{row.provider} has no region {row.region!r}", hint=f"{close} {new}")


def _join(
    identifier: str, row: PriceRow, *, machine: Machine, tier: Tier, geo: str, known: Known
) -> tuple[Offer, Rejection | None]:
    """Return the offer of a row, and why it cannot be predicted; None if it can."""
    measured = known.measured.get((row.provider, row.instance), _NOT_MEASURED)
    gpu, gpu_count = measured.gpu, measured.gpu_count
    if machine.gpu is not None:
        gpu, gpu_count = _device_id(row, key="gpu", name=machine.gpu, ids=known.gpu_ids), machine.gpu_count
    elif machine.accelerator is not None and (rented := known.rented_gpu(machine.accelerator)):
        gpu, gpu_count = rented.id, machine.gpu_count
    cpu = known.cpu_ids.get(measured.cpu or "")
    if machine.cpu is not None:
        cpu = _device_id(row, key="cpu", name=machine.cpu, ids=known.cpu_ids)
    vcpus = machine.usable_vcpus or machine.vcpus or measured.vcpus

    problem = _problem(machine, gpu=gpu, cpu=cpu, reported_cpu=measured.cpu, vcpus=vcpus)
    rejection = None
    if problem is not None:
        code, reason = problem
        rejection = Rejection(
            id=identifier, provider=row.provider, region=row.region, instance=row.instance, code=code, reason=reason
        )
    prices = row.prices
    if row.price_per == "gpu":
        count = machine.gpu_count if rejection else gpu_count
        prices = tuple(replace(price, usd_per_hour=price.usd_per_hour * count) for price in prices)
    offer = Offer(
        id=identifier,
        provider=row.provider,
        tier=tier,
        region=row.region,
        geo=geo,
        instance=row.instance,
        vcpus=vcpus,
        threads_per_core=machine.threads_per_core or measured.threads_per_core,
        memory_bytes=machine.memory_bytes,
        cpu=cpu,
        gpu=gpu,
        gpu_count=gpu_count,
        prices=prices,
        measured_read_bytes_per_s=measured.read_bytes_per_s,
        host_to_device_bytes_per_s=measured.host_to_device_bytes_per_s,
        network_bytes_per_s=machine.network_bytes_per_s,
        interruption=row.interruption,
        billed_separately=row.billed_separately,
        purchase_usd=row.purchase_usd,
        running_usd_per_hour=row.running_usd_per_hour,
        used_ratio=row.used_ratio,
        electricity_usd_per_kwh=row.electricity_usd_per_kwh,
        power_w=row.power_w,
        gco2_per_kwh=row.gco2_per_kwh,
    )
    return offer, rejection


def _problem(
    machine: Machine, *, gpu: str | None, cpu: str | None, reported_cpu: str | None, vcpus: int | None
) -> tuple[RejectionCode, str] | None:
    """Return code and reason if the machine cannot be predicted; one with an accelerator never counts as a CPU."""
    if machine.accelerator is not None and gpu is None:
        reason = f": {machine.no_profile}" if machine.no_profile else ""
        return "no-device-profile", f"{machine.accelerator!r} matches no single device profile{reason}"
    if machine.gpu_share is not None:
        share = "a part" if machine.gpu_share == "fractional" else machine.gpu_share
        return "fractional-gpu", f"offers {share} of one {machine.gpu or 'GPU'}, not a whole one"
    if gpu is not None:
        return None
    if cpu is None:
        return "unknown-cpu", f"{reported_cpu!r} has no profile" if reported_cpu else "its CPU is unknown"
    missing = [name for name, value in (("vCPUs", vcpus), ("memory", machine.memory_bytes)) if value is None]
    return ("incomplete-machine", f"{' and '.join(missing)} unknown") if missing else None


def _device_id(row: PriceRow, *, key: str, name: str, ids: Mapping[str, str]) -> str:
    """Return the id of the device that the file names; raise `ProfileError` if it has no profile."""
    if name not in ids:
        message = f"no profile describes the {key.upper()} {name!r}"
        path = (*row.node.path[:2], "machine", key)
        raise row.node.document.error(path, message, hint=did_you_mean(name, ids))
    return ids[name]


def _new_type_error(row: PriceRow, *, known_types: Sequence[str]) -> ProfileError:
    hint = did_you_mean(row.instance, known_types) if known_types else ""
    return row.node.document.error(
        row.node.path[:2],
        f"{row.provider} has no type {row.instance!r} so far, and this file does not describe its machine",
        hint=f"{hint} Or add `machine: {{vcpus: 8, memory_gib: 32, gpu: l4, gpu_count: 1}}`".strip(),
    )
