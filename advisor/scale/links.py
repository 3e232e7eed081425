"""Devices in, what links the GPUs of their machines out."""

from collections.abc import Sequence

import numpy as np

from advisor.records.device import Device
from advisor.records.scale import Fabric, Link, Plan

_NVLINK_STEP_S = 3.4e-6
_PCIE_STEP_S = 5.7e-6
_NETWORK_STEP_S = 14e-6
"""One step of a ring (NCCL 2.21, src/graph/tuning.cc, `hwLat`, protocol Simple)."""


def inside_link(devices: Sequence[Device]) -> Link:
    """NVLink where it reaches all GPUs of the machine, else PCIe by way of the host; arrays are (devices, 1).

    What passes through the host is no faster than a copy to it, and each GPU has its own lanes.
    """
    rates = [device.nvlink_bytes_per_s or device.host_to_device_bytes_per_s or np.nan for device in devices]
    steps_s = [_PCIE_STEP_S if device.nvlink_bytes_per_s is None else _NVLINK_STEP_S for device in devices]
    return Link(latency_s=np.array(steps_s)[:, np.newaxis], bytes_per_s=np.array(rates)[:, np.newaxis])


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
