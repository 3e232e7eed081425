"""Fits one kind of device: measurements -> workloads -> kernels of every step -> coefficients -> efficiencies."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from fit_residuals import LeftOut, Spread, left_out, log_spreads, spreads

from advisor.answers.accuracy_score import step_of
from advisor.answers.measurement_file import read_measurements
from advisor.answers.validation import Run, kernels_of, prepare
from advisor.catalog.overlay import load_catalog
from advisor.fit.coefficients import (
    COMPUTING,
    GENERATION,
    GRADIENT_OF,
    coefficients_of,
    unlike_vendors,
    usual_generations,
)
from advisor.fit.sample import MeasuredStep, sample_of
from advisor.fit.solve import Fit
from advisor.predict.efficiency import precision_class
from advisor.predict.kernel_time import Kernels
from advisor.records.device import ANY, Device, DeviceKind, Efficiency, FamilyEfficiency
from advisor.records.measurement import Measurement
from advisor.records.prediction import FloatArray
from advisor.workload.trace_many import OnProgress

_TILES: Mapping[DeviceKind, tuple[float, float]] = {"gpu": (128.0, 128.0), "cpu": (32.0, 64.0)}
"""Rows and columns of a matmul's tile: the most common one of cuBLAS, and oneDNN's blocks of pixels x channels."""
_TRUST: Mapping[tuple[str, str], float] = {
    ("ryujaehun", "fp32"): 0.3,
    ("ryujaehun", "tf32"): 0.02,
    ("ryujaehun", "half"): 0.02,
    ("neusight_ops", "fp32"): 0.15,
    ("vidur_ops", "half"): 0.15,
    ("matmuls", "fp32"): 0.07,
    ("matmuls", "tf32"): 0.07,
    ("matmuls", "half"): 0.07,
    ("calibration_steps", "fp32"): 0.4,
    ("calibration_steps", "half"): 0.4,
}
"""Weight of rows by file and precision class. ryujaehun: two hosts with the same GPU differ by 29 %, and its cuDNN of
2020 ran 16-bit depthwise and backward convolutions several times slower than today's. Single operators count less than
steps. The calibration steps ran on the same CPU as the project's other steps, and with full weight that CPU would
dominate. The matmuls that owners measured on 29 GPUs would outweigh NeuSight's steps: with 0.15 instead of 0.07, an
A100 left out of the fit is off by 5 % instead of 4 %."""
_WITH_COPY = frozenset({"ryujaehun"})
"""Files whose times include the copy of the inputs to the device."""
OPERATORS = frozenset({"neusight_ops", "vidur_ops", "matmuls"})
"""Files of single operators: they are fitted, but do not count for the spread of steps."""
_WITHOUT_HOST = frozenset({"vidur_ops", "vidur_engine", "matmuls"})
"""Files whose times exclude dispatch overhead: they are of kernels alone, or of many kernels in a row."""
_PRODUCTS = "matmuls"
"""The file of large matmuls on many GPUs; GPUs that appear in no other file are left out together, in one fit."""
_OTHER_VENDOR_LOG_SPREAD = 0.16
"""Additional spread of devices of a vendor without measurements: the root mean square difference of AMD's two GPU
generations from NVIDIA's, in compute throughput and bandwidth. Arm's CPUs were not measured."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """The fitted efficiencies of one kind of device, with the errors of every step."""

    efficiencies: tuple[Efficiency, ...]
    sustained: Mapping[str, tuple[float, float]]
    """Own compute ratio and own bandwidth ratio of each measured device."""
    steps: tuple[MeasuredStep, ...]
    left_out: LeftOut
    """Errors by fits without the step's device."""
    log_spreads: FloatArray
    """One standard deviation of each error, as the prediction states it; NaN for single operators."""


def measured_steps(
    files: Sequence[Path],
    *,
    wanted: Callable[[Measurement], bool],
    timeout_s: float,
    on_progress: OnProgress | None = None,
) -> list[MeasuredStep]:
    """Return every wanted step that can be traced, on its device with own ratios of 1."""
    steps = []
    for file in files:
        measurements = [measurement for measurement in read_measurements(file) if wanted(measurement)]
        steps += steps_of(measurements, table=file.stem, timeout_s=timeout_s, on_progress=on_progress)
    return steps


