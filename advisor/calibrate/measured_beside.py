"""The workload, the devices at hand and who times its step in, timed steps beside what was predicted of them out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from advisor import units
from advisor.calibrate.cpu_load import spare_cpu_count
from advisor.calibrate.noise import TAKEN_CPU_COUNT, WIDE_IQR_RATIO
from advisor.calibrate.step_request import MeasureRequest
from advisor.errors import AdvisorError, UsageError
from advisor.predict.anchor import carried_ratio
from advisor.predict.step_time import predict
from advisor.records.answer import Interval, MeasuredStep, QuotedDevice
from advisor.records.device import ANY, Device, Efficiency
from advisor.records.machine import LocalDevice
from advisor.records.options import PrecisionChoice
from advisor.records.prediction import Anchor, IndexArray, Predictions
from advisor.records.timing import StepTiming
from advisor.records.workload import Workload

_PREDICTED_S = 2.0
"""A smaller batch is timed where a step is predicted to take longer, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """How the step is timed: what `request` says already, and who does it.

    `device` is torch's name of the one to time on; None: the CPU, and the first GPU that can be predicted. `batch` is
    the one to time; None: the source's own, or a smaller one. `time_it` raises an `AdvisorError` where it cannot.
    """

    request: MeasureRequest
    time_it: Callable[[MeasureRequest], StepTiming]
    precision: PrecisionChoice = "auto"
    device: str | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredHere:
    """What was timed, as the answer shows it and as predictions rest on it, and in words what could not be."""

    steps: tuple[MeasuredStep, ...] = ()
    anchors: tuple[Anchor, ...] = ()
    problems: tuple[str, ...] = ()


def measure_here(
    workload: Workload,
    here: Sequence[LocalDevice],
    measuring: Measuring | None,
    *,
    batches: IndexArray,
    efficiencies: Sequence[Efficiency],
) -> MeasuredHere:
    """Time the step on the devices at hand, at the source's own batch or the largest of `batches` that is quick.

    Nothing is timed where nobody does it.
    """
    if measuring is None:
        return MeasuredHere()
    if measuring.batch or not workload.batch_is_affine:
        batches = np.array([measuring.batch or workload.batch], dtype=np.intp)
    steps, anchors, problems = [], [], []
    for local, device in _chosen(here, measuring.device):
        try:
            step, anchor = _measured(workload, local, device, measuring, batches=batches, efficiencies=efficiencies)
        except AdvisorError as error:
            problems.append(f"not measured on this machine's {local.id}: {error.message}")
            continue
        steps.append(step)
        anchors.append(anchor)
        problems += _disturbances(step, local)
    if not (steps or problems):
        problems.append("not measured: no device of this machine can be predicted, `advise devices` says why")
    return MeasuredHere(steps=tuple(steps), anchors=tuple(anchors), problems=tuple(problems))


def _disturbances(step: MeasuredStep, local: LocalDevice) -> Iterator[str]:
    """What made the timings uncertain, with the remedy, as a calibration says it."""
    if step.iqr_ratio > WIDE_IQR_RATIO:
        yield (
            f"the steps timed on this machine's {local.id} lie {units.format_ratio(step.iqr_ratio)} apart: end other "
            "programs, measure again"
        )
    used_count = max(1, int(local.device.core_count)) if local.device and local.device.kind == "cpu" else 1
    if step.others_cpu_count > TAKEN_CPU_COUNT + spare_cpu_count(local, used_cpu_count=used_count):
        yield (
            f"other processes kept {step.others_cpu_count:.1f} CPUs busy while this machine's {local.id} was timed: "
            "end them, measure again"
        )


def _chosen(here: Sequence[LocalDevice], name: str | None) -> Iterator[tuple[LocalDevice, Device]]:
    """The first of each kind; of those of a name, where one is asked for."""
    found = [(local, local.device) for local in here if local.device is not None and name in (None, local.id)]
    for _, group in groupby(found, key=lambda pair: pair[1].kind):
        yield next(group)


def _measured(
    workload: Workload,
    local: LocalDevice,
    device: Device,
    measuring: Measuring,
    *,
    batches: IndexArray,
    efficiencies: Sequence[Efficiency],
) -> tuple[MeasuredStep, Anchor]:
    request = measuring.request
    if not workload.batch_is_affine and int(batches[0]) != workload.batch:
        raise UsageError(f"its steps are of {batches[0]:,} samples, and can be predicted at {workload.batch:,} alone")

    def predicted(used: Sequence[Efficiency]) -> Predictions:
        return predict(
            workload,
            devices=[replace(device, host_to_device_bytes_per_s=None)],  # its inputs lie on the device
            efficiencies=used,
            batches=batches,
            precision=measuring.precision,
            layout=request.layout,
            compile_mode=request.compile,
        )

    predictions = predicted(efficiencies)
    (precision,) = predictions.precisions
    if precision is None:
        raise UsageError(f"it has no unit for {measuring.precision}, or no kernels for the step")
    at = _batch_index(predictions, own_batch=workload.batch)
    needed_bytes = float(predictions.peak_memory_bytes[0, at]) + workload.parameter_bytes  # it runs on a copy
    timing = measuring.time_it(
        replace(
            request,
            device=local.id,
            gpu_uuid=local.uuid,
            thread_count=max(1, int(device.core_count)) if device.kind == "cpu" else None,
            batch=int(batches[at]),
            precision=precision,
            needed_bytes=needed_bytes,
        )
    )
    # Other devices are predicted without a calibration, so what is carried to them is the error without one.
    shipped = predicted([one for one in efficiencies if one.device == ANY])
    anchor = Anchor(
        device=device,
        precision=precision,
        batch=timing.batch,
        step_s=timing.step_s,
        step_low_s=timing.low_s,
        step_high_s=timing.high_s,
        predicted_s=float(shipped.step_s[0, at]),
        bound=int(shipped.bound[0, at]),
        log_spread=float(shipped.log_spread[0, at]),
        own_log_spread=float(shipped.own_log_spread[0, at]),
    )
    step = MeasuredStep(
        device=QuotedDevice(id=device.id, name=device.name, kind=device.kind, count=1),
        batch=timing.batch,
        precision=precision,
        compile=request.compile,
        step_s=Interval(mid=timing.step_s, low=timing.low_s, high=timing.high_s),
        step_count=timing.step_count,
        iqr_ratio=timing.iqr_ratio,
        others_cpu_count=timing.others_cpu_count,
        predicted_s=_interval(predictions, at),
        time_source=predictions.time_sources[0],
        carried_ratio=carried_ratio(anchor),
        loader_wait_s=timing.loader_wait_s,
    )
    return step, anchor


def _interval(predictions: Predictions, at: int) -> Interval:
    mid, low, high = (
        float(times[0, at]) for times in (predictions.step_s, predictions.step_low_s, predictions.step_high_s)
    )
    return Interval(mid=mid, low=low, high=high)


def _batch_index(predictions: Predictions, *, own_batch: int) -> int:
    """The source's own batch, or the largest below it that is predicted to be quick; the smallest where none is."""
    is_quick = (predictions.step_s[0] <= _PREDICTED_S) & (predictions.batches <= own_batch)
    return int(np.flatnonzero(is_quick)[-1]) if is_quick.any() else 0
