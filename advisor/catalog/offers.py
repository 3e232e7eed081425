"""Price rows and what is known of their machines in, offers and rejections out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from advisor.catalog.devices import MeasuredInstance
from advisor.catalog.prices import Machine, PriceRow
from advisor.catalog.strict_yaml import did_you_mean
from advisor.records.device import Cpu, Gpu
from advisor.records.price import Offer, Rejection, Tier

_NOT_MEASURED = MeasuredInstance()


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What rows are joined with. Devices are found by id or by any alias."""

    gpu_ids: Mapping[str, str]
    cpu_ids: Mapping[str, str]
    measured: Mapping[tuple[str, str], MeasuredInstance]


def names_of(devices: Mapping[str, Gpu] | Mapping[str, Cpu]) -> dict[str, str]:
    """Every id, name and alias -> the id; an id wins over another device's alias."""
    aliases = {name: device.id for device in devices.values() for name in (device.name, *device.aliases)}
    return aliases | {identifier: identifier for identifier in devices}


def build_offers(rows: Iterable[PriceRow], *, known: Known) -> tuple[list[Offer], list[Rejection]]:
    """Join the rows, the first of each (provider, type, region) wins; what a row leaves out, a later one fills in.

    Raises `ProfileError` for a device that no profile describes, a new type without a machine, a new provider without
    a tier.
    """
    winners: dict[tuple[str, str, str], PriceRow] = {}
    machines: dict[tuple[str, str], Machine] = {}
    tiers: dict[tuple[str, str], Tier] = {}
    provider_tiers: dict[str, Tier] = {}
    geos: dict[tuple[str, str], str] = {}
    for row in rows:
        winners.setdefault((row.provider, row.instance, row.region), row)
        if row.machine is not None:
            machines.setdefault((row.provider, row.instance), row.machine)
        if row.tier is not None:
            tiers.setdefault((row.provider, row.instance), row.tier)
            provider_tiers.setdefault(row.provider, row.tier)
        if row.geo is not None:
            geos.setdefault((row.provider, row.region), row.geo)

    offers: list[Offer] = []
    rejected: list[Rejection] = []
    for _, row in sorted(winners.items()):
        key = (row.provider, row.instance)
        machine = machines.get(key)
        if machine is None:
            siblings = [instance for provider, instance in machines if provider == row.provider]
            message = f"{row.instance!r} is a new type, and its machine is not described"
            hint = did_you_mean(row.instance, known=siblings) or "add `machine: {vcpus: 8, memory_gib: 32, gpu: l4}`"
            raise row.document.error(row.path[:2], message, hint=hint)
        tier = tiers.get(key) or provider_tiers.get(row.provider)
        if tier is None:
            message = f"{row.provider!r} is a new provider, and its tier is not given"
            raise row.document.error(("provider",), message, hint="add `tier: neocloud`, hyperscaler or marketplace")
        resolved = replace(row, tier=tier, machine=machine, geo=row.geo or geos.get((row.provider, row.region)))
        offer = _offer(resolved, machine=machine, tier=tier, known=known)
        if isinstance(offer, Offer):
            offers.append(offer)
        else:
            rejected.append(offer)
    return offers, rejected


def _offer(row: PriceRow, *, machine: Machine, tier: Tier, known: Known) -> Offer | Rejection:
    measured = known.measured.get((row.provider, row.instance), _NOT_MEASURED)
    if machine.accelerator is not None:
        return _rejection(row, code="no-device-profile", reason=f"no profile describes {machine.accelerator}")
    if machine.gpu_share is not None:
        return _rejection(row, code="fractional-gpu", reason=f"rents {_share_text(machine)}, not a whole GPU")
    gpu = _gpu_id(row, machine, known=known)
    cpu = _cpu_id(row, machine, measured, known=known)
    vcpus = machine.usable_vcpus or machine.vcpus or measured.vcpus
    if gpu is None:
        if cpu is None:
            reported = f"{measured.cpu!r} has no profile" if measured.cpu else "nobody reports which CPU it has"
            return _rejection(row, code="unknown-cpu", reason=reported)
        missing = [name for name, value in (("vCPUs", vcpus), ("memory", machine.memory_bytes)) if value is None]
        if missing:
            return _rejection(row, code="incomplete-machine", reason=f"{' and '.join(missing)} not known")
    price_factor = machine.gpu_count if row.price_per == "gpu" else 1
    return Offer(
        id=_offer_id(row),
        provider=row.provider,
        tier=tier,
        region=row.region,
        geo=row.geo or "any",
        instance=row.instance,
        vcpus=vcpus,
        threads_per_core=machine.threads_per_core or measured.threads_per_core,
        memory_bytes=machine.memory_bytes,
        cpu=cpu,
        gpu=gpu,
        gpu_count=machine.gpu_count if gpu else 0,
        prices=tuple(replace(price, usd_per_hour=price.usd_per_hour * price_factor) for price in row.prices),
        measured_read_bytes_per_s=measured.read_bytes_per_s,
        host_to_device_bytes_per_s=measured.host_to_device_bytes_per_s,
        interruption=row.interruption,
        billed_separately=row.billed_separately,
    )


def _gpu_id(row: PriceRow, machine: Machine, *, known: Known) -> str | None:
    if machine.gpu is None:
        return None
    identifier = known.gpu_ids.get(machine.gpu)
    if identifier is None:
        raise row.document.error(
            (*row.path[:2], "machine", "gpu"),
            f"no profile describes the GPU {machine.gpu!r}",
            hint=did_you_mean(machine.gpu, known=known.gpu_ids),
        )
    return identifier


def _cpu_id(row: PriceRow, machine: Machine, measured: MeasuredInstance, *, known: Known) -> str | None:
    """The CPU that the file names, which must have a profile, else the one reported, where it has one."""
    if machine.cpu is None:
        return known.cpu_ids.get(measured.cpu or "")
    identifier = known.cpu_ids.get(machine.cpu)
    if identifier is None:
        raise row.document.error(
            (*row.path[:2], "machine", "cpu"),
            f"no profile describes the CPU {machine.cpu!r}",
            hint=did_you_mean(machine.cpu, known=known.cpu_ids),
        )
    return identifier


def _share_text(machine: Machine) -> str:
    share = machine.gpu_share if machine.gpu_share != "fractional" else "a part"
    return f"{share} of one {machine.gpu or 'GPU'}"


def _offer_id(row: PriceRow) -> str:
    return f"{row.provider}/{row.region}/{row.instance}"


def _rejection(row: PriceRow, *, code: str, reason: str) -> Rejection:
    return Rejection(
        id=_offer_id(row),
        provider=row.provider,
        region=row.region,
        instance=row.instance,
        code=code,
        reason=reason,
    )
