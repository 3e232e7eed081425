"""Predicts the time of a step from its kernels, on a group of devices of one kind."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

import numpy as np

from advisor.predict.efficiency import distinct_efficiencies, family_efficiency
from advisor.predict.kernel_time import DISPATCHED, TENSOR_UNITS, UNITS, Kernels, Rates, kernel_times
from advisor.predict.rates import rate_table
from advisor.records.answer import BOUNDS, Z_90
from advisor.records.device import Device, DeviceKind, Efficiency
from advisor.records.prediction import PARTS, RESOURCES, USES, FloatArray, IndexArray

_LAUNCHED_AFTER = 0.5
"""Share of an operator's dispatch overhead that passes before its kernel is launched; the rest is the return to
Python. For NeuSight's operators of less than 100 us the median error is 26 % if the GPU waits for all of the dispatch,
10 % for half of it and 26 % for none."""
_OF_THE_MACHINE = {
    "memory_bytes", "host_to_device_bytes_per_s", "vcpu_count", "gpu_count", "nvlink_bytes_per_s",
    "bridge_bytes_per_s", "peer_link_bytes_per_s", "switch_bytes_per_s", "network_bytes_per_s",
}  # fmt: skip
_MAPPINGS = {"peak_flops_per_s", "power_ratio"}
_OF_THE_HOST = {"host_time_ratio", "host_cpu"}
"""A GPU's kernels take the same time whichever host dispatches them."""
_CPU_FIELDS = {field.name for field in fields(Device)} - _OF_THE_MACHINE - _MAPPINGS
_KERNEL_FIELDS = {"cpu": attrgetter(*_CPU_FIELDS), "gpu": attrgetter(*(_CPU_FIELDS - _OF_THE_HOST))}
"""The fields of a device on which the times of its kernels depend, without mappings."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTimes:
    """Predicted step times with their uncertainty; the fields are those of `Predictions`."""

    step_s: FloatArray
    step_low_s: FloatArray
    step_high_s: FloatArray
    log_spread: FloatArray
    own_log_spread: FloatArray
    host_log_spread: FloatArray
    bound: IndexArray
    part_ratio: FloatArray
    compute_ratio: FloatArray
    memory_ratio: FloatArray
    overhead_ratio: FloatArray


def step_times(
    kernels: Kernels,
    *,
    kind: DeviceKind,
    devices: Sequence[Device],
    efficiencies: Sequence[Efficiency],
    plain_efficiencies: Sequence[Efficiency] | None = None,
) -> StepTimes:
    """Predict the time of one step on every device, all of one kind, at every batch size.

    `plain_efficiencies` are those in fp32, for the kernels of a TF32 step that run outside tensor cores.

    Kernels run one after another. A GPU computes while the host dispatches later operators and copies the next inputs
    (pinned memory), so the step takes the longest of the three; the first dispatch and the copies of a paged
    optimizer's state add to the compute time. A CPU dispatches and computes on the same cores, so dispatch overhead
    and compute time add up.

    A time-sliced GPU is timed with the share that is sold; the lower end of its interval is that of the whole GPU.

    A GPU in several machines runs the same kernels in the same time, so that is computed once.
    """
    first, place = _distinct_kernel_times(devices, efficiencies)
    rates = rates_by_kernel(
        kernels,
        devices=[devices[index] for index in first],
        efficiencies=[efficiencies[index] for index in first],
        plain_efficiencies=plain_efficiencies and [plain_efficiencies[index] for index in first],
    )
    times = kernel_times(kernels, rates)
    calls = kernels.calls[:, np.newaxis]
    kernel_s = times.total_s * calls
    family_s = _summed(kernel_s, by=kernels.family, count=len(kernels.families))[:, place]
    parts_s = _summed(kernel_s, by=kernels.part, count=len(PARTS))[:, place]
    device_s = family_s.sum(axis=0)
    dispatch_s = dispatch_times(kernels, devices=devices, efficiencies=efficiencies)
    part_dispatch_s = part_dispatch_times(kernels, devices=devices, efficiencies=efficiencies)
    resources_s = np.zeros((len(RESOURCES), *parts_s.shape))
    work_s = [(part * calls).sum(axis=1)[place] for part in (times.compute_s, times.memory_s, times.launch_s)]
    if kind == "gpu":
        copied_per_s = [device.host_to_device_bytes_per_s for device in devices]
        s_per_byte = [1 / rate if rate else 0.0 for rate in copied_per_s]
        transfer_s, paging_s = (np.outer(s_per_byte, sizes) for sizes in (kernels.transfer_bytes, kernels.paged_bytes))
        first_s, least_s = first_dispatch_s(kernels, dispatch_s), np.maximum(dispatch_s, transfer_s)
        time_ratio = np.array([device.time_ratio for device in devices])[:, np.newaxis]
        waiting_s = first_s + paging_s
        step_s = np.maximum(device_s + waiting_s, least_s)
        alone_s = np.maximum(device_s * time_ratio + waiting_s, least_s)
        resources_s[:2] = parts_s, part_dispatch_s
        resources_s[0, PARTS.index("optimizer")] += paging_s  # whose kernels wait for their state
        resources_s[::2, PARTS.index("forward")] += first_s, transfer_s  # every pass waits for both
        bound = np.argmax(work_s, axis=0)
        bound = np.where(step_s == dispatch_s, BOUNDS.index("dispatch"), bound)
        is_copying = (step_s == transfer_s) | (paging_s > np.max(work_s, axis=0))
        bound = np.where(is_copying, BOUNDS.index("transfer"), bound)
    else:
        step_s = alone_s = device_s + dispatch_s
        resources_s[0] = parts_s + part_dispatch_s
        bound = np.argmax((*work_s, dispatch_s), axis=0)
    safe_s = np.where(step_s > 0, step_s, 1.0)
    host_share = dispatch_s / safe_s
    log_spread, own_log_spread, host_log_spread = _log_spreads(kernels, family_s, host_share, devices, efficiencies)
    return StepTimes(
        step_s=step_s,
        step_low_s=alone_s * np.exp(-Z_90 * log_spread),
        step_high_s=step_s * np.exp(Z_90 * log_spread),
        log_spread=log_spread,
        own_log_spread=own_log_spread,
        host_log_spread=host_log_spread,
        bound=bound,
        part_ratio=resources_s / safe_s,
        **{name: part_s / safe_s for name, part_s in zip(USES, work_s, strict=True)},
    )


def _distinct_kernel_times(
    devices: Sequence[Device], efficiencies: Sequence[Efficiency]
) -> tuple[list[int], IndexArray]:
    """Return the indices of devices whose kernels take different times, and each device's place among them."""
    places: dict[tuple[object, ...], int] = {}
    first: list[int] = []
    place: list[int] = []
    for index, (device, efficiency) in enumerate(zip(devices, efficiencies, strict=True)):
        rates = (*device.peak_flops_per_s.items(), *device.power_ratio.items())
        key = (id(efficiency), rates, _KERNEL_FIELDS[device.kind](device))
        if key not in places:
            places[key] = len(first)
            first.append(index)
        place.append(places[key])
    return first, np.array(place, dtype=np.intp)


