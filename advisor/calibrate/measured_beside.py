"""Times a workload's step on this machine's devices and compares it with the prediction."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from advisor import units
from advisor.calibrate.noise import TAKEN_CPU_COUNT, WIDE_IQR_RATIO, spare_cpu_count
from advisor.calibrate.step_process import MeasureRequest
from advisor.errors import AdvisorError, UsageError
from advisor.predict.anchor import anchored, carried_ratio
from advisor.predict.step_time import predict
from advisor.records.answer import Interval, MeasuredStep, QuotedDevice
from advisor.records.device import ANY, Device, Efficiency
from advisor.records.machine import LocalDevice
from advisor.records.options import PrecisionChoice
from advisor.records.prediction import Anchor, IndexArray, Predictions
from advisor.records.timing import StepTiming
from advisor.records.workload import Workload

_PREDICTED_S = 2.0
"""If a step is predicted to take longer, a smaller batch is timed, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """How the step is timed."""

    request: MeasureRequest
    """The request, without what depends on the device."""
    time_it: Callable[[MeasureRequest], StepTiming]
    """Times the step; raises an `AdvisorError` if it cannot."""
    precision: PrecisionChoice = "auto"
    device: str | None = None
    """Torch's name of the device; None: the CPU and the first GPU that can be predicted."""
    batch: int | None = None
    """The batch size to time; None: the source's own, or a smaller one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredHere:
    """The steps that were timed, and the problems."""

    steps: tuple[MeasuredStep, ...] = ()
    """The timed steps as the answer shows them."""
    anchors: tuple[Anchor, ...] = ()
    """The timed steps as predictions use them."""
    problems: tuple[str, ...] = ()

    def correct(self, predictions: Predictions) -> Predictions:
        """Return the predictions of the same workload corrected by the timed steps."""
        return anchored(predictions, self.anchors) if self.anchors else predictions


def measure_here(
    workload: Workload,
    here: Sequence[LocalDevice],
    measuring: Measuring | None,
    *,
    batches: IndexArray,
    efficiencies: Sequence[Efficiency],
) -> MeasuredHere:
    """Time the step on this machine's devices, at the source's own batch or the largest of `batches` that is fast.

    Without `measuring` nothing is timed.
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
        step = replace(step, is_disturbed=_is_disturbed(step, local))
        steps.append(step)
        anchors += [] if step.is_disturbed else [anchor]
        problems += _disturbances(step, local)
    if not (steps or problems):
        problems.append("not measured: no device of this machine can be predicted; `advise devices` says why")
    return MeasuredHere(steps=tuple(steps), anchors=tuple(anchors), problems=tuple(problems))


def _disturbances(step: MeasuredStep, local: LocalDevice) -> Iterator[str]:
    """Yield what made the timings uncertain, with the remedy, in the words of a calibration."""
    if step.iqr_ratio > WIDE_IQR_RATIO:
        yield (
            f"the steps timed on this machine's {local.id} vary by {units.format_ratio(step.iqr_ratio)}: close other "
            "programs and measure again"
        )
    if step.is_disturbed:
        yield (
            f"other processes kept {step.others_cpu_count:.1f} CPUs busy while this machine's {local.id} was timed, so "
            "its time is not used: close them and measure again"
        )


def _is_disturbed(step: MeasuredStep, local: LocalDevice) -> bool:
    used_count = max(1, int(local.device.core_count)) if local.device and local.device.kind == "cpu" else 1
    return step.others_cpu_count > TAKEN_CPU_COUNT + spare_cpu_count(local, used_cpu_count=used_count)


def _chosen(here: Sequence[LocalDevice], name: str | None) -> Iterator[tuple[LocalDevice, Device]]:
    """Yield the first device of each kind, or the named one."""
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
        raise UsageError(
            f"the batch size is {batches[0]:,}, but this workload can only be predicted at {workload.batch:,}"
        )

    def predicted(used: Sequence[Efficiency], choice: PrecisionChoice) -> Predictions:
        return predict(
            workload,
            devices=[replace(device, host_to_device_bytes_per_s=None)],  # its inputs are on the device already
            efficiencies=used,
            batches=batches,
            precision=choice,
            layout=request.layout,
            compile_mode=request.compile,
        )

    predictions = predicted(efficiencies, measuring.precision)
    if predictions.precisions[0, 0] is None:
        raise UsageError(f"the device does not support {measuring.precision}, or has no kernels for the step")
    # The largest batch up to the source's own that is predicted to be fast, else the smallest.
    is_quick = (predictions.step_s[0] <= _PREDICTED_S) & (predictions.batches <= workload.batch)
    at = int(np.flatnonzero(is_quick)[-1]) if is_quick.any() else 0
    precision = predictions.precisions[0, at]
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
    # Other devices are predicted without a calibration, so the error carried to them is the one without it.
    shipped = predicted([one for one in efficiencies if one.device == ANY], precision)
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
    mid_s, low_s, high_s = (
        float(times[0, at]) for times in (predictions.step_s, predictions.step_low_s, predictions.step_high_s)
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
        predicted_s=Interval(mid=mid_s, low=low_s, high=high_s),
        time_source=predictions.time_sources[0, at],
        carried_ratio=carried_ratio(anchor),
        loader_wait_s=timing.loader_wait_s,
    )
    return step, anchor
