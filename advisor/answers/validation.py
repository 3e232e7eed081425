"""Predicts measured steps and scores the predictions."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TypeAlias

import numpy as np

from advisor.answers.accuracy_score import has_own_figures, known_of, score
from advisor.answers.measurement_file import family_of, has_column, read_measurements, source_of
from advisor.answers.served_validation import ServedRun, predict_served_runs, prepare_served
from advisor.answers.tuning_validation import TuningRun, predict_tuning_runs, predicted_peaks, prepare_tuning_runs
from advisor.calibrate.in_force import calibrations_in_force, with_calibrations
from advisor.catalog.find import overlay_notes
from advisor.catalog.invariants import catalog_warnings
from advisor.devices.local_device import local_devices
from advisor.devices.named_device import named_device
from advisor.errors import AdvisorError, UsageError
from advisor.machine.this_machine import this_machine
from advisor.predict.capability import without_own_ratios
from advisor.predict.kernel_time import Kernels
from advisor.predict.lowering import lower
from advisor.predict.plain_roofline import plain_roofline
from advisor.predict.precision import computed_width, resolve_precision
from advisor.predict.row_work import count_rows
from advisor.predict.step_time import predict
from advisor.question.from_source import catalog_of
from advisor.records.device import Device, Precision
from advisor.records.flag_values import is_workload_file
from advisor.records.measurement import Accuracy, FailedRow, Measurement, PredictedRow
from advisor.records.options import Options
from advisor.records.price import Catalog
from advisor.records.workload import Workload
from advisor.workload.file import read_workload
from advisor.workload.spawn import ProfileRequest
from advisor.workload.trace_many import OnProgress, Outcome, trace_many, workload_of


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDevice:
    """A device of the measurements: its id, with `@N` if it is a part of a CPU, and its lowest hourly price."""

    id: str
    device: Device
    usd_per_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A measurement with everything that its prediction needs."""

    measurement: Measurement
    family: str
    device: NamedDevice
    workload: Workload

    def failed(self, reason: str) -> FailedRow:
        """Return the row of a run that cannot be predicted."""
        return _failed(self.measurement, self.device, family=self.family, reason=reason)


def _failed(measurement: Measurement, device: NamedDevice, *, family: str, reason: str) -> FailedRow:
    return FailedRow(
        measurement=measurement,
        device=device.id,
        kind=device.device.kind,
        generation=device.device.generation,
        family=family,
        reason=reason,
    )


_THIS_MACHINES = re.compile(r"cpu|mps|cuda:\d+")
"""Names of devices of this machine."""
_Devices: TypeAlias = Mapping[str, NamedDevice | UsageError]
_Workloads: TypeAlias = Mapping[Measurement, Outcome]


def validate(files: Sequence[Path], options: Options, *, on_progress: OnProgress | None = None) -> Accuracy:
    """Predict every measurement in `files` and score the predictions; `options` names profiles, prices and timeout.

    A measurement whose model cannot be traced, or whose device is unknown or does not run it, fails alone. The devices
    "cpu" and "cuda:0" are those of this machine, with their calibrations. Raises `UsageError` for a file that is no
    table of measurements.
    """
    served = [file for file in files if has_column(file, "prompt_tokens")]
    tuning = [file for file in files if has_column(file, "finetune")]
    measurements = [one for file in files if file not in (*served, *tuning) for one in read_measurements(file)]
    catalog = catalog_of(options)
    here: dict[str, Device | None] = {}
    if any(_THIS_MACHINES.fullmatch(measurement.device) for measurement in measurements):
        machine = this_machine()
        here = {local.id: local.device for local in local_devices(machine, catalog)}
        catalog = with_calibrations(catalog, calibrations_in_force(machine, catalog).calibrations)
    prepared = prepare(measurements, catalog, timeout_s=options.timeout, here=here, on_progress=on_progress)
    of_steps = predict_runs(prepared, catalog)
    of_service = prepare_served(served, catalog, timeout_s=options.timeout, on_progress=on_progress)
    of_tuning = prepare_tuning_runs(tuning, catalog, timeout_s=options.timeout, on_progress=on_progress)
    tuned = [run for run in of_tuning if isinstance(run, TuningRun)]
    predicted = [
        *(row for row in of_steps if isinstance(row, PredictedRow)),
        *predict_served_runs([run for run in of_service if isinstance(run, ServedRun)], catalog),
        *predict_tuning_runs(tuned, catalog),
    ]
    failed = [row for row in (*of_steps, *of_service, *of_tuning) if isinstance(row, FailedRow)]
    return replace(
        score(predicted, failed),
        peaks=tuple(predicted_peaks(tuned)),
        notes=(*overlay_notes(catalog), *catalog_warnings(catalog, today=date.today())),
    )