def rates_by_kernel(
    kernels: Kernels,
    *,
    devices: Sequence[Device],
    efficiencies: Sequence[Efficiency],
    plain_efficiencies: Sequence[Efficiency] | None = None,
) -> Rates:
    """Return the rates that every device sustains for every kernel; they broadcast to (devices, kernels, 1).

    With `plain_efficiencies`, kernels outside tensor cores have the rates of those.
    """
    line = np.arange(len(devices))[:, np.newaxis, np.newaxis]
    if plain_efficiencies is not None:
        is_plain = ~np.isin(kernels.unit, [UNITS.index(unit) for unit in TENSOR_UNITS])
        line = line + len(devices) * is_plain[:, np.newaxis]
        devices, efficiencies = [*devices, *devices], [*efficiencies, *plain_efficiencies]
    table = rate_table(devices, efficiencies, families=kernels.families, units=np.unique(kernels.unit).tolist())
    return table.at(line, family=kernels.family[:, np.newaxis], unit=kernels.unit[:, np.newaxis])


def dispatch_times(kernels: Kernels, *, devices: Sequence[Device], efficiencies: Sequence[Efficiency]) -> FloatArray:
    """Return the dispatch overhead of a step in seconds, (devices, batches)."""
    counts = np.array([getattr(kernels, counted) for counted in DISPATCHED])
    total_s: FloatArray = _call_times(devices, efficiencies) @ counts
    return total_s


