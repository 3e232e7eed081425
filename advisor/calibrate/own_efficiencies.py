"""Fits the efficiencies of one device to the operators timed on it, starting from the shipped ones."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.fit.coefficients import BY_PRECISION, COMPUTING, Coefficient
from advisor.fit.sample import MeasuredStep, Sample, sample_of
from advisor.fit.solve import Fit
from advisor.predict.capability import without_own_ratios
from advisor.predict.efficiency import efficiency_of, family_efficiency, precision_class
from advisor.predict.lowering import lower
from advisor.predict.precision import computed_width
from advisor.predict.row_work import count_rows
from advisor.records.calibration import NET, TIMED_HERE, TimedOperator
from advisor.records.device import Device, Efficiency, FamilyEfficiency, Precision, Prior
from advisor.records.prediction import FloatArray
from advisor.records.workload import Workload
from advisor.workload.file import workload_from_json

_SCALARS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "cpu": {
        "launch_s": (1e-7, 3e-5),
        "library_s": (1e-6, 5e-4),
        "overlap_ratio": (0.2, 1.0),
        "wave_ratio": (0.02, 1.0),
        "winograd_speedup": (1.0, 2.25),
        "cache_kept_ratio": (0.02, 1.0),
        "dispatch_s": (5e-7, 5e-5),
    },
    "gpu": {
        "launch_s": (5e-7, 2e-5),
        "overlap_ratio": (0.2, 1.0),
        "wave_ratio": (0.02, 1.0),
        "winograd_speedup": (1.0, 2.25),
        "nchw_transposed_ratio": (0.02, 1.0),
        "cache_kept_ratio": (0.02, 1.0),
        "dispatch_s": (1e-6, 2e-4),
        "backward_dispatch_s": (1e-6, 2e-4),
    },
}
"""Coefficients shared by all kernels of a device, with bounds. The list leaves out coefficients that timings on one
device cannot determine; they stay as shipped."""
WHOLE_STEPS = "whole steps"
"""The `Efficiency.generation` of the start of a calibration, which is fitted on steps of whole nets on one device."""
_HOST_TIMES = ("launch_s", "dispatch_s", "backward_dispatch_s", "compiled_dispatch_s")
_HOST_RATIO, _COMPUTE_RATIO, _MEMORY_RATIO = "host_ratio", "device_compute_ratio", "device_memory_ratio"
"""This device relative to the one of the start: the times of launches and dispatches, the compute throughput by
precision, and all bandwidths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sigmas:
    """Widths of the priors of each kind of coefficient, as standard deviations of their logarithms."""

    device: float | None
    """For the ratios of this device to the one of the start; None: there are no such ratios."""
    scalar: float
    compute: float
    memory: float
    pace: float = 0.0
    """The least of the machine's pace, which differs from day to day even if timings hardly scatter."""


_FROM_SHIPPED = Sigmas(device=None, scalar=0.5, compute=1.0, memory=1.0)
"""Wide priors: the timed operators decide."""
_FROM_WHOLE_STEPS = Sigmas(device=0.2, scalar=0.02, compute=0.08, memory=0.08, pace=0.1)
"""Narrow priors: operators determine how fast this device is, and nets how fast the families are relative to each
other. docs/internals/experiments.md lists what was tried, including datasheets that are wrong by a factor of two."""
_PACE_RATIO = "pace_ratio"
"""How much slower than usual the machine was during the calibration; it applies to all its operators and to no later
step."""
_PACE_PER_NOISE = 1.0
"""Standard deviation of the pace relative to that of a single timing. Six calibrations in a row on a machine with other
load gave 0.08 over 0.12, but calibrations on different days differ more. The pace is limited to one standard deviation,
so that a device unlike its datasheet is still recognized."""
_UNSEEN_LOG_SIGMA = 1.0
"""Width of the prior of a family for which the start has no data."""
_RATIO_BOUNDS = (0.005, 2.5)
"""The upper bound is above 1 because a datasheet can understate: a clock above the rated one, or bandwidth that
neighbors leave unused."""
_RAMP_BOUNDS = (0.2, 128.0)
_STEPS = 15
"""Steps of the solver; more change no coefficient by a percent."""
_NET_TRUST = 3.0
"""Weight of small nets: like large nets, and unlike repeated operators, they do not run from the nearest caches."""
_SHORT_S, _SHORT_TRUST = 1e-4, 0.3
"""Weight of short operators: repeated on the same small tensor, they run faster than in any net."""
STEP_LOG_SPREAD = 0.15
"""Spread of the errors of steps after a calibration: 90 % of the errors lie within 1.645 of it; four runs of 246 steps
gave 0.14 to 0.16 (docs/internals/experiments.md). Up to 9 % depends on the minute of the calibration. The errors of a
CPU's steps do not carry over to other devices (`scripts/anchor_table.py`), so the spread is the device's own."""