def prepare(
    measurements: Sequence[Measurement],
    catalog: Catalog,
    *,
    timeout_s: float,
    device: Device | None = None,
    here: Mapping[str, Device | None] | None = None,
    on_progress: OnProgress | None = None,
) -> list[Run | FailedRow]:
    """Return every measurement with its workload and device, or the reason why one is missing.

    All are of `device` if it is given, else of the devices that they name; `here` has those of this machine.
    """
    names = dict.fromkeys(measurement.device for measurement in measurements)
    devices: _Devices = (
        _devices(names, catalog, here=here or {})
        if device is None
        else {name: NamedDevice(id=name, device=device, usd_per_hour=None) for name in names}
    )
    workloads = _workloads(measurements, timeout_s=timeout_s, on_progress=on_progress)
    return [_prepared(measurement, devices, workloads) for measurement in measurements]


def _devices(names: Iterable[str], catalog: Catalog, *, here: Mapping[str, Device | None]) -> _Devices:
    usd_per_hour = least_usd_per_hour(catalog)
    devices: dict[str, NamedDevice | UsageError] = {}
    for name in names:
        try:
            at_hand = here.get(name)
            identifier, device = (at_hand.id, at_hand) if at_hand else named_device(name, catalog)
            device = replace(device, host_to_device_bytes_per_s=None)  # benchmarks make their inputs on the device
            devices[name] = NamedDevice(id=identifier, device=device, usd_per_hour=usd_per_hour.get(identifier))
        except UsageError as error:
            devices[name] = error
    return devices


def least_usd_per_hour(catalog: Catalog) -> dict[str, float]:
    """Return the lowest on-demand price of each GPU alone in its machine, by id. CPUs are rented in parts."""
    least: dict[str, float] = {}
    for offer in catalog.offers:
        for price in offer.prices:
            if offer.gpu and offer.gpu_count == 1 and price.kind == "on_demand" and not (price.stale or price.suspect):
                least[offer.gpu] = min(price.usd_per_hour, least.get(offer.gpu, price.usd_per_hour))
    return least


def _workloads(measurements: Sequence[Measurement], *, timeout_s: float, on_progress: OnProgress | None) -> _Workloads:
    """Return every measurement's step: saved ones are read, others are traced once, and traced again at the measured
    batch size if they are not affine in the batch."""
    sources = {measurement: source_of(measurement) for measurement in measurements}
    saved = {source: _read_saved(source) for source in dict.fromkeys(sources.values()) if is_workload_file(source)}
    requests = {
        measurement: ProfileRequest(
            source=source,
            mode="inference" if measurement.mode == "inference" else "training",
            inputs=tuple(measurement.input.split()),
            attention=measurement.attention,
            half_attention=has_half_attention(measurement.torch),
            timeout_s=timeout_s,
        )
        for measurement, source in sources.items()
        if source not in saved
    }
    traced = trace_many(requests.values(), on_progress=on_progress)
    again = {
        measurement: replace(request, batch=measurement.batch)
        for measurement, request in requests.items()
        if not _holds_at(traced[request], measurement.batch)
    }
    requests |= again
    traced |= trace_many(again.values(), on_progress=on_progress)
    return {
        measurement: saved[source] if source in saved else traced[requests[measurement]]
        for measurement, source in sources.items()
    }


def has_half_attention(release: str) -> bool:
    """Return whether attention without a fused kernel stayed in half: until 2.5, torch did not compute it in fp32.

    Source: `_scaled_dot_product_attention_math` in ATen/native/transformers/attention.cpp. An empty release is today's.
    """
    return bool(release) and tuple(map(int, release.split("."))) < (2, 5)


def _read_saved(source: str) -> Workload | AdvisorError:
    try:
        return read_workload(Path(source))
    except AdvisorError as error:
        return error


def _holds_at(outcome: Outcome, batch: int) -> bool:
    return not isinstance(outcome, Workload) or outcome.batch_is_affine or outcome.batch == batch


def _prepared(measurement: Measurement, devices: _Devices, workloads: _Workloads) -> Run | FailedRow:
    family, device = family_of(source_of(measurement)), devices[measurement.device]
    if isinstance(device, UsageError):
        return FailedRow(measurement=measurement, device=measurement.device, family=family, reason=device.message)
    try:
        workload = workload_of(workloads[measurement])
    except AdvisorError as error:
        return _failed(measurement, device, family=family, reason=error.message)
    run = Run(measurement=measurement, family=family, device=device, workload=workload)
    wanted = "inference" if measurement.mode == "inference" else "training"
    if workload.mode != wanted:
        return run.failed(f"{measurement.model} is a saved step of {workload.mode}, not of {wanted}")
    if not _holds_at(workload, measurement.batch):
        return run.failed(f"the step can be predicted at batch {workload.batch} alone, not at {measurement.batch}")
    return run


