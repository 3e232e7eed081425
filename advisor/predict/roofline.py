"""Kernels and what a group of like devices can do in, the time of a step on each in seconds out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.predict.efficiency import family_efficiencies
from advisor.predict.lowering import UNITS, Kernels
from advisor.records.answer import BOUNDS
from advisor.records.device import Device, DeviceKind, Efficiency
from advisor.records.prediction import FloatArray, IndexArray

_Z_90 = 1.645
"""Half the width of a 90 % interval in standard deviations of a normal."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTimes:
    """Arrays are (devices, batches); `log_spread` is one standard deviation of log(measured / predicted)."""

    mid_s: FloatArray
    log_spread: FloatArray
    bound: IndexArray

    @property
    def low_s(self) -> FloatArray:
        """Lower end of the 90 % interval."""
        return self.mid_s * np.exp(-_Z_90 * self.log_spread)

    @property
    def high_s(self) -> FloatArray:
        """Upper end of the 90 % interval."""
        return self.mid_s * np.exp(_Z_90 * self.log_spread)


def step_times(
    kernels: Kernels, *, kind: DeviceKind, devices: Sequence[Device], efficiencies: Sequence[Efficiency]
) -> StepTimes:
    """Time of one step on every device, all of one kind, at every batch size.

    A row takes the smooth maximum of its compute and memory time. The kernels of a step follow each other, each with
    its launch. A GPU works while the host dispatches and copies the next inputs (pinned memory), so the longest of the
    three counts; a CPU dispatches and computes on the same cores, so both add.

    The interval adds, as independent errors, the offset that all rows share on a device and each family's own, weighted
    by its share of the time: all rows of a family err together.
    """
    compute_s_per_flop, memory_s_per_byte = _seconds_per_unit_of_work(kernels, devices, efficiencies)
    overlap = np.array([efficiency.overlap_ratio for efficiency in efficiencies])
    family_s = _family_times(kernels, compute_s_per_flop, memory_s_per_byte, overlap)
    launch_s = np.outer([efficiency.launch_s for efficiency in efficiencies], kernels.launches)
    dispatch_s = np.outer([efficiency.dispatch_s for efficiency in efficiencies], kernels.dispatches)
    device_s = family_s.sum(axis=0) + launch_s

    work_s = (compute_s_per_flop @ kernels.flops, memory_s_per_byte @ kernels.moved_bytes, launch_s)
    if kind == "gpu":
        transfer_s = np.outer([_seconds_per_transferred_byte(device) for device in devices], kernels.transfer_bytes)
        mid_s = np.maximum(device_s, np.maximum(dispatch_s, transfer_s))
        bound = np.where(mid_s == device_s, np.argmax(work_s, axis=0), 0)
        bound = np.where(mid_s == dispatch_s, BOUNDS.index("dispatch"), bound)
        bound = np.where(mid_s == transfer_s, BOUNDS.index("transfer"), bound)
    else:
        mid_s = device_s + dispatch_s
        bound = np.argmax((*work_s, dispatch_s), axis=0)
    return StepTimes(mid_s=mid_s, log_spread=_log_spread(kernels, family_s, efficiencies), bound=bound)


def smooth_maximum(compute_s: FloatArray, memory_s: FloatArray, *, overlap: FloatArray | float) -> FloatArray:
    """The larger of the two where `overlap` is 1, their sum where it is 0, between them otherwise.

    (c + m + sqrt((c - m)^2 + 4 (1 - overlap)^2 c m)) / 2: a hyperbola with both times as asymptotes, which grows with
    either. Where both are equal a share of (1 - overlap) of the second shows.
    """
    cross = 4 * (1 - overlap) ** 2 - 2
    return (compute_s + memory_s + np.sqrt(compute_s**2 + memory_s**2 + cross * compute_s * memory_s)) / 2


def _family_times(
    kernels: Kernels, compute_s_per_flop: FloatArray, memory_s_per_byte: FloatArray, overlap: FloatArray
) -> FloatArray:
    """Seconds of work per family, (families, devices, batches).

    The smooth maximum of every row, device and batch. What is under its root is, for one row, a sum of three products
    of a device's number and a batch's: one small matrix product per row does it, much faster than elementwise.
    """
    cross = 4 * (1 - overlap)[:, np.newaxis] ** 2 - 2
    per_device = np.stack(
        (compute_s_per_flop**2, memory_s_per_byte**2, cross * compute_s_per_flop * memory_s_per_byte), axis=-1
    )
    per_batch = np.stack((kernels.flops**2, kernels.moved_bytes**2, kernels.flops * kernels.moved_bytes), axis=1)
    family_s = np.empty((len(kernels.families), len(overlap), kernels.flops.shape[1]))
    for family in range(len(kernels.families)):
        rows = kernels.family == family
        root_s = np.matmul(per_device[:, rows].transpose(1, 0, 2), per_batch[rows])
        np.sqrt(np.maximum(root_s, 0.0, out=root_s), out=root_s)
        family_s[family] = root_s.sum(axis=0)
        family_s[family] += compute_s_per_flop[:, rows] @ kernels.flops[rows]
        family_s[family] += memory_s_per_byte[:, rows] @ kernels.moved_bytes[rows]
    return family_s / 2


def _seconds_per_unit_of_work(
    kernels: Kernels, devices: Sequence[Device], efficiencies: Sequence[Efficiency]
) -> tuple[FloatArray, FloatArray]:
    """Seconds per FLOP and per byte, each (devices, rows), at what the row's family sustains of the row's unit."""
    entries = [family_efficiencies(efficiency, families=kernels.families) for efficiency in efficiencies]
    compute_ratio = np.array([[entry.compute_ratio for entry in row] for row in entries])
    memory_ratio = np.array([[entry.memory_ratio for entry in row] for row in entries])
    peaks = np.array([[_peak_flops_per_s(device, unit) for unit in UNITS] for device in devices])
    bandwidths = np.array([device.memory_bytes_per_s for device in devices])
    return (
        1 / (peaks[:, kernels.unit] * compute_ratio[:, kernels.family]),
        1 / (bandwidths[:, np.newaxis] * memory_ratio[:, kernels.family]),
    )


def _peak_flops_per_s(device: Device, unit: str) -> float:
    """The unit's rate; a device without it converts its operands and multiplies them in fp32."""
    peaks = device.peak_flops_per_s
    return peaks.get(unit, peaks["fp32"])


def _seconds_per_transferred_byte(device: Device) -> float:
    rate = device.host_to_device_bytes_per_s
    return 1 / rate if rate else 0.0


def _log_spread(kernels: Kernels, family_s: FloatArray, efficiencies: Sequence[Efficiency]) -> FloatArray:
    total_s = family_s.sum(axis=0)
    shares = np.divide(family_s, total_s, out=np.zeros_like(family_s), where=total_s > 0)
    spreads = np.array(
        [
            [entry.log_spread for entry in family_efficiencies(efficiency, families=kernels.families)]
            for efficiency in efficiencies
        ]
    )
    device_spread = np.array([efficiency.device_log_spread for efficiency in efficiencies])
    variance: FloatArray = (shares**2 * spreads.T[:, :, np.newaxis] ** 2).sum(axis=0)
    variance += device_spread[:, np.newaxis] ** 2
    return np.sqrt(variance)
