"""Fitting on one page: measurements -> workloads -> kernels of every step -> coefficients -> efficiency files."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from advisor.answers.accuracy_score import step_of
from advisor.answers.measurement_file import read_measurements
from advisor.answers.validation import Run, kernels_of, prepare
from advisor.catalog.load import load_catalog
from advisor.fit.coefficients import (
    COMPUTING,
    GENERATION,
    GRADIENT_OF,
    coefficients_of,
    unlike_vendors,
    usual_generations,
)
from advisor.fit.engine_fit import fitted_kernels, kernel_s, with_engine_kernels
from advisor.fit.residuals import LeftOut, Spread, left_out, log_spreads, spreads
from advisor.fit.sample import MeasuredStep, sample_of
from advisor.fit.solve import Fit
from advisor.predict.efficiency import efficiency_of, precision_class
from advisor.predict.lowering import Kernels
from advisor.records.device import ANY, Device, DeviceKind, Efficiency, FamilyEfficiency
from advisor.records.measurement import Measurement
from advisor.records.prediction import FloatArray
from advisor.workload.trace_many import OnProgress

_TILES: Mapping[DeviceKind, tuple[float, float]] = {"gpu": (128.0, 128.0), "cpu": (32.0, 64.0)}
"""Rows and columns of a product's tile: the most usual of cuBLAS, and oneDNN's blocks of pixels x channels."""
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
"""By file and class of precision. ryujaehun: two hosts with the same GPU differ by 29 %, and its cuDNN of 2020 ran
depthwise and backward convolutions in half several times slower than today's. Single operators are no steps. The steps
that calibrations are held to ran on the CPU of the project's other steps, which would speak for all CPUs with them.
Owners' products on 29 GPUs would outweigh NeuSight's steps: with 0.15 an A100 left out is off by 5 %, not 4."""
_WITH_COPY = frozenset({"ryujaehun"})
"""Files whose times hold the copy of the inputs to the device."""
OPERATORS = frozenset({"neusight_ops", "vidur_ops", "matmuls"})
"""Files of single operators: fitted, but their errors are not those of steps."""
_WITHOUT_HOST = frozenset({"vidur_ops", "vidur_engine", "matmuls"})
"""Files whose times are those of kernels alone, or of many in a row."""
_PRODUCTS = "matmuls"
"""The file of large products on many GPUs; those it alone tells of are left out of one fit together."""
_OTHER_VENDOR_LOG_SPREAD = 0.16
"""Of devices of a vendor that no fit has seen: the root of the mean square of what AMD's two generations of GPUs differ
by from NVIDIA's, in compute and in bandwidth. Of Arm's CPUs nothing was measured."""
_ENGINE_GPU = "a100-sxm4-80gb"
"""Where an engine's kernels are fitted: its memory is fast enough to show what cores move at most, an A40's is not."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """The efficiencies of one kind of device, and log(measured / predicted) on devices left out, by step.

    `sustained` are the two figures that each measured device has of its own: of its compute and of its bandwidth.
    `log_spreads` is one standard deviation of each error, as its prediction states it; single operators have none.
    """

    efficiencies: tuple[Efficiency, ...]
    sustained: Mapping[str, tuple[float, float]]
    steps: tuple[MeasuredStep, ...]
    left_out: LeftOut
    log_spreads: FloatArray


def measured_steps(
    files: Sequence[Path],
    *,
    wanted: Callable[[Measurement], bool],
    timeout_s: float,
    on_progress: OnProgress | None = None,
) -> list[MeasuredStep]:
    """The kernels of every wanted step that can be traced, on its own device without figures of its own."""
    steps = []
    for file in files:
        measurements = [measurement for measurement in read_measurements(file) if wanted(measurement)]
        steps += steps_of(measurements, table=file.stem, timeout_s=timeout_s, on_progress=on_progress)
    return steps


def steps_of(
    measurements: Sequence[Measurement], *, table: str, timeout_s: float, on_progress: OnProgress | None = None
) -> list[MeasuredStep]:
    """The same of the measurements of one table."""
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
    """The bytes of the inputs, in the dtype of the model."""
    return float(kernels.transfer_bytes[0]) * (0.5 if is_half else 1.0)


def template_of(kind: DeviceKind) -> Efficiency:
    """What no fit changes: the tiles; all else is that of an ideal device."""
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
    """Fit every coefficient of one kind of device; the spreads come from fits that have not seen the device."""
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
    """Those of which more was timed than large products, by their ids."""
    return {step.device.id: step.device for step in steps if step.group[0] != _PRODUCTS}


def _efficiencies(fit: Fit, logs: FloatArray, spread_of: Mapping[str, Spread]) -> tuple[Efficiency, ...]:
    """One for every precision and generation that was measured, and one of each precision for all others. The fallback
    of all precisions is that of fp32."""
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
    """Which devices an efficiency is for, and the generations that its ratios are the mean of."""

    vendor: str = ANY
    generation: str = ANY
    means_of: tuple[str, ...] = ()

    @property
    def is_of_all(self) -> bool:
        return (self.vendor, self.generation) == (ANY, ANY)

    def holds(self, device: Device) -> bool:
        return self.vendor in (ANY, device.vendor) and self.generation in (ANY, device.generation)


def _scopes(steps: Sequence[MeasuredStep]) -> list[_Scope]:
    """One for all, one for each vendor whose generations are all unlike the usual, one for each generation.

    A generation of which large products alone were timed has none: it is predicted as any other, and says so.
    """
    unlike = unlike_vendors([step.device for step in steps])
    generations = sorted({device.generation for device in _devices_of(steps).values()})
    return [
        _Scope(),
        *(_Scope(vendor=vendor, means_of=names) for vendor, names in sorted(unlike.items())),
        *(_Scope(generation=name, means_of=(name,)) for name in generations),
    ]


def _between_log_spread(fit: Fit, logs: FloatArray, scope: _Scope, *, usual: Sequence[str]) -> float:
    """How much further off devices of a generation are that was not fitted: what those that were differ in."""
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
    """Every family that the sample holds; its stand-ins are found when it is looked up.

    `used` are the steps on the generation, `others` those on all: a product keeps the share of its peak that was fitted
    at this precision, whoever ran it. Where that was another vendor, whose library is another, it is as uncertain as a
    family that nobody measured.
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


def with_fitted_engine(efficiencies: Sequence[Efficiency], steps: Sequence[MeasuredStep]) -> tuple[Efficiency, ...]:
    """The efficiencies of GPUs with what an engine's own kernels reach, fitted on the steps of one of two GPUs.

    Their spread is that of the other's steps; where none was measured it is that of a family which nobody knows.
    """
    fitted = [step for step in steps if step.device.id == _ENGINE_GPU]
    others = [step for step in steps if step.device.id != _ENGINE_GPU]
    device = fitted[0].device
    base = efficiency_of(device, precision="fp16", efficiencies=efficiencies)
    kernels = fitted_kernels(fitted, base)
    source = f"kernels of vLLM on {device.id}"
    bare = with_engine_kernels(base, kernels, log_spread=0.0, n=0, source=source)
    errors = np.log([step.measured_s for step in others]) - np.log(kernel_s(others, bare))
    found = []
    for one in efficiencies:
        is_measured = one.precision == "half" and one.generation in (ANY, device.generation)
        spread = float(np.sqrt(np.mean(errors**2))) if is_measured else one.families[ANY].log_spread
        n = len(fitted) if is_measured else 0
        entered = with_engine_kernels(one, kernels, log_spread=spread, n=n, source=source)
        found.append(entered if one.kind == "gpu" else one)
    return tuple(found)
