"""Describes the CPU and the GPUs of this machine as devices to predict for."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from statistics import median, stdev

from advisor.catalog.find import find_device, generation_of, relatives_of, vendor_of
from advisor.errors import UsageError
from advisor.predict.capability import cpu_device, gpu_device
from advisor.records.device import Cpu, Device, Gpu
from advisor.records.machine import LocalDevice, LocalGpu, Machine
from advisor.records.price import Catalog
from advisor.units import format_bytes

_NO_NAME = "a CPU without a name"


def local_devices(machine: Machine, catalog: Catalog) -> tuple[LocalDevice, ...]:
    """Return the CPU, then every GPU, each with the cores, memory and power limit that it has on this machine.

    A CPU without a profile is predicted from similar CPUs; a GPU without a profile is not predicted.
    """
    return (_local_cpu(machine, catalog), *(_local_gpu(gpu, machine, catalog) for gpu in machine.gpus))


def _local_cpu(machine: Machine, catalog: Catalog) -> LocalDevice:
    profile = _profile(catalog, machine.cpu_name or "")
    if isinstance(profile, Cpu):
        device = _on_machine(profile, machine)
        note = "" if device else f"the profile of {profile.id} gives no clock rate"
    else:
        profile = None
        device, note = _from_relatives(machine, catalog)
    if machine.memory_bytes is None:
        device, note = None, "its memory size could not be read"
    return LocalDevice(
        id="cpu",
        name=profile.name if profile else machine.cpu_name or _NO_NAME,
        thread_count=machine.thread_count,
        device=device,
        profile=profile,
        note=note,
        affinity_count=machine.affinity_count,
    )


def _local_gpu(gpu: LocalGpu, machine: Machine, catalog: Catalog) -> LocalDevice:
    profile = _profile(catalog, gpu.name)
    if not isinstance(profile, Gpu):
        note = "it has no profile: put one into devices/gpu of a folder, and pass that folder with --profiles"
        return LocalDevice(
            id=gpu.id, name=gpu.name, thread_count=machine.thread_count, device=None, profile=None, note=note
        )
    host = _profile(catalog, machine.cpu_name or "")
    here = replace(
        profile,
        memory_bytes=gpu.memory_bytes or profile.memory_bytes,
        tdp_w=gpu.power_limit_w or profile.tdp_w,
    )
    return LocalDevice(
        id=gpu.id,
        name=profile.name,
        thread_count=machine.thread_count,
        device=gpu_device(
            here,
            host_to_device_bytes_per_s=catalog.copies_at_hand.get(profile.id),
            vcpu_count=machine.thread_count,
            host=host if isinstance(host, Cpu) else None,
        ),
        profile=profile,
        affinity_count=machine.affinity_count,
        uuid=gpu.uuid,
    )


def _from_relatives(machine: Machine, catalog: Catalog) -> tuple[Device | None, str]:
    """Return a device estimated from similar CPUs, and a note that says so; None if there are too few of them.

    A virtual machine often hides the CPU's name but shows its last-level cache, whose size few CPUs share.
    """
    relatives, words = relatives_of(catalog.cpus, signature=machine.cpu_signature, isa=machine.isa)
    if machine.base_hz is not None and machine.boost_hz is not None:  # this machine reports its own clock rates
        base_hz, boost_hz = machine.base_hz, machine.boost_hz
        relatives = tuple(replace(cpu, base_hz=base_hz, boost_hz=boost_hz, sustained_hz=None) for cpu in relatives)
    found = [(cpu, _on_machine(cpu, machine)) for cpu in relatives]
    alike = [device for _, device in found if device is not None]
    if len(alike) < 2:  # a spread needs two
        return None, "it has no profile, and too few other CPUs have its instruction sets"
    same_cache = [device for cpu, device in found if device is not None and _has_cache(cpu, machine.l3_bytes)]
    if not same_cache:
        note = f"it has no profile: the median of the {len(alike)} CPUs {words} is used, with a wider interval"
        return _stand_in(alike, machine), note
    names = ", ".join(device.name for device in same_cache)
    note = (
        f"it has no profile: {names} is used, of the {len(alike)} CPUs {words} the one with its last-level cache of "
        f"{format_bytes(machine.l3_bytes or 0.0)}, with a wider interval"
    )
    generations = {device.generation for device in same_cache}
    stand_in = replace(_stand_in(same_cache, machine), log_spread=_log_spread(alike))
    return replace(stand_in, generation=generations.pop()) if len(generations) == 1 else stand_in, note


def _has_cache(cpu: Cpu, l3_bytes: float | None) -> bool:
    return bool(cpu.l3_bytes and l3_bytes) and math.isclose(cpu.l3_bytes or 0.0, l3_bytes or 0.0, rel_tol=0.01)


def _profile(catalog: Catalog, name: str) -> Gpu | Cpu | None:
    try:
        return find_device(catalog, name)
    except UsageError:
        return None


def _on_machine(cpu: Cpu, machine: Machine) -> Device | None:
    """Return the CPU as an instance with the cores that this process may use, rounded to a hardware thread.

    Return None if its profile gives no clock rate, or the machine no memory size.
    """
    if machine.memory_bytes is None:
        return None
    threads_per_core = cpu.threads_per_core or 1
    thread_count = max(1, round(machine.core_count * threads_per_core))
    return cpu_device(
        cpu,
        vcpus=thread_count,
        memory_bytes=machine.memory_bytes,
        threads_per_core=threads_per_core,
    )


def _stand_in(alike: Sequence[Device], machine: Machine) -> Device:
    """Return the median of each figure of similar devices, with their spread as its uncertainty."""
    name = machine.cpu_name or _NO_NAME
    units = set.intersection(*(set(device.peak_flops_per_s) for device in alike))
    peaks = {unit: [device.peak_flops_per_s[unit] for device in alike] for unit in units}
    return replace(
        alike[0],
        id=re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"),
        name=name,
        vendor=vendor_of(machine.cpu_signature) or "unknown",
        generation=generation_of(machine.cpu_signature, isa=machine.isa) or "unknown",
        peak_flops_per_s={unit: median(values) for unit, values in sorted(peaks.items())},
        memory_bytes_per_s=median(device.memory_bytes_per_s for device in alike),
        node_bytes_per_s=median(device.node_bytes_per_s for device in alike),
        cache_bytes=median(device.cache_bytes for device in alike),
        near_cache_bytes=median(device.near_cache_bytes for device in alike),
        cache_bytes_per_s=median(device.cache_bytes_per_s or math.nan for device in alike),
        host_time_ratio=median(device.host_time_ratio for device in alike),
        sustained_compute_ratio=1.0,
        sustained_memory_ratio=1.0,
        log_spread=_log_spread(alike),
    )


def _log_spread(alike: Sequence[Device]) -> float:
    """Return the larger of the standard deviations of log(fp32 peak) and log(bandwidth)."""
    figures = ([device.peak_flops_per_s["fp32"] for device in alike], [device.memory_bytes_per_s for device in alike])
    return max(stdev(map(math.log, values)) for values in figures) if len(alike) > 1 else 0.0
