"""Predicts the time and memory of a workload's step on every device at every batch size."""

from collections.abc import Iterator, Sequence
from typing import Any, get_args

import numpy as np

from advisor.predict.anchor import Correct, uncorrected
from advisor.predict.efficiency import efficiency_of, precision_class
from advisor.predict.join import join_batches
from advisor.predict.kernel_time import Kernels
from advisor.predict.lowering import StepKernels
from advisor.predict.precision import width_of
from advisor.predict.precision_choice import cheapest_runs, runs_of
from advisor.predict.roofline import step_times
from advisor.predict.step_memory import step_memory
from advisor.records.device import ANY, CompileMode, Device, DeviceKind, Efficiency, Layout, Precision, TimeSource
from advisor.records.options import PrecisionChoice
from advisor.records.prediction import PARTS, RESOURCES, USES, IndexArray, NameArray, Predictions
from advisor.records.workload import Workload

_MEASURED_ON_STACKS: Precision = "bf16"
"""The precision in which steps were measured on devices with software of their own."""
_CHUNK_LENGTH = 100_000
"""Elements of (devices, kernels, batches) computed at a time, which bounds the memory for many rows and batches. With
500,000, whose arrays leave a core's cache, predicting GPT-2's training on all devices takes 15 % longer."""


def predict(
    workload: Workload,
    *,
    devices: Sequence[Device],
    efficiencies: Sequence[Efficiency],
    batches: IndexArray,
    precision: PrecisionChoice = "auto",
    layout: Layout = "nchw",
    compile_mode: CompileMode = "eager",
) -> Predictions:
    """Predict one step of the workload on every device at every batch size, in the cheapest precision of the choice."""
    places, precisions = runs_of(devices, precision, workload=workload)
    predictions = predict_runs_of(
        StepKernels(workload, compile_mode=compile_mode, layout=layout),
        devices=[devices[place] for place in places],
        precisions=precisions,
        efficiencies=efficiencies,
        batches=batches,
    )
    return cheapest_runs(predictions, places)


def predict_runs_of(
    step_kernels: StepKernels,
    *,
    devices: Sequence[Device],
    precisions: Sequence[Precision | None],
    efficiencies: Sequence[Efficiency],
    batches: IndexArray,
    correct: Correct = uncorrected,
) -> Predictions:
    """Predict one step on every device in the precision of the same place, as `predict` does; None: do not predict.

    Devices of one kind and precision run the same kernels and are predicted together. `step_kernels` may be reused by
    several predictions. `correct` takes steps into account that were timed in the same layout and compile mode.
    """
    workload = step_kernels.workload
    if len(batches) > 1 and _convolves_over_batch(workload):
        each = (
            predict_runs_of(
                step_kernels, devices=devices, precisions=precisions, efficiencies=efficiencies, batches=batch
            )
            for batch in np.split(batches, len(batches))
        )
        return correct(join_batches([*each]))
    runs_on = {kind: has_kernels(workload, kind) for kind in get_args(DeviceKind)}
    precisions = tuple(
        precision if runs_on[device.kind] and _is_measured(workload, device, precision) else None
        for device, precision in zip(devices, precisions, strict=True)
    )
    shape = (len(devices), len(batches))
    found: dict[str, Any] = {
        **{name: np.full(shape, np.inf) for name in ("step_s", "step_low_s", "step_high_s")},
        **{name: np.full(shape, np.inf) for name in ("log_spread", "own_log_spread", "host_log_spread")},
        "bound": np.zeros(shape, dtype=np.intp),
        "part_ratio": np.zeros((len(RESOURCES), len(PARTS), *shape)),
        **{name: np.zeros(shape) for name in USES},
    }
    peak_bytes, least_bytes, most_bytes = (np.full(shape, np.inf) for _ in range(3))
    time_sources: list[TimeSource] = ["datasheet"] * len(devices)
    float_batches = batches.astype(np.float64)
    fits = _efficiencies_of(devices, precisions, efficiencies=efficiencies)
    plain_fits_of = _efficiencies_of(
        devices,
        ["fp32" if used is not None and precision_class(used) == "tf32" else None for used in precisions],
        efficiencies=efficiencies,
    )
    for (kind, used), members in _groups(devices, precisions).items():
        kernels = step_kernels.at(batches, kind=kind, precision=used)
        for some in _chunks(members, kernels):
            group = [devices[index] for index in some]
            group_fits = [fits[index] for index in some]
            plain_fits = [plain_fits_of[index] for index in some if index in plain_fits_of]
            times = step_times(
                kernels,
                kind=kind,
                devices=group,
                efficiencies=group_fits,
                plain_efficiencies=plain_fits or None,
            )
            for name, values in found.items():
                values[..., some, :] = getattr(times, name)
        memory = step_memory(workload, batches=float_batches, width=width_of(used, workload), kind=kind).total
        peak_bytes[members], least_bytes[members], most_bytes[members] = memory.mid, memory.low, memory.high
        for index in members:
            fit = fits[index]
            is_calibrated = fit.device != ANY
            time_sources[index] = (
                "calibrated" if is_calibrated else time_source(devices[index], is_fitted=fit.generation != ANY)
            )
    memory_bytes = np.array([device.memory_bytes for device in devices])[:, np.newaxis]
    return correct(
        Predictions(
            devices=tuple(devices),
            precisions=by_batch(precisions, len(batches)),
            time_sources=by_batch(time_sources, len(batches)),
            compile=step_kernels.compile_mode,
            batches=batches,
            peak_memory_bytes=peak_bytes,
            fits=peak_bytes <= memory_bytes,
            is_tight=(least_bytes <= memory_bytes) & (most_bytes > memory_bytes),
            **found,
        )
    )