def steps_of(
    measurements: Sequence[Measurement], *, table: str, timeout_s: float, on_progress: OnProgress | None = None
) -> list[MeasuredStep]:
    """Return the steps of the measurements of one table that can be traced."""
    runs = prepare(measurements, load_catalog(), timeout_s=timeout_s, on_progress=on_progress)
    return [_measured_step(run, table=table) for run in runs if isinstance(run, Run)]


def _measured_step(run: Run, *, table: str) -> MeasuredStep:
    asked = run.measurement
    device = replace(run.device.device, id=run.device.id, sustained_compute_ratio=1.0, sustained_memory_ratio=1.0)
    kernels, precision = kernels_of(run)
    if table in _WITHOUT_HOST:
        kernels = replace(kernels, dispatches=np.zeros(1))
    return MeasuredStep(
        kernels=kernels,
        device=device,
        precision=precision_class(precision),
        is_nchw=asked.layout == "nchw",
        group=(table, device.id, asked.precision, asked.mode, asked.compile),
        job=step_of(asked),
        measured_s=asked.step_s,
        copied_bytes=_copied_bytes(kernels, is_half=precision == "fp16") if table in _WITH_COPY else 0.0,
        trust=_TRUST.get((table, precision_class(precision)), 1.0),
    )


def _copied_bytes(kernels: Kernels, *, is_half: bool) -> float:
    """Return the bytes of the inputs, in the dtype of the model."""
    return float(kernels.transfer_bytes[0]) * (0.5 if is_half else 1.0)


def template_of(kind: DeviceKind) -> Efficiency:
    """Return the efficiency that a fit starts from: the fixed tile sizes, and an ideal device otherwise."""
    rows, columns = _TILES[kind]
    return Efficiency(
        kind=kind,
        vendor=ANY,
        generation=ANY,
        precision=ANY,
        families={},
        dispatch_s=0.0,
        backward_dispatch_s=0.0,
        launch_s=0.0,
        device_log_spread=0.0,
        tile_rows=rows,
        tile_columns=columns,
        date="",
        source="",
    )


def fit_kind(steps: Sequence[MeasuredStep], *, kind: DeviceKind, date: str, sources: str) -> Fitted:
    """Fit every coefficient of one kind of device; the spreads come from fits without the device."""
    own = [step for step in steps if step.device.kind == kind]
    sample = sample_of(own)
    template = replace(template_of(kind), date=date, source=sources)
    fit = Fit(sample, coefficients_of(sample, kind=kind), template=template)
    logs = fit.solve(chosen=np.ones(len(own), dtype=np.bool_))
    left = left_out(fit, logs, together={device.id for device in sample.devices} - set(_devices_of(own)))
    whole = [index for index, step in enumerate(own) if step.group[0] not in OPERATORS]
    whole_steps = [own[index] for index in whole]
    left_of_whole = LeftOut(errors=left.errors[whole], host_shares=left.host_shares[whole])
    spread_of = spreads(whole_steps, left_of_whole)
    of_steps = np.full(len(own), np.nan)
    of_steps[whole] = log_spreads(whole_steps, left_of_whole, spread_of)
    return Fitted(
        efficiencies=_efficiencies(fit, logs, spread_of),
        sustained={
            device.id: (fit.value(logs, "device_compute", device.id), fit.value(logs, "device_memory", device.id))
            for device in sample.devices
        },
        steps=tuple(own),
        left_out=left,
        log_spreads=of_steps,
    )


def _devices_of(steps: Sequence[MeasuredStep]) -> dict[str, Device]:
    """Return the devices that have more rows than those of large matmuls, by id."""
    return {step.device.id: step.device for step in steps if step.group[0] != _PRODUCTS}