def part_dispatch_times(
    kernels: Kernels, *, devices: Sequence[Device], efficiencies: Sequence[Efficiency]
) -> FloatArray:
    """Return the dispatch overhead of each part of a step in seconds, (parts, devices, batches)."""
    parts_s: FloatArray = np.einsum("dc,cpb->pdb", _call_times(devices, efficiencies), kernels.part_dispatches)
    return parts_s


def _call_times(devices: Sequence[Device], efficiencies: Sequence[Efficiency]) -> FloatArray:
    """Return the seconds of one host operation, (devices, `DISPATCHED`)."""
    return np.array(
        [
            [device.host_time_ratio * getattr(efficiency, name) for name in DISPATCHED.values()]
            for device, efficiency in zip(devices, efficiencies, strict=True)
        ]
    )


def first_dispatch_s(kernels: Kernels, dispatch_s: FloatArray) -> FloatArray:
    """Return the seconds until a GPU gets the first kernel of a step; later kernels wait in its queue."""
    count = sum(getattr(kernels, counted) for counted in DISPATCHED)
    first_s: FloatArray = _LAUNCHED_AFTER * dispatch_s / np.maximum(count, 1.0)
    return first_s


def _summed(kernel_s: FloatArray, *, by: IndexArray, count: int) -> FloatArray:
    """Return the total seconds of the kernels with the same index in `by`, (count, devices, batches)."""
    device_count, _, batch_count = kernel_s.shape
    sums = np.zeros((count, device_count, batch_count))
    for index in range(count):
        sums[index] = kernel_s[:, by == index].sum(axis=1)
    return sums


def _shares(parts_s: FloatArray) -> FloatArray:
    """Return each part's share of the sum along the first dimension; 0 if the sum is 0."""
    total_s = parts_s.sum(axis=0)
    shares: FloatArray = np.divide(parts_s, total_s, out=np.zeros_like(parts_s), where=total_s > 0)
    return shares


def _log_spreads(
    kernels: Kernels,
    family_s: FloatArray,
    host_share: FloatArray,
    devices: Sequence[Device],
    efficiencies: Sequence[Efficiency],
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the spread of the whole error, of the device's own part, and of the host's within it, (devices, batches).

    The variances of independent errors add up. The sources are the device (for all workloads), its datasheet figures
    and its vendor, the workload (on all devices), the host, and each kernel family. Host and families are weighted by
    their share of the time; the rows of a family share one error.
    """
    shares = _shares(family_s)
    distinct, which = distinct_efficiencies(efficiencies)
    spreads = np.array([[family_efficiency(one, family).log_spread for family in kernels.families] for one in distinct])

    def spread_of(name: str) -> FloatArray:
        return np.array([getattr(efficiency, f"{name}_log_spread") for efficiency in distinct])[which, np.newaxis]

    of_families: FloatArray = (shares**2 * spreads[which].T[:, :, np.newaxis] ** 2).sum(axis=0)
    of_figures = np.array(
        [_unknown_log_spread(device, fit) for device, fit in zip(devices, efficiencies, strict=True)]
    )[:, np.newaxis]
    of_host = host_share * spread_of("host")
    own: FloatArray = np.sqrt(of_families + spread_of("device") ** 2 + of_figures**2 + of_host**2)
    of_compiled = (kernels.compiled_dispatches > 0) * spread_of("compiled")
    of_backward = kernels.has_backward * spread_of("backward")
    return np.sqrt(own**2 + spread_of("workload") ** 2 + of_compiled**2 + of_backward**2), own, of_host


def _unknown_log_spread(device: Device, efficiency: Efficiency) -> float:
    """Return the spread due to the device's own figures, and to a device or vendor without fitted data.

    A calibrated device has none. Parts of a CPU are fitted as ID@CORES.
    """
    if efficiency.device == device.id:
        return 0.0
    is_seen = device.id.partition("@")[0] in {name.partition("@")[0] for name in efficiency.fitted_on}
    is_of_vendor = not efficiency.fitted_vendors or device.vendor in efficiency.fitted_vendors
    return math.hypot(
        device.log_spread,
        0.0 if is_seen else efficiency.unseen_log_spread,
        0.0 if is_of_vendor else efficiency.other_vendor_log_spread,
    )
