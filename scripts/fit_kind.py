"""Fits one kind of device: measurements -> workloads -> kernels of every step -> coefficients -> efficiencies."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from fit_residuals import (
    Errors,
    Level,
    Spreads,
    added_spread,
    errors_of,
    left_out,
    left_out_log_spreads,
    log_spreads,
    spreads_from,
)
from shipped_fit import DEVICE, GENERATION, GRADIENT_OF, ShippedFit, coefficients_of, relatives_of

from advisor.answers.accuracy_score import step_of
from advisor.answers.measurement_file import read_measurements
from advisor.answers.validation import Run, kernels_of, prepare
from advisor.catalog.overlay import load_catalog
from advisor.fit.coefficients import COMPUTING
from advisor.fit.sample import MeasuredStep, sample_of
from advisor.predict.capability import without_own_ratios
from advisor.predict.efficiency import precision_class
from advisor.predict.kernel_time import DISPATCHED, Kernels
from advisor.records.device import ANY, Device, DeviceKind, Efficiency, FamilyEfficiency, Gpu
from advisor.records.measurement import Measurement
from advisor.records.prediction import FloatArray
from advisor.workload.trace_many import OnProgress

_TILES: Mapping[DeviceKind, tuple[float, float]] = {"gpu": (128.0, 128.0), "cpu": (32.0, 64.0)}
"""Rows and columns of a matmul's tile: the most common one of cuBLAS, and oneDNN's blocks of pixels x channels."""
_CPU_BACKWARD_S = 5e-6
"""Dispatch overhead of an operator in a CPU's backward pass: 2 us for a ReLU, 13 us for the three operators and two
gradients of a linear layer, on a Granite Rapids with torch 2.13. A fit ends at 20 to 30 us, where nothing else makes
small training steps longer, and then predicts operators alone twice too slow."""
_TRUST: Mapping[tuple[str, str], float] = {
    ("ryujaehun", "fp32"): 0.3,
    ("ryujaehun", "tf32"): 0.02,
    ("ryujaehun", "half"): 0.02,
    ("lamikr", "fp32"): 0.03,
    ("lamikr", "tf32"): 0.03,
    ("lamikr", "half"): 0.03,
    ("neusight_ops", "fp32"): 0.15,
    ("vidur_ops", "half"): 0.15,
    ("matmuls", "fp32"): 0.07,
    ("matmuls", "tf32"): 0.07,
    ("matmuls", "half"): 0.07,
    ("aiconfigurator_matmuls", "half"): 0.07,
    ("calibration_steps", "fp32"): 0.4,
    ("calibration_steps", "half"): 0.4,
    ("shared_cpu_steps", "fp32"): 0.4,
    ("shared_cpu_steps", "half"): 0.4,
    ("inductor_dashboard", "fp32"): 0.4,
    ("inductor_dashboard", "half"): 0.4,
    ("steps", "fp32"): 0.3,
    ("steps", "half"): 0.3,
}
"""Weight of rows by file and precision class. ryujaehun: two hosts with the same GPU differ by 29 %, and its cuDNN of
2020 ran 16-bit depthwise and backward convolutions several times slower than today's. lamikr: consumer cards of another
vendor and laptops, with the same program; with 0.3 they move what NVIDIA's GPUs share, and an A100 left out is off by
12 % instead of 5 %. Single operators count less than steps. The calibration steps ran on the same CPU as the project's
other steps, and with full weight that CPU would dominate. Shared CPUs: the same step takes 10 to 40 % more or less time
a quarter of an hour later. Intel's dashboard: years and releases of torch lie between its steps. The matmuls that
owners measured on 29 GPUs would outweigh NeuSight's steps: with 0.15 instead of 0.07, an A100 left out of the fit is
off by 5 % instead of 4 %."""
_WITH_COPY = frozenset({"ryujaehun", "lamikr"})
"""Files whose times include the copy of the inputs to the device."""
OPERATORS = frozenset({"neusight_ops", "vidur_ops", "matmuls", "aiconfigurator_matmuls"})
"""Files of single operators: they are fitted, but do not count for the spread of steps."""
_WITHOUT_HOST = frozenset({"vidur_ops", "vidur_engine", "matmuls", "aiconfigurator_matmuls"})
"""Files whose times exclude dispatch overhead: they are of kernels alone, or of many kernels in a row."""
_WITH_KEPT_MEMORY = frozenset({"cpu_steps", "shared_cpu_steps", "calibration_steps"})
"""Files of steps that ran with `keep_freed_memory`, so without page faults."""
_UNITS: Mapping[str, frozenset[str]] = {
    "fp32": frozenset({"fp32"}),
    "tf32": frozenset({"tf32"}),
    "half": frozenset({"fp16", "bf16"}),
}
"""The units of a device that compute in each precision class."""
_PRODUCTS = frozenset({"matmuls", "aiconfigurator_matmuls"})
"""The files of matmuls alone; a generation in no other file is predicted, and labelled, as unmeasured."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """The fitted efficiencies of one kind of device, with the errors of every step."""

    efficiencies: tuple[Efficiency, ...]
    sustained: Mapping[str, tuple[float, float]]
    """Own compute ratio and own bandwidth ratio of each measured device."""
    steps: tuple[MeasuredStep, ...]
    known: Errors
    """Errors by the fit itself."""
    known_log_spreads: FloatArray
    """One standard deviation of each of these errors, as the prediction states it."""
    left_out: Mapping[Level, Errors]
    """Errors by fits without the step's device, generation or vendor."""
    log_spreads: Mapping[Level, FloatArray]
    """One standard deviation of each of these errors, as those of the other devices, generations or vendors give it."""
    unseen: Mapping[Level, float]
    """The spread that each level's offset adds to that of a known device."""
    at_bounds: tuple[tuple[str, ...], ...]
    """Coefficients that end at one of their bounds."""
    shared_count: int
    """Coefficients that hold for more than one device or generation."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Checked:
    """The errors of a fit that has not seen the lockbox, named as in `Fitted`, and the spreads that follow."""

    steps: tuple[MeasuredStep, ...]
    known: Errors
    known_log_spreads: FloatArray
    left_out: Mapping[Level, Errors]
    log_spreads: Mapping[Level, FloatArray]
    spreads: Spreads


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
    device = replace(without_own_ratios(run.device.device), id=run.device.id)
    kernels, precision = kernels_of(run)
    if table in _WITHOUT_HOST:
        nothing: dict[str, Any] = dict.fromkeys(DISPATCHED, np.zeros(1))
        kernels = replace(kernels, **nothing)
    if table in _WITH_KEPT_MEMORY:
        kernels = replace(kernels, mapped_bytes=np.zeros_like(kernels.mapped_bytes))
    return MeasuredStep(
        kernels=kernels,
        device=device,
        precision=precision_class(precision),
        group=(table, device.id, asked.precision, asked.mode, asked.compile),
        job=step_of(asked),
        model=asked.model,
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
        backward_dispatch_s=_CPU_BACKWARD_S if kind == "cpu" else 0.0,
        launch_s=0.0,
        device_log_spread=0.0,
        tile_rows=rows,
        tile_columns=columns,
        wave_ratio=1.0,  # of CPUs: all cores wait for the last one
        date="",
        source="",
    )


def fit_kind(
    steps: Sequence[MeasuredStep], *, shipped: Sequence[MeasuredStep], kind: DeviceKind, date: str, sources: str
) -> Fitted:
    """Fit every coefficient of one kind of device; the spreads come from fits without the device and its relatives.

    All errors and spreads are those of `steps`, of which some have no weight; the coefficients are fitted to `shipped`,
    which are the same steps with their weight.
    """
    template = replace(template_of(kind), date=date, source=sources)
    checked = _checked([step for step in steps if step.device.kind == kind], template)
    fit, logs = _solved([step for step in shipped if step.device.kind == kind], template)
    return Fitted(
        efficiencies=_efficiencies(fit, logs, checked.spreads),
        sustained={
            device.id: (fit.value(logs, "device_compute", device.id), fit.value(logs, "device_memory", device.id))
            for device in fit.sample.devices
        },
        steps=checked.steps,
        known=checked.known,
        known_log_spreads=checked.known_log_spreads,
        left_out=checked.left_out,
        log_spreads=checked.log_spreads,
        unseen=checked.spreads.unseen,
        at_bounds=fit.at_bounds(logs),
        shared_count=sum(one.name[0] not in (*GENERATION, *DEVICE, "host") for one in fit.coefficients),
    )


def _checked(steps: Sequence[MeasuredStep], template: Efficiency) -> _Checked:
    """Return the errors of a fit of these steps, and the spreads of those that have weight."""
    fit, logs = _solved(steps, template)
    is_whole = np.array([step.group[0] not in OPERATORS and step.trust > 0 for step in steps])
    known = errors_of(fit, logs)
    left = {level: left_out(fit, logs, by=level) for level in get_args(Level)}
    found = spreads_from(steps, known, left, is_whole)
    is_seen = np.isin([step.device.id for step in steps], [step.device.id for step in steps if step.trust > 0])
    unseen = np.where(is_seen, 0.0, found.unseen["device"])
    return _Checked(
        steps=tuple(steps),
        known=known,
        known_log_spreads=log_spreads(steps, known, found.known, unseen=unseen),
        left_out=left,
        log_spreads={level: left_out_log_spreads(steps, known, left, is_whole, by=level) for level in left},
        spreads=found,
    )


def _solved(steps: Sequence[MeasuredStep], template: Efficiency) -> tuple[ShippedFit, FloatArray]:
    """Return the fit of these steps, and the logarithms of its coefficients."""
    sample = sample_of(steps)
    fit = ShippedFit(sample, coefficients_of(sample, kind=template.kind), template=template)
    return fit, fit.solve(chosen=np.ones(len(steps), dtype=np.bool_))


def _devices_of(steps: Sequence[MeasuredStep]) -> dict[str, Device]:
    """Return the devices that have more rows than those of matmuls, by id."""
    return {step.device.id: step.device for step in steps if step.group[0] not in _PRODUCTS}


def _efficiencies(fit: ShippedFit, logs: FloatArray, spreads: Spreads) -> tuple[Efficiency, ...]:
    """Return an efficiency per measured precision and generation, and the fallbacks.

    Each precision has a fallback for other vendors or generations; the fallback for other precisions is that of fp32.
    """
    found = []
    scopes = _scopes(fit.sample.steps)
    gpus = tuple(load_catalog().gpus.values())
    for precision in fit.precisions:
        at_precision = [step for step in fit.sample.steps if step.precision == precision]
        for scope in scopes:
            used = [step for step in fit.sample.steps if scope.holds(step.device)]
            if not any(
                step.precision == precision or _UNITS[precision] & {*step.device.peak_flops_per_s} for step in used
            ):
                continue
            seen = tuple(
                sorted({one.device.id for one in used if one.precision == precision and one.group[0] not in OPERATORS})
            )
            own = spreads.unseen["device" if seen and scope.generation != ANY else "generation"]
            of_vendor = added_spread(spreads.unseen["vendor"], known=own) if scope.is_of_all else 0.0
            plain = fit.efficiency(logs, precision)
            types = {gpu.memory_type for gpu in gpus if scope.holds(gpu)}
            found.append(
                replace(
                    plain,
                    memory_type_ratios={key: one for key, one in plain.memory_type_ratios.items() if key in types},
                    vendor=scope.vendor,
                    generation=scope.generation,
                    generation_compute_ratio=fit.mean(logs, "generation_compute", scope.means_of),
                    generation_memory_ratio=fit.mean(logs, "generation_memory", scope.means_of),
                    families=_families(fit, logs, precision, scope, at_precision),
                    unseen_log_spread=own,
                    **asdict(spreads.known[precision]),
                    other_vendor_log_spread=of_vendor,
                    fitted_vendors=tuple(sorted({step.device.vendor for step in used})) if scope.is_of_all else (),
                    fitted_on=seen,
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

    def holds(self, device: Device | Gpu) -> bool:
        return self.vendor in (ANY, device.vendor) and self.generation in (ANY, device.generation)


def _scopes(steps: Sequence[MeasuredStep]) -> list[_Scope]:
    """Return one scope for all devices, one per vendor without usual generations, and one per generation.

    A generation with measurements of large matmuls only has no scope: it is predicted, and labelled, as unmeasured.
    """
    devices = [*_devices_of(steps).values()]
    usual = relatives_of(ANY, devices)
    others = {one.vendor for one in devices} - {one.vendor for one in devices if one.generation in usual}
    return [
        _Scope(means_of=usual),
        *(_Scope(vendor=vendor, means_of=relatives_of(vendor, devices)) for vendor in sorted(others)),
        *(_Scope(generation=name, means_of=(name,)) for name in sorted({one.generation for one in devices})),
    ]


def _families(
    fit: ShippedFit, logs: FloatArray, precision: str, scope: _Scope, steps: Sequence[MeasuredStep]
) -> dict[str, FamilyEfficiency]:
    """Return an entry for every family in the sample; a missing family is replaced at lookup.

    `steps` are those at this precision. The achieved share of peak is the same for all vendors. If only another vendor
    ran the family, with another library, its spread is that of an unmeasured family.
    """
    used = [step for step in steps if scope.holds(step.device)]
    vendors = {step.device.vendor for step in fit.sample.steps if scope.holds(step.device)}
    counts = Counter(family for step in used for family in step.kernels.families)
    of_all = {family for step in steps for family in step.kernels.families}
    of_vendor = {family for step in steps if step.device.vendor in vendors for family in step.kernels.families}
    names = fit.sample.kernels.families
    unseen = float(np.std([np.log(fit.value(logs, "memory_ratio", name)) for name in names]))
    source = "steps" if scope.generation == ANY else f"steps on {scope.generation} and others"
    entries = {
        name: FamilyEfficiency(
            compute_ratio=fit.compute_ratio(logs, precision, name),
            memory_ratio=fit.value(logs, "memory_ratio", name),
            log_spread=0.0 if name in of_vendor else unseen,
            n=counts[name],
            source=source if name in counts else "steps on others" if name in of_all else "other precisions",
        )
        for name in names
        if name not in COMPUTING or name in of_all or GRADIENT_OF.get(name) in of_all
    }
    other = FamilyEfficiency(
        compute_ratio=fit.compute_ratio(logs, precision, ANY),
        memory_ratio=float(np.exp(np.median([np.log(one.memory_ratio) for one in entries.values()]))),
        log_spread=unseen,
        n=0,
        source="the median of the measured families",
    )
    return {**entries, ANY: other}