def _efficiencies(fit: Fit, logs: FloatArray, spread_of: Mapping[str, Spread]) -> tuple[Efficiency, ...]:
    """Return an efficiency per measured precision and generation, and the fallbacks.

    Each precision has a fallback for other vendors or generations; the fallback for other precisions is that of fp32.
    """
    steps, devices = fit.sample.steps, fit.sample.devices
    usual = usual_generations(devices)
    found = []
    for precision in fit.precisions:
        at_precision = [step for step in steps if step.precision == precision]
        for scope in _scopes(at_precision):
            used = [step for step in at_precision if scope.holds(step.device)]
            spread = spread_of[precision]
            found.append(
                replace(
                    fit.efficiency(logs, precision),
                    vendor=scope.vendor,
                    generation=scope.generation,
                    generation_compute_ratio=fit.mean(logs, "generation_compute", scope.means_of),
                    generation_memory_ratio=fit.mean(logs, "generation_memory", scope.means_of),
                    families=_families(fit, logs, precision, scope.generation, used, others=at_precision),
                    device_log_spread=float(
                        np.hypot(spread.device_log_spread, _between_log_spread(fit, logs, scope, usual=usual))
                    ),
                    workload_log_spread=spread.workload_log_spread,
                    backward_log_spread=spread.backward_log_spread,
                    compiled_log_spread=spread.compiled_log_spread,
                    host_log_spread=spread.host_log_spread,
                    other_vendor_log_spread=_OTHER_VENDOR_LOG_SPREAD if scope.is_of_all else 0.0,
                    fitted_vendors=tuple(sorted({step.device.vendor for step in used})) if scope.is_of_all else (),
                    fitted_on=tuple(sorted({step.device.id for step in used})),
                )
            )
    fallbacks = [one for one in found if one.generation == ANY and one.precision == "fp32"]
    return (*found, *(replace(one, precision=ANY) for one in fallbacks))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """The devices to which an efficiency applies, and the generations whose ratios it averages."""

    vendor: str = ANY
    generation: str = ANY
    means_of: tuple[str, ...] = ()

    @property
    def is_of_all(self) -> bool:
        return (self.vendor, self.generation) == (ANY, ANY)

    def holds(self, device: Device) -> bool:
        return self.vendor in (ANY, device.vendor) and self.generation in (ANY, device.generation)


def _scopes(steps: Sequence[MeasuredStep]) -> list[_Scope]:
    """Return one scope for all devices, one per vendor without usual generations, and one per generation.

    A generation with measurements of large matmuls only has no scope: it is predicted, and labelled, as unmeasured.
    """
    unlike = unlike_vendors([step.device for step in steps])
    generations = sorted({device.generation for device in _devices_of(steps).values()})
    return [
        _Scope(),
        *(_Scope(vendor=vendor, means_of=names) for vendor, names in sorted(unlike.items())),
        *(_Scope(generation=name, means_of=(name,)) for name in generations),
    ]


def _between_log_spread(fit: Fit, logs: FloatArray, scope: _Scope, *, usual: Sequence[str]) -> float:
    """Return the additional spread of unfitted generations: the spread among the fitted ones."""
    if scope.generation != ANY:
        return 0.0
    names = scope.means_of or usual
    if len(names) == 1:
        return _OTHER_VENDOR_LOG_SPREAD
    offsets = [[np.log(fit.value(logs, key, name)) for name in names] for key in GENERATION]
    return float(np.sqrt(np.mean(np.var(offsets, axis=1, ddof=1))))


def _families(
    fit: Fit,
    logs: FloatArray,
    precision: str,
    generation: str,
    used: Sequence[MeasuredStep],
    *,
    others: Sequence[MeasuredStep],
) -> dict[str, FamilyEfficiency]:
    """Return an entry for every family in the sample; a missing family is replaced at lookup.

    `used` are the steps on the generation, `others` those on all devices. The achieved share of peak at this precision
    is the same for all vendors. If only another vendor ran the family, with another library, its spread is that of an
    unmeasured family.
    """
    vendors = {step.device.vendor for step in used}
    counts = Counter(family for step in used for family in step.kernels.families)
    of_all = {family for step in others for family in step.kernels.families}
    of_vendor = {family for step in others if step.device.vendor in vendors for family in step.kernels.families}
    names = fit.sample.kernels.families
    unseen = float(np.std([np.log(fit.value(logs, "memory_ratio", name)) for name in names]))
    source = "fitted steps" if generation == ANY else f"fitted steps on {generation} and others"
    entries = {
        name: FamilyEfficiency(
            compute_ratio=fit.compute_ratio(logs, precision, name),
            memory_ratio=fit.value(logs, "memory_ratio", name),
            log_spread=0.0 if name in of_vendor else unseen,
            n=counts[name],
            source=source
            if name in counts
            else "fitted steps on others"
            if name in of_all
            else "no step of this precision; ratios of the others",
        )
        for name in names
        if name not in COMPUTING or name in of_all or GRADIENT_OF.get(name) in of_all
    }
    other = FamilyEfficiency(
        compute_ratio=1.0,
        memory_ratio=float(np.exp(np.median([np.log(one.memory_ratio) for one in entries.values()]))),
        log_spread=unseen,
        n=0,
        source="the median of the measured families",
    )
    return {**entries, ANY: other}
