"""Timed operators and the efficiencies shipped for their device in, those of this very device out."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.fit.coefficients import BY_PRECISION, COMPUTING, Coefficient
from advisor.fit.sample import MeasuredStep, Sample, sample_of
from advisor.fit.solve import Fit
from advisor.predict.efficiency import efficiency_of, family_efficiencies, precision_class
from advisor.predict.lowering import count_rows, lower
from advisor.predict.precision import width_of
from advisor.records.calibration import NET, TIMED_HERE, TimedOperator
from advisor.records.device import Device, Efficiency, FamilyEfficiency, Precision
from advisor.records.prediction import FloatArray
from advisor.workload.file import workload_from_json

_SCALARS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "cpu": {
        "launch_s": (1e-7, 3e-5),
        "library_launch_ratio": (1.0, 64.0),
        "overlap_ratio": (0.2, 1.0),
        "wave_ratio": (0.02, 1.0),
        "winograd_speedup": (1.0, 2.25),
        "cache_kept_ratio": (0.02, 1.0),
        "dispatch_s": (5e-7, 5e-5),
        "backward_dispatch_s": (5e-7, 5e-5),
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
"""What all kernels of a device share, with its bounds; what timings of one device cannot tell stays as shipped."""
_STARTS: Mapping[str, float] = {"library_launch_ratio": 8.0}
"""Where the shipped efficiency says nothing. Fitted on two thirds of the models in calibration_check.csv, the steps of
the others are off by 15.0 % at 1, 11.8 % at 6, 11.4 % at 10 and 11.3 % at 16, at the mean."""
_HOST = frozenset({"dispatch_s", "backward_dispatch_s"})
_SCALAR_LOG_SIGMA = 0.5
"""Of the shipped value of what is shared: it has been seen on many devices."""
_FAMILY_LOG_SIGMA = 1.0
"""Of a family's ratio: wide, so that a single timed operator outweighs the shipped value 20 to 1."""
_RATIO_BOUNDS = (0.005, 4.0)
"""Above 1 where the datasheet understates: clocks above the rated, a neighbour's share of the bandwidth."""
_RAMP_BOUNDS = (0.2, 128.0)
_STEPS = 15
"""Of the solver; more move no coefficient by a percent."""
_NET_TRUST = 3.0
"""A small net finds its code and its data where a large one finds them: not in the nearest caches."""
_SHORT_S, _SHORT_TRUST = 1e-4, 0.3
"""An operator over and over at the same small tensor runs faster than it ever does in a net."""
_STEP_LOG_SPREAD = 0.25
"""90 % of the 247 steps in tests/data/measured/own/calibration_check.csv lie within 1.645 of it, predicted from a
calibration of the same run. Their median is off by 0.3 %, so no offset of the device is in it, and what a CPU's steps
are off by does not carry to other devices (`scripts/anchor_table.py`), so it is each device's own."""
_STREAMING_COMPUTE_START = 0.1
"""Of the vector peak, of families that only stream on the devices that were fitted: a CPU takes longer for the exp() of
a softmax, or the windows of a pool, than for their bytes in its cache."""


class _OwnFit(Fit):
    """A fit in which every family computes, those that stream at one rate for all precisions."""

    def compute_ratio(self, logs: FloatArray, precision: str, family: str) -> float:
        """Of the family's own unit."""
        if family in COMPUTING:
            return super().compute_ratio(logs, precision, family)
        return self.value(logs, "streaming_compute_ratio", family)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCalibration:
    """The efficiencies, one per class of precision, and the median of |fitted / measured - 1| over the operators."""

    efficiencies: tuple[Efficiency, ...]
    median_ape: float


def fit_calibration(
    operators: Sequence[TimedOperator],
    device: Device,
    shipped: Sequence[Efficiency],
    *,
    precisions: Sequence[Precision],
    noise_log: float,
    date: str,
) -> FittedCalibration:
    """Fit the coefficients that the operators tell something of, starting from `shipped`; the others stay as they are.

    There is an efficiency for each of `precisions`, even where time ran out before an operator of it.

    What steps are off by after a calibration takes the place of the spreads between devices and between workloads,
    widened by `noise_log`, one standard deviation of the timings.
    """
    plain = replace(device, sustained_compute_ratio=1.0, sustained_memory_ratio=1.0)
    steps = [_measured(operator, plain) for operator in operators]
    sample = sample_of(steps)
    bases = {
        precision_class(precision): efficiency_of(device, precision=precision, efficiencies=shipped)
        for precision in precisions
    }
    first = next(iter(bases.values()))
    template = replace(
        first,
        generation_compute_ratio=first.generation_compute_ratio * device.sustained_compute_ratio,
        generation_memory_ratio=first.generation_memory_ratio * device.sustained_memory_ratio,
    )
    fit = _OwnFit(sample, tuple(_coefficients(sample, bases, plain)), template=template)
    logs = fit.solve(chosen=np.ones(len(steps), dtype=np.bool_), steps=_STEPS)
    spread = float(np.hypot(_STEP_LOG_SPREAD, noise_log))
    counts = _counts(steps)
    return FittedCalibration(
        efficiencies=tuple(
            _efficiency(
                fit,
                logs,
                precision,
                base,
                device=device,
                spread=spread,
                counts=counts.get(precision, Counter()),
                date=date,
            )
            for precision, base in bases.items()
        ),
        median_ape=float(np.median(np.abs(fit.seconds(logs) / sample.measured_s - 1))),
    )


