"""The name of a device in, the device itself out: a GPU, all of a CPU, or some of its cores."""

import re
from collections.abc import Sequence
from statistics import median

from advisor.catalog.find import find_device
from advisor.errors import UsageError
from advisor.predict.capability import gpu_device
from advisor.predict.whole_cpu import whole_cpu_device
from advisor.records.device import Cpu, Device, Gpu
from advisor.records.price import Catalog, Offer

_CORES = re.compile(r"0*[1-9][0-9]{0,5}")


def named_device(name: str, catalog: Catalog) -> tuple[str, Device]:
    """Its id, with the cores asked for, and what it can do.

    Raises `UsageError` where no profile has that name or the cores make no sense.
    """
    plain_name, digits = split_cores(name)
    profile = find_device(catalog, plain_name)
    if digits is not None and (isinstance(profile, Gpu) or not _CORES.fullmatch(digits)):
        raise UsageError(f"{name}: only a CPU is divided, into physical cores", hint="write ID@4 for four of them")
    if isinstance(profile, Gpu):
        return profile.id, gpu_device(profile)
    if digits is None:
        return profile.id, whole_cpu_device(profile, cores=None)
    cores = int(digits)
    measured = measured_bytes_per_s(profile, cores, offers=catalog.offers)
    return f"{profile.id}@{cores}", whole_cpu_device(profile, cores=cores, measured_bytes_per_s=measured)


def split_cores(name: str) -> tuple[str, str | None]:
    """The name and the cores of it that are meant: `amd-epyc-7763@4` is four. The clock after the @ of a name of the
    kernel's, "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz", is part of the name.
    """
    plain, mark, rest = name.rpartition("@")
    return (plain, rest.strip()) if mark and not rest.lower().endswith("ghz") else (name, None)


def measured_bytes_per_s(cpu: Cpu, cores: float, *, offers: Sequence[Offer]) -> float | None:
    """The median over the instances that rent that many cores of it."""
    vcpus = cores * (cpu.threads_per_core or 1)
    rates = {
        offer.instance: offer.measured_read_bytes_per_s
        for offer in offers
        if offer.cpu == cpu.id and offer.gpu is None and offer.vcpus == vcpus and offer.measured_read_bytes_per_s
    }
    return median(rates.values()) if rates else None
