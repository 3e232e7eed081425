"""Concatenates the kernels of all measured steps, so that one evaluation predicts every step."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from advisor.predict.lowering import Kernels
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
    is_nchw: bool
    group: tuple[str, ...]
    """Rows that were measured together (source, device, precision, mode); they share a weight."""
    job: Hashable = None
    """Equal for the same step on several devices."""
    measured_s: float
    copied_bytes: float = 0.0
    """Bytes of inputs copied from pageable memory within the measured time, while the host waits."""
    trust: float = 1.0
    """Weight of the row."""


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

    @property
    def device(self) -> IndexArray:
        """Return the device of every kernel."""
        return self.device_of_step[self.step]


_PER_STEP = ("dispatches", "backward_dispatches", "compiled_dispatches", "transfer_bytes")
_PER_KERNEL = tuple(
    field.name for field in fields(Kernels) if field.name not in (*_PER_STEP, "families", "family", "parameter_bytes")
)
_GROUP_EXPONENT = -0.25
"""How the weight of a row falls with the size of its group: a thousand nets on one GPU count more than ten on another,
but not a hundred times as much."""


def sample_of(steps: Sequence[MeasuredStep]) -> Sample:
    """Concatenate the steps."""
    families = tuple(sorted({family for one in steps for family in one.kernels.families}))
    place = {family: index for index, family in enumerate(families)}
    counts = [len(one.kernels.family) for one in steps]
    devices = tuple({one.device.id: one.device for one in steps}.values())
    identifiers = [device.id for device in devices]
    sizes: dict[tuple[str, ...], int] = {}
    for one in steps:
        sizes[one.group] = sizes.get(one.group, 0) + 1
    weights = np.array([one.trust * sizes[one.group] ** _GROUP_EXPONENT for one in steps])
    kernels = Kernels(
        families=families,
        family=np.concatenate([[place[one.kernels.families[index]] for index in one.kernels.family] for one in steps]),
        **{name: np.concatenate([getattr(one.kernels, name) for one in steps]) for name in _PER_KERNEL},
        **{name: np.array([getattr(one.kernels, name)[0] for one in steps]) for name in _PER_STEP},
        parameter_bytes=np.repeat([one.kernels.parameter_bytes[0] for one in steps], counts)[:, np.newaxis],
    )
    return Sample(
        steps=tuple(steps),
        devices=devices,
        kernels=kernels,
        step=np.repeat(np.arange(len(steps)), counts),
        device_of_step=np.array([identifiers.index(one.device.id) for one in steps], dtype=np.intp),
        measured_s=np.array([one.measured_s for one in steps]),
        copied_bytes=np.array([one.copied_bytes for one in steps]),
        weights=weights / weights.mean(),
    )


def part_of(kernels: Kernels, chosen: IndexArray) -> Kernels:
    """Return only the chosen kernels of a sample."""
    values = {field.name: getattr(kernels, field.name) for field in fields(Kernels)}
    for name in (*_PER_KERNEL, "family", "parameter_bytes"):
        values[name] = values[name][chosen]
    return Kernels(**values)