def _measured(operator: TimedOperator, device: Device) -> MeasuredStep:
    workload = workload_from_json(operator.workload, where=operator.name)
    counts = count_rows(workload, batches=np.array([float(operator.batch)]), width=width_of(operator.precision))
    return MeasuredStep(
        kernels=lower(counts, kind=device.kind, precision=operator.precision),
        device=device,
        precision=precision_class(operator.precision),
        is_nchw=True,
        group=(operator.name, operator.precision),
        measured_s=operator.step_s,
        trust=_trust(operator),
    )


def _trust(operator: TimedOperator) -> float:
    if operator.name.startswith(NET):
        return _NET_TRUST
    return _SHORT_TRUST if operator.step_s < _SHORT_S else 1.0


def _counts(steps: Sequence[MeasuredStep]) -> dict[str, Counter[str]]:
    """How many operators hold each family, by class of precision."""
    counts: dict[str, Counter[str]] = {}
    for step in steps:
        counts.setdefault(step.precision, Counter()).update(step.kernels.families)
    return counts


def _coefficients(sample: Sample, bases: Mapping[str, Efficiency], device: Device) -> Iterator[Coefficient]:
    """Every coefficient that the sample depends on, starting where the shipped efficiency has it."""
    families = sample.kernels.families
    everything = frozenset(families)
    first = next(iter(bases.values()))
    shipped = dict(zip(families, family_efficiencies(first, families=families), strict=True))
    for name, bounds in _SCALARS[device.kind].items():
        touched = frozenset[str]() if name in _HOST else everything
        start = _STARTS.get(name, getattr(first, name))
        yield _coefficient((name,), start, bounds, _SCALAR_LOG_SIGMA, touched)
    for precision, base in bases.items():
        for name in BY_PRECISION:
            yield _coefficient((name, precision), getattr(base, name), _RAMP_BOUNDS, _SCALAR_LOG_SIGMA, everything)
        for family, entry in zip(families, family_efficiencies(base, families=families), strict=True):
            if family in COMPUTING:
                start, touched = entry.compute_ratio, frozenset({family})
                yield _coefficient(
                    ("compute_ratio", precision, family), start, _RATIO_BOUNDS, _FAMILY_LOG_SIGMA, touched
                )
    for family in families:
        start, touched = shipped[family].memory_ratio, frozenset({family})
        yield _coefficient(("memory_ratio", family), start, _RATIO_BOUNDS, _FAMILY_LOG_SIGMA, touched)
        if family not in COMPUTING:
            start = _STREAMING_COMPUTE_START
            yield _coefficient(("streaming_compute_ratio", family), start, _RATIO_BOUNDS, _FAMILY_LOG_SIGMA, touched)


def _coefficient(
    name: tuple[str, ...], start: float, bounds: tuple[float, float], log_sigma: float, families: frozenset[str]
) -> Coefficient:
    low, high = bounds
    return Coefficient(
        name=name, start=float(np.clip(start, low, high)), low=low, high=high, log_sigma=log_sigma, families=families
    )


def _efficiency(
    fit: Fit,
    logs: FloatArray,
    precision: str,
    base: Efficiency,
    *,
    device: Device,
    spread: float,
    counts: Counter[str],
    date: str,
) -> Efficiency:
    """The shipped efficiency of one precision with what was fitted."""
    scalars: dict[str, Any] = {name: fit.value(logs, name) for name in _SCALARS[device.kind]}
    ramps: dict[str, Any] = {name: fit.value(logs, name, precision) for name in BY_PRECISION}
    timed = {family: _family(fit, logs, precision, family, n=counts[family]) for family in fit.sample.kernels.families}
    return replace(
        base,
        device=device.id,
        core_count=device.core_count if device.kind == "cpu" else None,
        vendor=device.vendor,
        generation=device.generation,
        precision=precision,
        families={**base.families, **timed},
        device_log_spread=spread,
        workload_log_spread=0.0,
        fitted_on=(device.id,),
        date=date,
        source=f"advise calibrate, {date}",
        **scalars,
        **ramps,
    )


def _family(fit: Fit, logs: FloatArray, precision: str, family: str, *, n: int) -> FamilyEfficiency:
    return FamilyEfficiency(
        compute_ratio=fit.compute_ratio(logs, precision, family),
        memory_ratio=fit.value(logs, "memory_ratio", family),
        log_spread=0.0,
        n=n,
        source=TIMED_HERE if n else "as shipped, with the memory_ratio timed on this machine",
    )