class _OwnFit(Fit):
    """A fit with a compute ratio for every family; a streaming family has one ratio for all precisions."""

    keyed: Mapping[str, tuple[str, ...]] = {
        **Fit.keyed,
        "compute_ratio": ("precision", "family"),
        "streaming_compute_ratio": ("family",),
        **dict.fromkeys((_HOST_RATIO, _MEMORY_RATIO, _PACE_RATIO), ()),
        _COMPUTE_RATIO: ("precision",),
    }

    def value(self, logs: FloatArray, *name: str) -> float:
        """Return the value of a coefficient, multiplied by the ratio of this device if it has one."""
        own = super().value(logs, *name)
        if name[0] in _HOST_TIMES:
            return own * super().value(logs, _HOST_RATIO)
        return own * super().value(logs, _MEMORY_RATIO) if name[0] == "memory_ratio" else own

    def _total(self, logs: FloatArray, family_s: Mapping[str, FloatArray]) -> FloatArray:
        total: FloatArray = super()._total(logs, family_s) * self.value(logs, _PACE_RATIO)
        return total

    def compute_ratio(self, logs: FloatArray, precision: str, family: str) -> float:
        """Return a family's share of its unit's peak; a streaming family uses the device's fp32 ratio."""
        name = ("compute_ratio", precision, family) if family in COMPUTING else ("streaming_compute_ratio", family)
        return self.value(logs, *name) * self.device_compute_ratio(logs, precision, family)

    def device_compute_ratio(self, logs: FloatArray, precision: str, family: str) -> float:
        """Return the compute throughput of this device relative to that of the start."""
        return self.value(logs, _COMPUTE_RATIO, precision if family in COMPUTING else "fp32")


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCalibration:
    """The result of a calibration's fit."""

    efficiencies: tuple[Efficiency, ...]
    """One per precision class."""
    median_ape: float
    """Median of |fitted / measured - 1| over the operators."""


def fit_calibration(
    operators: Sequence[TimedOperator],
    device: Device,
    shipped: Sequence[Efficiency],
    *,
    precisions: Sequence[Precision],
    noise_log: float,
    date: str,
) -> FittedCalibration:
    """Fit the coefficients that the operators determine, starting from `shipped`; the others stay unchanged.

    There is an efficiency for each of `precisions`, even if time ran out before any of its operators. An operator takes
    longer in a net than in a loop, so its time is divided by the ratio found on the machine of the start. Raises
    ValueError if the start has no ratio for it.

    `noise_log` is one standard deviation of a timing, of which all operators share a part, the machine's pace. The
    spread of steps after a calibration, widened by the pace of the calibration and by that of the step, replaces the
    spreads of device, workload, host and backward.
    """
    starts = _starts(device, shipped, precisions=precisions)
    sigmas = _FROM_WHOLE_STEPS if starts else _FROM_SHIPPED
    noise_log_sigma = _PACE_PER_NOISE * noise_log

    def in_nets_s(operator: TimedOperator) -> float:
        if not starts:
            return operator.step_s
        ratio = starts[precision_class(operator.precision)].operator_ratios.get(operator_key(operator))
        if ratio is None:
            raise ValueError(
                f"no operator_ratio for the probe {operator_key(operator)!r} at {operator.precision}: time it with "
                "scripts/check_calibration.py on the machine of the start, then run scripts/fit_calibration_start.py"
            )
        return operator.step_s / ratio

    return fit_steps(
        [operator_step(one, device, step_s=in_nets_s(one), trust=_trust(one)) for one in operators],
        device,
        shipped,
        precisions=precisions,
        starts=starts,
        sigmas=sigmas,
        pace_log_sigma=max(noise_log_sigma, sigmas.pace),
        # The machine's pace differs from the usual one during the calibration, and again during the step.
        spread=math.hypot(STEP_LOG_SPREAD, noise_log_sigma, noise_log_sigma),
        date=date,
    )


