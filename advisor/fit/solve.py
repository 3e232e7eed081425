"""Fits the coefficients to a sample by bounded, regularized least squares."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from advisor.fit.coefficients import BY_PRECISION, Coefficient, starts
from advisor.fit.least_squares import least_squares
from advisor.fit.robust_loss import PRIOR_WEIGHT, ROBUST_LOG_SCALE, robust
from advisor.fit.sample import Sample
from advisor.predict.kernel_time import DISPATCHED, Kernels, Rates, kernel_times
from advisor.predict.rates import rate_table
from advisor.predict.roofline import first_dispatch_s
from advisor.records.device import ANY, Device, Efficiency, FamilyEfficiency
from advisor.records.prediction import BoolArray, FloatArray, IndexArray

_STEP = 1e-4
_TOLERANCE = 1e-7
"""Relative change of the sum of squares at which the solver stops, small enough that coefficients without data reach
their priors. With 1e-5, a fit without the only GPU of AMP training stopped early, at an error of 23 % instead of 16 %
on its steps."""
_EFFICIENCY_FIELDS = frozenset(field.name for field in fields(Efficiency))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Family:
    """The kernels of one family in a sample, each with its step and its place in `Fit._distinct`."""

    name: str
    kernels: Kernels
    step: IndexArray
    place: IndexArray


class Fit(ABC):
    """One fit problem; `seconds` predicts every step of the sample, `solve` finds the coefficients.

    `keyed` has the keys that follow a coefficient's name. The coefficients of an `Efficiency` have none.
    """

    keyed: Mapping[str, tuple[str, ...]] = {
        "memory_ratio": ("family",), **dict.fromkeys(BY_PRECISION, ("precision",))
    }  # fmt: skip

    def __init__(self, sample: Sample, coefficients: Sequence[Coefficient], *, template: Efficiency) -> None:
        self.sample = sample
        self.coefficients = tuple(coefficients)
        self.precisions = sorted({step.precision for step in sample.steps})
        self._template = template
        self._index = {coefficient.name: index for index, coefficient in enumerate(coefficients)}
        self._prior = starts(coefficients)
        known = {"precision": set(self.precisions), "family": set(sample.kernels.families)}
        self._keys: defaultdict[str, set[str]] = defaultdict(set, known)
        for first, *keys in (coefficient.name for coefficient in coefficients):
            for kind, key in zip(self.keyed.get(first, ()), keys, strict=True):
                self._keys[kind].add(key)
        kernels = sample.kernels
        self._units = np.unique(kernels.unit).tolist()
        precisions = [self.precisions.index(step.precision) for step in sample.steps]
        self._lines, line = np.unique(np.stack([sample.device_of_step, precisions]), axis=1, return_inverse=True)
        distinct = np.stack([line.ravel()[sample.step], kernels.family, kernels.unit])
        self._distinct, place = np.unique(distinct, axis=1, return_inverse=True)
        self._families = [
            _Family(name=name, kernels=kernels.only(chosen), step=sample.step[chosen], place=place.ravel()[chosen])
            for name, chosen in (
                (name, np.flatnonzero(kernels.family == index)) for index, name in enumerate(kernels.families)
            )
        ]

    def value(self, logs: FloatArray, *name: str) -> float:
        """Return the value of a coefficient, or the template's value, or 1, if it is not fitted.

        Raises KeyError for a name that no coefficient of such a sample has.
        """
        if name in self._index:
            return float(np.exp(logs[self._index[name]]))
        first, *keys = name
        kinds = self.keyed.get(first, () if first in _EFFICIENCY_FIELDS else None)
        if kinds is None or len(kinds) != len(keys):
            raise KeyError(name)
        if not all(key in self._keys[kind] for kind, key in zip(kinds, keys, strict=True)):
            raise KeyError(name)
        return float(getattr(self._template, first, 1.0))

    def seconds(self, logs: FloatArray) -> FloatArray:
        """Return the predicted time of every step."""
        return self._total(logs, self.family_seconds(logs))

    def family_seconds(self, logs: FloatArray) -> dict[str, FloatArray]:
        """Return the predicted kernel time of every step, by family."""
        rates, count = self._rates(logs), len(self.sample.steps)
        return {
            family.name: np.bincount(family.step, _kernel_s(_at(rates, family.place), family), minlength=count).astype(
                np.float64
            )
            for family in self._families
        }

    def solve(
        self,
        *,
        chosen: BoolArray,
        start: FloatArray | None = None,
        fixed: Collection[tuple[str, ...]] = (),
        steps: int = 100,
        slopes: FloatArray | None = None,
    ) -> FloatArray:
        """Fit the coefficients to the `chosen` steps and return their logarithms; `fixed` ones stay at their priors.

        With `slopes`, as the method of that name returns them near the solution, no others are computed.
        """
        free = np.array([index for index, one in enumerate(self.coefficients) if one.name not in fixed])
        base = (self._prior if start is None else start).copy()
        held = [index for index, one in enumerate(self.coefficients) if one.name in fixed]
        base[held] = self._prior[held]
        sigmas = np.array([one.prior.log_sigma for one in self.coefficients])
        weights = self.sample.weights[chosen]
        priors = PRIOR_WEIGHT / sigmas

        def whole(values: FloatArray) -> FloatArray:
            logs = base.copy()
            logs[free] = values
            return logs

        def residuals(values: FloatArray) -> FloatArray:
            logs = whole(values)
            errors = np.log(self.seconds(logs) / self.sample.measured_s)[chosen] * weights
            return np.concatenate([errors, (logs - self._prior) * priors])

        def jacobian(values: FloatArray) -> FloatArray:
            of_rows = self.slopes(whole(values), free) if slopes is None else slopes[:, free]
            return np.concatenate([of_rows[chosen] * weights[:, np.newaxis], np.diag(priors)[:, free]])

        low = np.log([self.coefficients[index].prior.low for index in free])
        high = np.log([self.coefficients[index].prior.high for index in free])
        solution = least_squares(
            residuals,
            base[free],
            bounds=(low, high),
            loss=robust(ROBUST_LOG_SCALE),
            jacobian=jacobian,
            steps=steps,
            tolerance=_TOLERANCE,
        )
        return whole(solution.values)

    def _total(self, logs: FloatArray, family_s: Mapping[str, FloatArray]) -> FloatArray:
        device_s: FloatArray = np.sum(list(family_s.values()), axis=0)
        dispatch_s = self._dispatch_s(logs)
        if self.sample.devices[0].kind == "cpu":
            added: FloatArray = device_s + dispatch_s
            return added
        longer: FloatArray = np.maximum(device_s + first_dispatch_s(self.sample.kernels, dispatch_s), dispatch_s)
        return longer

    def _dispatch_s(self, logs: FloatArray) -> FloatArray:
        """Return the dispatch overhead of every step in seconds."""
        kernels = self.sample.kernels
        of_calls = [getattr(kernels, counted) * self.value(logs, name) for counted, name in DISPATCHED.items()]
        total: FloatArray = self._host_ratios(logs) * np.sum(of_calls, axis=0)
        return total

    def _host_ratios(self, logs: FloatArray) -> FloatArray:
        """Return the host time of every step relative to the reference host."""
        ratios = [self._host_ratio(logs, device) for device in self.sample.devices]
        return np.array(ratios)[self.sample.device_of_step]

    def _host_ratio(self, logs: FloatArray, device: Device) -> float:
        return device.host_time_ratio

    def slopes(self, logs: FloatArray, free: IndexArray | None = None) -> FloatArray:
        """Return the derivatives of log(seconds), (steps, coefficients), by the `free` coefficients or by all.

        The chain rule: a kernel's time is differentiated once for each rate, not for each of many coefficients.
        """
        rates, family_s = self._rates(logs), self.family_seconds(logs)
        before = np.log(self._total(logs, family_s))
        own: dict[str, tuple[dict[str, Any], FloatArray]] = {}
        by_rate: dict[tuple[str, str], FloatArray] = {}

        def slope(family: _Family, name: str) -> FloatArray:
            """Return the change of every kernel's seconds per change of the logarithm of one rate."""
            key = (family.name, name)
            if key not in by_rate:
                if family.name not in own:
                    of_kernels = _at(rates, family.place)
                    own[family.name] = of_kernels, _kernel_s(of_kernels, family)
                of_kernels, before_s = own[family.name]
                raised = {**of_kernels, name: of_kernels[name] * (1 + _STEP)}
                by_rate[key] = (_kernel_s(raised, family) - before_s) / _STEP
            return by_rate[key]

        columns = []
        for index in range(len(logs)) if free is None else free:
            moved = logs.copy()
            moved[index] += _STEP
            changes = _log_changes(rates, self._rates(moved))
            moved_s = dict(family_s)
            for family in self._families:
                for name, change in changes.items():
                    (kernels,) = np.nonzero(change[family.place])
                    if len(kernels):
                        added_s = slope(family, name)[kernels] * change[family.place[kernels]]
                        added = np.bincount(family.step[kernels], added_s, minlength=len(self.sample.steps))
                        moved_s[family.name] = moved_s[family.name] + added
            columns.append((np.log(self._total(moved, moved_s)) - before) / _STEP)
        return np.stack(columns, axis=1)

    def _rates(self, logs: FloatArray) -> dict[str, Any]:
        """Return every field of `Rates` at these coefficients, as arrays over `_distinct`."""
        devices = [self.device(logs, index) for index in range(len(self.sample.devices))]
        efficiencies = [self.efficiency(logs, precision) for precision in self.precisions]
        device, precision = self._lines
        table = rate_table(
            [devices[index] for index in device],
            [efficiencies[index] for index in precision],
            families=self.sample.kernels.families,
            units=self._units,
        )
        line, family, unit = self._distinct[:, :, np.newaxis]
        rates = table.at(line, family=family, unit=unit)
        return {field.name: np.broadcast_to(getattr(rates, field.name), line.shape) for field in fields(Rates)}

    @abstractmethod
    def compute_ratio(self, logs: FloatArray, precision: str, family: str) -> float:
        """Return a family's share of its unit's compute peak."""

    def efficiency(self, logs: FloatArray, precision: str) -> Efficiency:
        """Return the template with all fitted coefficients for this precision."""
        names = {one.name[0] for one in self.coefficients if len(one.name) == 1} & _EFFICIENCY_FIELDS
        values: dict[str, Any] = {name: self.value(logs, name) for name in names}
        ramps: dict[str, Any] = {name: self.value(logs, name, precision) for name in BY_PRECISION}
        ratios = {
            name: (self.compute_ratio(logs, precision, name), self.value(logs, "memory_ratio", name))
            for name in self.sample.kernels.families
        }
        families = {
            name: FamilyEfficiency(compute_ratio=compute, memory_ratio=memory, log_spread=0.0, n=0, source="")
            for name, (compute, memory) in {**ratios, ANY: (1.0, 1.0)}.items()
        }
        return replace(self._template, precision=precision, families=families, **values, **ramps)

    def device(self, logs: FloatArray, index: int) -> Device:
        """Return a device of the sample, with the ratios of its own that are fitted."""
        return self.sample.devices[index]


def _at(rates: Mapping[str, Any], place: IndexArray) -> dict[str, Any]:
    return {name: rate[place] for name, rate in rates.items()}


def _kernel_s(rates: Mapping[str, Any], family: _Family) -> FloatArray:
    """Return the seconds of all calls of every kernel of the family, at the rates of each kernel."""
    seconds: FloatArray = kernel_times(family.kernels, Rates(**rates)).total_s[:, 0] * family.kernels.calls
    return seconds


def _log_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, FloatArray]:
    """Return the change of the logarithm of each rate that differs anywhere."""
    found = {}
    for name, old in before.items():
        is_moved = after[name] != old
        if is_moved.any():
            ratio = np.divide(after[name], old, out=np.ones(old.shape), where=is_moved)
            found[name] = np.log(ratio)[:, 0]
    return found