def predict_runs(prepared: Iterable[Run | FailedRow], catalog: Catalog) -> list[PredictedRow | FailedRow]:
    """Return a row for each of `prepared`, in their order; failed rows stay as they are."""
    prepared = list(prepared)
    groups: dict[object, list[Run]] = {}  # runs of one step with the same settings are predicted together
    for run in prepared:
        if isinstance(run, Run):
            asked = run.measurement
            key = (id(run.workload), asked.mode, asked.precision, asked.layout, asked.compile)
            groups.setdefault(key, []).append(run)
    rows = {row.measurement: row for group in groups.values() for row in _predicted_or_failed(group, catalog)}
    return [rows[one.measurement] if isinstance(one, Run) else one for one in prepared]


def kernels_of(run: Run) -> tuple[Kernels, Precision]:
    """Return the kernels of a run at its batch size, and the precision that they run in.

    Raises ValueError if the device has no unit for the precision.
    """
    asked, device = run.measurement, run.device.device
    precision = resolve_precision(asked.precision, device)
    if precision is None:
        raise ValueError(f"{asked.file}:{asked.line}: {asked.device} does not run {asked.precision}")
    workload = _measured_part(run)
    counts = count_rows(
        workload,
        batches=np.array([float(asked.batch)]),
        width=computed_width(precision, workload, kind=device.kind),
        compile_mode=asked.compile,
    )
    return lower(counts, kind=device.kind, precision=precision, layout=asked.layout), precision


def _measured_part(run: Run) -> Workload:
    """Return the part of the step that was timed."""
    return without_optimizer(run.workload) if run.measurement.mode == "forward_backward" else run.workload


def _predicted_or_failed(runs: Sequence[Run], catalog: Catalog) -> Iterable[PredictedRow | FailedRow]:
    """Predict runs of one step; if a row of a saved workload cannot be evaluated, only these runs fail."""
    try:
        return list(_predicted(runs, catalog))
    except AdvisorError as error:
        return [run.failed(error.message) for run in runs]


def _predicted(runs: Sequence[Run], catalog: Catalog) -> Iterable[PredictedRow | FailedRow]:
    asked, workload = runs[0].measurement, _measured_part(runs[0])
    devices = {run.device.id: run.device.device for run in runs}
    without_own = [without_own_ratios(device) for device in devices.values()]
    batches = np.array(sorted({run.measurement.batch for run in runs}), dtype=np.intp)
    predictions = predict(
        workload,
        devices=(*devices.values(), *without_own),
        efficiencies=catalog.efficiencies,
        batches=batches,
        precision=asked.precision,
        layout=asked.layout,
        compile_mode=asked.compile,
    )
    roofline_s, flops = plain_roofline(
        workload,
        devices=tuple(devices.values()),
        precisions=predictions.precisions[: len(devices), 0].tolist(),
        batches=batches,
        compile_mode=asked.compile,
    )
    places = list(devices)
    for run in runs:
        place, batch = places.index(run.device.id), int(np.searchsorted(batches, run.measurement.batch))
        at, without_own_at = (place, batch), (place + len(devices), batch)
        if not 0 < predictions.step_s[at] < np.inf:
            yield run.failed(f"{run.device.id} has no unit for {asked.precision}, or no kernels for the step")
            continue
        yield PredictedRow(
            measurement=run.measurement,
            device=run.device.id,
            kind=run.device.device.kind,
            generation=run.device.device.generation,
            family=run.family,
            known=known_of(run.device.device, predictions.precisions[at], catalog),
            predicted_s=float(predictions.step_s[at]),
            low_s=float(predictions.step_low_s[at]),
            high_s=float(predictions.step_high_s[at]),
            without_own_s=float(predictions.step_s[without_own_at]) if has_own_figures(run.device.device) else None,
            roofline_s=float(roofline_s[at]),
            flops=float(flops[at]),
            usd_per_hour=run.device.usd_per_hour,
        )


def without_optimizer(workload: Workload) -> Workload:
    """Return the forward pass, loss and backward pass of a training step."""
    rows = tuple(row for row in workload.rows if row.phase != "optimizer")
    return replace(workload, rows=rows, optimizer=None)