def _convolves_over_batch(workload: Workload) -> bool:
    """Return whether channels or pixels of a convolution grow with the batch, as with a weight for each sample.

    Its kernels then differ between batch sizes, and `products.fixed` holds for one batch size alone.
    """
    convolutions = (row for row in workload.rows if row.family == "conv")
    images = (operand for row in convolutions for operand in (*row.inputs, *row.outputs))
    return any(isinstance(length, tuple) and length[1] != 0 for image in images for length in image.shape[1:])


def by_batch(names: Sequence[str | None], batch_count: int) -> NameArray:
    """Return the name of each device at every batch size, (devices, batches)."""
    return np.repeat(np.array(names, dtype=np.object_)[:, np.newaxis], batch_count, axis=1)


def has_kernels(workload: Workload, kind: DeviceKind) -> bool:
    """Return whether torch has kernels for every operator; `quantized` ones run only on CPUs (docs, "Quantization")."""
    return kind == "cpu" or not any(row.op.startswith("quantized.") for row in workload.rows)


def _is_measured(workload: Workload, device: Device, precision: Precision | None) -> bool:
    """Return whether steps like this one were measured with the device's own software; others cannot be predicted."""
    return device.stack is None or (
        workload.mode == "inference" and workload.generation is None and precision == _MEASURED_ON_STACKS
    )


def _efficiencies_of(
    devices: Sequence[Device], precisions: Sequence[Precision | None], *, efficiencies: Sequence[Efficiency]
) -> dict[int, Efficiency]:
    """Return the efficiency of every device that has a precision, by index."""
    calibrated = {efficiency.device for efficiency in efficiencies} - {ANY}
    by_type: dict[tuple[object, ...], Efficiency] = {}
    found: dict[int, Efficiency] = {}
    for index, (device, precision) in enumerate(zip(devices, precisions, strict=True)):
        if precision is None:
            continue
        own = (device.id, device.core_count) if device.id in calibrated else ()
        key = (device.kind, device.vendor, device.generation, precision, *own)
        if key not in by_type:
            by_type[key] = efficiency_of(device, precision=precision, efficiencies=efficiencies)
        found[index] = by_type[key]
    return found


def _groups(
    devices: Sequence[Device], precisions: Sequence[Precision | None]
) -> dict[tuple[DeviceKind, Precision], list[int]]:
    """Return the indices of the devices that run the same kernels, by kind and precision."""
    groups: dict[tuple[DeviceKind, Precision], list[int]] = {}
    for index, (device, precision) in enumerate(zip(devices, precisions, strict=True)):
        if precision is not None:
            groups.setdefault((device.kind, precision), []).append(index)
    return groups


def _chunks(members: list[int], kernels: Kernels) -> Iterator[list[int]]:
    """Split the devices into chunks of bounded size, with at least one device each."""
    count = max(1, _CHUNK_LENGTH // max(1, kernels.flops.size))
    return (members[start : start + count] for start in range(0, len(members), count))


def time_source(device: Device, *, is_fitted: bool) -> TimeSource:
    """Return the source of a time; `is_fitted`: some device of its generation was measured.

    No step was measured on a part of a GPU: its figures are shares of the whole GPU's.
    """
    if device.source != "datasheet":
        return device.source
    return "fitted" if is_fitted and device.part_of is None else "datasheet"
