"""The name of a device in, the device itself out: a GPU, all of a CPU, or some of its cores."""

from collections.abc import Sequence
from statistics import median

from advisor.catalog.find import find_device
from advisor.errors import UsageError
from advisor.predict.capability import gpu_device
from advisor.predict.whole_cpu import whole_cpu_device
from advisor.records.device import Cpu, Device, Gpu
from advisor.records.price import Catalog, Offer

CORES_MARK = "@"
"""`amd-epyc-7763@4`: four physical cores of it."""


def named_device(name: str, catalog: Catalog) -> tuple[str, Device]:
    """Its id, with the cores asked for, and what it can do.

    Raises `UsageError` where no profile has that name or the cores make no sense.
    """
    plain_name, mark, digits = name.partition(CORES_MARK)
    profile = find_device(catalog, plain_name)
    if mark and (isinstance(profile, Gpu) or not digits.isdecimal()):
        raise UsageError(f"{name}: only a CPU is divided, into physical cores", hint="write ID@4 for four of them")
    if isinstance(profile, Gpu):
        return profile.id, gpu_device(profile)
    cores = int(digits) if mark else None
    measured = measured_bytes_per_s(profile, cores, offers=catalog.offers) if cores else None
    return f"{profile.id}{mark}{digits}", whole_cpu_device(profile, cores=cores, measured_bytes_per_s=measured)


def measured_bytes_per_s(cpu: Cpu, cores: float, *, offers: Sequence[Offer]) -> float | None:
    """The median over the instances that rent that many cores of it."""
    vcpus = cores * (cpu.threads_per_core or 1)
    rates = {
        offer.instance: offer.measured_read_bytes_per_s
        for offer in offers
        if offer.cpu == cpu.id and offer.gpu is None and offer.vcpus == vcpus and offer.measured_read_bytes_per_s
    }
    return median(rates.values()) if rates else None
