"""Finds a device by name: a GPU, a whole CPU, or some cores of a CPU."""

import re

from advisor.catalog.find import find_device
from advisor.errors import UsageError
from advisor.predict.capability import gpu_device, whole_cpu_device
from advisor.records.device import Device, Gpu
from advisor.records.price import Catalog

_CORES = re.compile(r"0*[1-9][0-9]{0,5}")


def named_device(name: str, catalog: Catalog) -> tuple[str, Device]:
    """Return the device and its id, with the number of cores that the name asks for.

    Raises `UsageError` if no profile has that name or the number of cores is not valid.
    """
    plain_name, digits = split_cores(name)
    profile = find_device(catalog, plain_name)
    if digits is not None and (isinstance(profile, Gpu) or not _CORES.fullmatch(digits)):
        raise UsageError(f"{name}: @N must be a number of physical cores of a CPU", hint="write ID@4 for four cores")
    if isinstance(profile, Gpu):
        return profile.id, gpu_device(profile)
    if digits is None:
        return profile.id, whole_cpu_device(profile, cores=None)
    cores = int(digits)
    return f"{profile.id}@{cores}", whole_cpu_device(profile, cores=cores)


def split_cores(name: str) -> tuple[str, str | None]:
    """Split a name such as `amd-epyc-7763@4` into the name and the number of cores, None if it gives none.

    A clock rate after the @, as in "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz", is part of the name.
    """
    plain, mark, rest = name.rpartition("@")
    return (plain, rest.strip()) if mark and not rest.lower().endswith("ghz") else (name, None)
