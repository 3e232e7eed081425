"""Devices in, what links the GPUs of their machines out."""

import math
from collections.abc import Sequence

import numpy as np

from advisor.records.device import Device
from advisor.records.scale import Fabric, Link, Plan

_NVLINK_STEP_S = 3.4e-6
_PCIE_STEP_S = 5.7e-6
_NETWORK_STEP_S = 14e-6
"""One step of a ring (NCCL 2.21, src/graph/tuning.cc, `hwLat`, protocol Simple)."""


def inside_link(devices: Sequence[Device]) -> Link:
    """NVLink where it reaches all GPUs of the machine, AMD's links where each pair has one, else PCIe by way of the
    host; arrays are (devices, 1).

    What passes through the host is no faster than a copy to it, and each GPU has its own lanes.
    """
    links = [_inside_link(device) for device in devices]
    latencies_s, rates, peer_rates = np.array(links, dtype=np.float64).T[:, :, np.newaxis]
    return Link(latency_s=latencies_s, bytes_per_s=rates, peer_bytes_per_s=peer_rates)


def _inside_link(device: Device) -> tuple[float, float, float]:
    """Seconds of a step, bytes/s in all and to each other GPU. RCCL takes Infinity Fabric for NVLink."""
    if device.nvlink_bytes_per_s is not None:
        return _NVLINK_STEP_S, device.nvlink_bytes_per_s, math.inf
    if device.peer_link_bytes_per_s is not None:
        return _NVLINK_STEP_S, math.inf, device.peer_link_bytes_per_s
    return _PCIE_STEP_S, device.host_to_device_bytes_per_s or math.nan, math.inf


def network_link(devices: Sequence[Device]) -> Link:
    """The network of each machine."""
    rates = [device.network_bytes_per_s or np.nan for device in devices]
    return Link(latency_s=_NETWORK_STEP_S, bytes_per_s=np.array(rates)[:, np.newaxis])


def fabric_of(devices: Sequence[Device], plan: Plan) -> Fabric:
    """What links the GPUs of the plan, of each device's machines."""
    return Fabric(
        gpu_count=plan.data * plan.tensor * plan.pipeline // plan.machines,
        inside=inside_link(devices),
        machines=plan.machines,
        between=network_link(devices) if plan.machines > 1 else None,
    )


def inner_fabric(fabric: Fabric, *, ways: int) -> Fabric:
    """What links the GPUs of one machine that divide a model `ways` ways."""
    return Fabric(gpu_count=ways, inside=fabric.inside)


def outer_fabric(fabric: Fabric, *, ways: int) -> Fabric:
    """What links a GPU with its like of the other groups of `ways`: all pairs share a machine's network."""
    between = fabric.between
    if between is not None:
        between = Link(latency_s=between.latency_s, bytes_per_s=between.bytes_per_s / ways)
    return Fabric(gpu_count=fabric.gpu_count // ways, inside=fabric.inside, machines=fabric.machines, between=between)
