"""Makes a `Device` of a CPU by itself, rather than of a rented instance."""

import math

from advisor.errors import UsageError
from advisor.predict.capability import cpu_device
from advisor.records.device import Cpu, Device
from advisor.records.price import Offer


def whole_cpu_device(cpu: Cpu, *, cores: int | None, measured_bytes_per_s: float | None = None) -> Device:
    """Return a device with all cores of one socket, or with `cores` of them, as an instance would have.

    `measured_bytes_per_s` is the bandwidth of these cores, if known. The memory is unlimited, since it belongs to the
    machine, not the socket. Raises `UsageError` if the profile lacks core count or clock, or has fewer cores.
    """
    if cpu.cores_per_socket is None and cores is None:
        raise UsageError(f"the profile of {cpu.id} has no core count", hint=f"write {cpu.id}@CORES")
    if cores is not None and cpu.cores_per_socket is not None and not 1 <= cores <= cpu.cores_per_socket:
        raise UsageError(
            f"{cpu.id} has {cpu.cores_per_socket} cores, not {cores}", hint="give the physical cores of one socket"
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
        raise UsageError(f"the profile of {cpu.id} has no clock", hint="add base_hz or sustained_hz")
    return device
