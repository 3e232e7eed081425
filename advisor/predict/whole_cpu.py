"""A CPU by itself in, rather than an instance that rents it, a `Device` out."""

import math

from advisor.errors import UsageError
from advisor.predict.capability import cpu_device
from advisor.records.device import Cpu, Device
from advisor.records.price import Offer


def whole_cpu_device(cpu: Cpu, *, cores: int | None, measured_bytes_per_s: float | None = None) -> Device:
    """All cores of one socket with its whole bandwidth and cache; or `cores` of them, as an instance has them.

    `measured_bytes_per_s` is the bandwidth of so many cores, where it is known.

    Memory is taken as unlimited: it is the machine's, not the socket's. Raises `UsageError` where the profile does not
    say what is needed, or has fewer cores.
    """
    if cpu.cores_per_socket is None and cores is None:
        raise UsageError(f"the profile of {cpu.id} names no cores", hint=f"write {cpu.id}@CORES")
    if cores is not None and cpu.cores_per_socket is not None and not 1 <= cores <= cpu.cores_per_socket:
        raise UsageError(
            f"{cpu.id} has {cpu.cores_per_socket} cores, not {cores}", hint="name physical cores of one socket"
        )
    threads_per_core = cpu.threads_per_core or 1
    rented = Offer(
        id=cpu.id,
        provider="",
        tier="hyperscaler",
        region="",
        geo="",
        instance="",
        vcpus=(cores or cpu.cores_per_socket or 1) * threads_per_core,
        threads_per_core=threads_per_core,
        memory_bytes=math.inf,
        cpu=cpu.id,
        gpu=None,
        gpu_count=0,
        prices=(),
        measured_read_bytes_per_s=measured_bytes_per_s,
    )
    device = cpu_device(cpu, rented)
    if device is None:
        raise UsageError(f"the profile of {cpu.id} names no clock", hint="add base_hz or sustained_hz")
    return device