def _starts(
    device: Device, shipped: Sequence[Efficiency], *, precisions: Sequence[Precision]
) -> Mapping[str, Efficiency]:
    """Return the efficiencies fitted on whole steps, by precision class; empty unless all classes exist."""
    found = {one.precision: one for one in shipped if one.kind == device.kind and one.generation == WHOLE_STEPS}
    wanted = dict.fromkeys(precision_class(precision) for precision in precisions)
    return {precision: found[precision] for precision in wanted} if set(wanted) <= set(found) else {}


def whole_step(
    workload: Workload, device: Device, *, precision: Precision, batch: int, step_s: float, trust: float = 1.0
) -> MeasuredStep:
    """Return a step timed on the device, in the form that the fit takes."""
    width = computed_width(precision, workload, kind=device.kind)
    counts = count_rows(workload, batches=np.array([float(batch)]), width=width)
    return MeasuredStep(
        kernels=lower(counts, kind=device.kind, precision=precision),
        device=without_own_ratios(device),
        precision=precision_class(precision),
        group=(workload.name, precision),
        measured_s=step_s,
        trust=trust,
    )


def operator_step(operator: TimedOperator, device: Device, *, step_s: float, trust: float = 1.0) -> MeasuredStep:
    """Return a timed operator, which took `step_s`, in the form that the fit takes."""
    return whole_step(
        workload_from_json(operator.workload, where=operator.name),
        device,
        precision=operator.precision,
        batch=operator.batch,
        step_s=step_s,
        trust=trust,
    )


def operator_key(operator: TimedOperator) -> str:
    """Return the name of the operator in `Efficiency.operator_ratios`."""
    return f"{operator.name}, batch {operator.batch}"


def fit_steps(
    steps: Sequence[MeasuredStep],
    device: Device,
    shipped: Sequence[Efficiency],
    *,
    precisions: Sequence[Precision],
    starts: Mapping[str, Efficiency],
    sigmas: Sigmas,
    spread: float,
    date: str,
    pace_log_sigma: float = 0.0,
) -> FittedCalibration:
    """Fit the coefficients that the steps determine, from `starts` or else from the shipped ones.

    `spread` becomes the device's spread; with `pace_log_sigma` the machine's pace while it was timed is fitted too.
    """
    sample = sample_of(steps)
    bases = {
        precision_class(precision): efficiency_of(device, precision=precision, efficiencies=shipped)
        for precision in precisions
    }
    first = next(iter(bases.values()))
    template = replace(
        first,
        device=device.id,
        generation_compute_ratio=first.generation_compute_ratio * device.sustained_compute_ratio,
        generation_memory_ratio=first.generation_memory_ratio * device.sustained_memory_ratio,
    )
    coefficients = [*_coefficients(sample, starts or bases, device, sigmas=sigmas)]
    if pace_log_sigma > 0:
        slowest = float(np.exp(pace_log_sigma))
        coefficients.append(_coefficient((_PACE_RATIO,), 1.0, (1 / slowest, slowest), pace_log_sigma))
    fit = _OwnFit(sample, tuple(coefficients), template=template)
    logs = fit.solve(chosen=np.ones(len(steps), dtype=np.bool_), steps=_STEPS)
    return FittedCalibration(
        efficiencies=tuple(
            _efficiency(
                fit,
                logs,
                precision,
                base,
                untimed=starts[precision].families if starts else {},
                device=device,
                spread=spread,
                date=date,
            )
            for precision, base in bases.items()
        ),
        median_ape=float(np.median(np.abs(fit.seconds(logs) / sample.measured_s - 1))),
    )


