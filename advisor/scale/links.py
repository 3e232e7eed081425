"""Finds the links between the GPUs of a machine, and between machines."""

import math
from collections.abc import Sequence

import numpy as np

from advisor.records.device import Device
from advisor.records.scale import Fabric, Link, Plan

_NVLINK_STEP_S = 3.4e-6
_PCIE_STEP_S = 5.7e-6
_NETWORK_STEP_S = 14e-6
"""Latency of one ring step over each kind of link (NCCL 2.21, src/graph/tuning.cc, `hwLat`, protocol Simple)."""


def inside_link(devices: Sequence[Device]) -> Link:
    """Return the link between the GPUs of each device's machine; arrays are (devices, 1).

    It is NVLink if that connects all GPUs of the machine, Infinity Fabric if each pair has its own link, else PCIe
    through the host, at the rate of a copy to the host. Each GPU has its own PCIe lanes.
    """
    links = [_inside_link(device) for device in devices]
    latencies_s, rates, peer_rates = np.array(links, dtype=np.float64).T[:, :, np.newaxis]
    return Link(latency_s=latencies_s, bytes_per_s=rates, peer_bytes_per_s=peer_rates)


def _inside_link(device: Device) -> tuple[float, float, float]:
    """Return the seconds of a step, the total bytes/s, and the bytes/s to each other GPU.

    RCCL treats Infinity Fabric like NVLink.
    """
    if device.nvlink_bytes_per_s is not None:
        return _NVLINK_STEP_S, device.nvlink_bytes_per_s, math.inf
    if device.peer_link_bytes_per_s is not None:
        return _NVLINK_STEP_S, math.inf, device.peer_link_bytes_per_s
    return _PCIE_STEP_S, device.host_to_device_bytes_per_s or math.nan, math.inf


def network_link(devices: Sequence[Device]) -> Link:
    """Return the network link of each device's machine."""
    rates = [device.network_bytes_per_s or np.nan for device in devices]
    return Link(latency_s=_NETWORK_STEP_S, bytes_per_s=np.array(rates)[:, np.newaxis])


def fabric_of(devices: Sequence[Device], plan: Plan) -> Fabric:
    """Return the links between the GPUs that the plan uses, for each device."""
    return Fabric(
        gpu_count=plan.gpu_count // plan.machines,
        inside=inside_link(devices),
        machines=plan.machines,
        between=network_link(devices) if plan.machines > 1 else None,
    )


def inner_fabric(fabric: Fabric, *, ways: int) -> Fabric:
    """Return the fabric of the GPUs in one machine that split a model `ways` ways."""
    return Fabric(gpu_count=ways, inside=fabric.inside)


def outer_fabric(fabric: Fabric, *, ways: int) -> Fabric:
    """Return the fabric that links one GPU to the same rank in the other groups of `ways` GPUs.

    The `ways` fabrics share the network of a machine.
    """
    between = fabric.between
    if between is not None:
        between = Link(latency_s=between.latency_s, bytes_per_s=between.bytes_per_s / ways)
    return Fabric(gpu_count=fabric.gpu_count // ways, inside=fabric.inside, machines=fabric.machines, between=between)
