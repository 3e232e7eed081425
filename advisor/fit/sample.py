"""Concatenates the kernels of all measured steps, so that one evaluation predicts every step."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.predict.kernel_time import Kernels, joined_kernels
from advisor.records.device import Device
from advisor.records.prediction import FloatArray, IndexArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredStep:
    """One measured step: its kernels, where and how it ran, and its time."""

    kernels: Kernels
    """Kernels at the measured batch size only."""
    device: Device
    precision: str
    """Precision class of efficiency files: "fp32", "tf32" or "half"."""
    group: tuple[str, ...]
    """Rows that were measured together (source, device, precision, mode); they share a weight."""
    job: Hashable = None
    """Equal for the same step on several devices."""
    measured_s: float
    copied_bytes: float = 0.0
    """Bytes of inputs copied from pageable memory within the measured time, while the host waits."""
    trust: float = 1.0
    """Weight of the row; 0: it is only predicted."""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """Many measured steps and their concatenated kernels."""

    steps: tuple[MeasuredStep, ...]
    devices: tuple[Device, ...]
    kernels: Kernels
    """Kernels of all steps, with one batch column."""
    step: IndexArray
    """Step of every kernel."""
    device_of_step: IndexArray
    measured_s: FloatArray
    copied_bytes: FloatArray
    weights: FloatArray


_GROUP_EXPONENT = -0.25
"""How the weight of a row falls with the size of its group: a thousand nets on one GPU count more than ten on another,
but not a hundred times as much."""


def sample_of(steps: Sequence[MeasuredStep]) -> Sample:
    """Concatenate the steps."""
    counts = [len(one.kernels.family) for one in steps]
    devices = tuple({one.device.id: one.device for one in steps}.values())
    identifiers = [device.id for device in devices]
    sizes = Counter(one.group for one in steps)
    weights = np.array([one.trust * sizes[one.group] ** _GROUP_EXPONENT for one in steps])
    return Sample(
        steps=tuple(steps),
        devices=devices,
        kernels=joined_kernels([one.kernels for one in steps]),
        step=np.repeat(np.arange(len(steps)), counts),
        device_of_step=np.array([identifiers.index(one.device.id) for one in steps], dtype=np.intp),
        measured_s=np.array([one.measured_s for one in steps]),
        copied_bytes=np.array([one.copied_bytes for one in steps]),
        weights=weights / weights[weights > 0].mean(),
    )