def _trust(operator: TimedOperator) -> float:
    if operator.name.startswith(NET):
        return _NET_TRUST
    return _SHORT_TRUST if operator.step_s < _SHORT_S else 1.0


def _coefficients(
    sample: Sample, starts: Mapping[str, Efficiency], device: Device, *, sigmas: Sigmas
) -> Iterator[Coefficient]:
    """Yield every coefficient that the sample depends on, starting at its value for the precision."""
    families = sample.kernels.families
    first = next(iter(starts.values()))
    if sigmas.device is not None:
        for of_device in ((_HOST_RATIO,), (_MEMORY_RATIO,), *((_COMPUTE_RATIO, precision) for precision in starts)):
            yield _coefficient(of_device, 1.0, _RATIO_BOUNDS, sigmas.device)
    for name, bounds in _SCALARS[device.kind].items():
        yield _coefficient((name,), getattr(first, name), bounds, sigmas.scalar)
    for precision, start in starts.items():
        for name in BY_PRECISION:
            if getattr(start, name):  # CPUs have no `edge_ramp`
                yield _coefficient((name, precision), getattr(start, name), _RAMP_BOUNDS, sigmas.scalar)
        for family in families:
            if family in COMPUTING:
                entry = family_efficiency(start, family)
                name_of, sigma = ("compute_ratio", precision, family), sigmas.compute if entry.n else _UNSEEN_LOG_SIGMA
                yield _coefficient(name_of, entry.compute_ratio, _RATIO_BOUNDS, sigma)
    for family in families:
        entry = family_efficiency(first, family)
        sigma = sigmas.memory if entry.n else _UNSEEN_LOG_SIGMA
        yield _coefficient(("memory_ratio", family), entry.memory_ratio, _RATIO_BOUNDS, sigma)
        if family not in COMPUTING:
            of_family = ("streaming_compute_ratio", family)
            yield _coefficient(of_family, entry.compute_ratio, _RATIO_BOUNDS, sigma)


def _coefficient(name: tuple[str, ...], start: float, bounds: tuple[float, float], log_sigma: float) -> Coefficient:
    return Coefficient(name=name, prior=Prior(float(np.clip(start, *bounds)), *bounds, log_sigma))


def _efficiency(
    fit: _OwnFit,
    logs: FloatArray,
    precision: str,
    base: Efficiency,
    *,
    untimed: Mapping[str, FamilyEfficiency],
    device: Device,
    spread: float,
    date: str,
) -> Efficiency:
    """Return the shipped efficiency of one precision with the fitted values.

    Families that were not timed have those of `untimed`, multiplied by the ratios of this device.
    """
    scalars: dict[str, Any] = {name: fit.value(logs, name) for name in (*_SCALARS[device.kind], *_HOST_TIMES)}
    ramps: dict[str, Any] = {name: fit.value(logs, name, precision) for name in BY_PRECISION}
    counts = Counter(
        family for step in fit.sample.steps if step.precision == precision for family in step.kernels.families
    )
    timed = {
        family: FamilyEfficiency(
            compute_ratio=fit.compute_ratio(logs, precision, family),
            memory_ratio=fit.value(logs, "memory_ratio", family),
            log_spread=0.0,
            n=counts[family],
            source=TIMED_HERE if counts[family] else "as shipped, with the memory_ratio timed on this machine",
        )
        for family in fit.sample.kernels.families
    }
    others = {
        family: replace(
            entry,
            compute_ratio=entry.compute_ratio * fit.device_compute_ratio(logs, precision, family),
            memory_ratio=entry.memory_ratio * fit.value(logs, _MEMORY_RATIO),
            source=f"{entry.source}, with the speed timed on this machine",
        )
        for family, entry in untimed.items()
    }
    return replace(
        base,
        device=device.id,
        core_count=device.core_count if device.kind == "cpu" else None,
        vendor=device.vendor,
        generation=device.generation,
        precision=precision,
        families={**base.families, **others, **timed},
        device_log_spread=spread,
        workload_log_spread=0.0,
        backward_log_spread=0.0,
        host_log_spread=0.0,
        fitted_on=(device.id,),
        date=date,
        source=f"advise calibrate, {date}",
        **scalars,
        **ramps,
    )
