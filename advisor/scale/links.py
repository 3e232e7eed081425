"""Finds the links between the GPUs of a machine, and between machines."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace

import numpy as np

from advisor.records.device import Device
from advisor.records.prediction import FloatArray
from advisor.records.scale import Fabric, Link, Plan, Rate

_NVLINK_STEP_S = (0.6e-6, 1.9e-6, 3.4e-6)
_PCIE_STEP_S = (1.0e-6, math.inf, 5.7e-6)
_NETWORK_STEP_S = (2.7e-6, 4.0e-6, 14e-6)
"""Latency of one ring step over each kind of link, in each of `PROTOCOLS` (NCCL 2.27, src/graph/tuning.cc,
`hwLatencies`). LL128 needs NVLink, whose writes arrive in order."""
OWN_PART_RATIO = 0.94
"""`Link.own_part_ratio` over NVLink (`scripts/fit_collectives.py`). A copy in memory hides behind a slower link."""
_PAIR = 2
_HOST_LINKS = 2
"""The links through the host that can be busy at the same time, whatever the number of GPUs. On the one machine with
PCIe that was measured, 2, 4 and 8 L40S reach 0.8, 0.2 and 0.06 of a link each (aiconfigurator); eight RTX 5090 behind
PCIe switches 0.6 and 0.45 with 4 and 8 (NVIDIA/nccl, issue 1639): this lies between them."""


def inside_link(devices: Sequence[Device], *, ways: int) -> Link:
    """Return the link between `ways` GPUs of each device's machine; arrays are (devices, 1).

    It is NVLink if that connects all of them, Infinity Fabric if each pair has its own link, else PCIe through the
    host, at the rate of a copy to the host. Each GPU has its own PCIe lanes, but the host is shared; with bridges,
    half of the transfers around a ring avoid it.
    """
    links = [_inside_link(device, ways=ways) for device in devices]

    def column(values: Iterable[Rate]) -> FloatArray:
        return np.array([*values], dtype=np.float64)[:, np.newaxis]

    first, second, third = (column(link.step_s[place] for link in links) for place in range(3))
    names = [field.name for field in fields(Link) if field.name != "step_s"]
    return Link(
        step_s=(first, second, third), **{name: column(getattr(link, name) for link in links) for name in names}
    )


def _inside_link(device: Device, *, ways: int) -> Link:
    """Return the link of one device. RCCL treats Infinity Fabric like NVLink."""
    bridge = device.bridge_bytes_per_s if ways == _PAIR else None
    if nvlink := device.nvlink_bytes_per_s or bridge:
        return Link(
            step_s=_NVLINK_STEP_S,
            bytes_per_s=nvlink,
            switch_bytes_per_s=device.switch_bytes_per_s or 0.0,
            own_part_ratio=OWN_PART_RATIO,
        )
    if device.peer_link_bytes_per_s is not None:
        return Link(
            step_s=_NVLINK_STEP_S,
            bytes_per_s=math.inf,
            peer_bytes_per_s=device.peer_link_bytes_per_s,
            own_part_ratio=OWN_PART_RATIO,
        )
    copied = device.host_to_device_bytes_per_s or math.nan
    busy = _HOST_LINKS * (_PAIR if device.bridge_bytes_per_s else 1)
    return Link(step_s=_PCIE_STEP_S, bytes_per_s=copied, shared_bytes_per_s=busy * copied)


def network_link(devices: Sequence[Device]) -> Link:
    """Return the network link of each device's machine."""
    rates = [device.network_bytes_per_s or np.nan for device in devices]
    return Link(step_s=_NETWORK_STEP_S, bytes_per_s=np.array(rates)[:, np.newaxis])


def fabric_of(devices: Sequence[Device], plan: Plan) -> Fabric:
    """Return the links between the GPUs that the plan uses, for each device."""
    return Fabric(
        gpu_count=plan.gpu_count // plan.machines,
        inside=inside_link(devices, ways=plan.gpu_count // plan.machines),
        pair=inside_link(devices, ways=_PAIR),
        machines=plan.machines,
        between=network_link(devices) if plan.machines > 1 else None,
    )


def inner_fabric(fabric: Fabric, *, ways: int) -> Fabric:
    """Return the fabric of `ways` neighbouring GPUs that split a model; all such groups of a machine share the host.

    A group of more GPUs than a machine has takes whole machines.
    """
    if ways > fabric.gpu_count:
        return replace(fabric, machines=ways // fabric.gpu_count)
    link = fabric.pair if ways == _PAIR and fabric.pair else fabric.inside
    return Fabric(gpu_count=ways, inside=_part_of(link, ways / fabric.gpu_count))


def expert_fabric(fabric: Fabric, plan: Plan) -> Fabric:
    """Return the fabric among copies of a model that divide its experts, of GPUs with the same rank in each copy."""
    group = inner_fabric(fabric, ways=plan.expert * plan.tensor * plan.pipeline)
    return outer_fabric(group, ways=plan.tensor * plan.pipeline)


def outer_fabric(fabric: Fabric, *, ways: int) -> Fabric:
    """Return the fabric that links one GPU to the same rank in the other groups of `ways` GPUs.

    The fabrics of a machine's GPUs share its network and its host. A group may take several whole machines.
    """
    between, inside = fabric.between, min(ways, fabric.gpu_count)
    if between is not None:
        between = replace(between, bytes_per_s=between.bytes_per_s / inside)
    return Fabric(
        gpu_count=fabric.gpu_count // inside,
        inside=_part_of(fabric.inside, 1 / inside),
        machines=fabric.machines * inside // ways,
        between=between,
    )


def stage_links(fabric: Fabric, plan: Plan) -> Iterator[tuple[Link, int]]:
    """Yield the links between the stages of a pipeline, each with the number of times that a pass goes over it."""
    machines = max(1, plan.tensor * plan.pipeline // fabric.gpu_count)
    between = 0 if fabric.between is None else min(plan.pipeline, machines) - 1
    if fabric.between is not None and between:
        yield fabric.between, between
    if plan.pipeline - 1 - between:
        yield fabric.inside, plan.pipeline - 1 - between


def _part_of(link: Link, share: float) -> Link:
    return replace(link, shared_bytes_per_s=share * link.shared_bytes_per_s)
