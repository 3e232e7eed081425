"""A sample and its coefficients in, the values that predict it best out: bounded, regularised least squares."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from advisor.fit.coefficients import BY_PRECISION, COMPUTING, GRADIENT_OF, STREAMING_COMPUTE, Coefficient, starts
from advisor.fit.sample import Sample, part_of
from advisor.predict.kernel_time import Rates, kernel_times
from advisor.predict.lowering import UNITS, Kernels
from advisor.predict.rates import (
    NOTHING_HELD,
    OF_EFFICIENCY,
    cache_bytes_per_s,
    direct_flops_per_s,
    join_s,
    launch_s,
    library_s,
    narrow_bytes_per_s,
    reread_ratio,
    sustained_bytes_per_s,
    sustained_flops_per_s,
    transposed_ratio,
    winograd_speedup,
)
from advisor.predict.roofline import first_dispatch_s
from advisor.records.device import Device, Efficiency
from advisor.records.prediction import BoolArray, FloatArray, IndexArray

_ROBUST_LOG_SCALE = 0.1
"""Residuals beyond 10 % count in proportion, not squared: nets that no formula holds for do not pull the fit."""
_PRIOR_WEIGHT = 0.3
_STEP = 1e-4
_TOLERANCE = 1e-7
"""Of the sum of squares, between two steps of the solver: what no data hold has reached its prior by then.

With 1e-5 a fit without the only GPU of AMP training stopped where it predicted its steps 23 % off, not 16 %."""
_DISPATCHED = {
    "dispatch_s": "dispatches",
    "backward_dispatch_s": "backward_dispatches",
    "compiled_dispatch_s": "compiled_dispatches",
}
_OF_EFFICIENCY = {field.name for field in fields(Efficiency)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Family:
    """The kernels of one family in a sample, and whose they are."""

    name: str
    kernels: Kernels
    step: IndexArray
    device: IndexArray
    precision: IndexArray


class Fit:
    """One fit problem; `seconds` predicts every step of the sample, `solve` finds the coefficients."""

    def __init__(self, sample: Sample, coefficients: Sequence[Coefficient], *, template: Efficiency) -> None:
        self.sample = sample
        self.coefficients = tuple(coefficients)
        self.precisions = sorted({step.precision for step in sample.steps})
        self._template = template
        self._index = {coefficient.name: index for index, coefficient in enumerate(coefficients)}
        self._prior = starts(coefficients)
        self._is_nchw = np.array([step.is_nchw for step in sample.steps])
        precision = np.array([self.precisions.index(step.precision) for step in sample.steps])
        kernels = sample.kernels
        self._families = [
            _Family(
                name=name,
                kernels=part_of(kernels, chosen),
                step=sample.step[chosen],
                device=sample.device[chosen],
                precision=precision[sample.step[chosen]],
            )
            for name, chosen in (
                (name, np.flatnonzero(kernels.family == index)) for index, name in enumerate(kernels.families)
            )
        ]

    def value(self, logs: FloatArray, *name: str) -> float:
        """The value of a coefficient; 1, or the template's, where it is not fitted."""
        index = self._index.get(name)
        if index is not None:
            return float(np.exp(logs[index]))
        return float(getattr(self._template, name[0], 1.0))

    def mean(self, logs: FloatArray, name: str, keys: Sequence[str]) -> float:
        """The geometric mean of one coefficient over several keys, such as generations; 1 of none."""
        return float(np.exp(np.mean([np.log(self.value(logs, name, key)) for key in keys] or [0.0])))

    def with_value(self, logs: FloatArray, value: float, *name: str) -> FloatArray:
        """The coefficients with another value of one; as they are where it is not fitted."""
        return np.where([one.name == name for one in self.coefficients], np.log(value), logs)

    def seconds(self, logs: FloatArray) -> FloatArray:
        """The predicted time of every step."""
        return self._total(logs, self.family_seconds(logs))

    def family_seconds(self, logs: FloatArray) -> dict[str, FloatArray]:
        """Those of the kernels of each family, by its name."""
        return {family.name: self._family_s(logs, family) for family in self._families}

    def host_shares(self, logs: FloatArray) -> FloatArray:
        """The host's time over the predicted time of every step."""
        shares: FloatArray = self._dispatch_s(logs) / self.seconds(logs)
        return shares

    def solve(
        self,
        *,
        chosen: BoolArray,
        start: FloatArray | None = None,
        fixed: Collection[tuple[str, ...]] = (),
        steps: int = 100,
    ) -> FloatArray:
        """The logarithms of all coefficients, fitted on the `chosen` steps; those in `fixed` stay at their priors."""
        free = np.array([index for index, one in enumerate(self.coefficients) if one.name not in fixed])
        base = (self._prior if start is None else start).copy()
        held = [index for index, one in enumerate(self.coefficients) if one.name in fixed]
        base[held] = self._prior[held]
        sigmas = np.array([one.log_sigma for one in self.coefficients])
        weights = self.sample.weights[chosen]
        last: dict[str, FloatArray] = {}

        def whole(values: FloatArray) -> FloatArray:
            logs = base.copy()
            logs[free] = values
            return logs

        def residuals(values: FloatArray) -> FloatArray:
            logs = whole(values)
            last.clear()
            last.update(self.family_seconds(logs))
            errors = np.log(self._total(logs, last) / self.sample.measured_s)[chosen] * weights
            return np.concatenate([errors, _PRIOR_WEIGHT * (logs - self._prior) / sigmas])

        def jacobian(values: FloatArray) -> FloatArray:
            """By differences; a coefficient moves the families that it names, so only these are evaluated again."""
            residuals(values)
            logs, rows = whole(values), int(chosen.sum())
            before = np.log(self._total(logs, last))
            result = np.zeros((rows + len(logs), len(free)))
            for column, index in enumerate(free):
                moved = logs.copy()
                moved[index] += _STEP
                names = self.coefficients[index].families
                again = {
                    family.name: self._family_s(moved, family) if family.name in names else last[family.name]
                    for family in self._families
                }
                result[:rows, column] = (np.log(self._total(moved, again)) - before)[chosen] / _STEP * weights
                result[rows + index, column] = _PRIOR_WEIGHT / sigmas[index]
            return result

        low = np.log([self.coefficients[index].low for index in free])
        high = np.log([self.coefficients[index].high for index in free])
        solution = least_squares(
            residuals,
            np.clip(base[free], low, high),
            jac=jacobian,
            bounds=(low, high),
            loss="soft_l1",
            f_scale=_ROBUST_LOG_SCALE,
            x_scale="jac",
            max_nfev=steps,
            ftol=_TOLERANCE,
        )
        return whole(solution.x)

    def _total(self, logs: FloatArray, family_s: Mapping[str, FloatArray]) -> FloatArray:
        device_s: FloatArray = np.sum(list(family_s.values()), axis=0)
        sample, kernels = self.sample, self.sample.kernels
        dispatch_s = self._dispatch_s(logs)
        if sample.devices[0].kind == "cpu":
            added: FloatArray = device_s + dispatch_s
            return added
        copy_s = sample.copied_bytes * self._host(logs) * self.value(logs, "copy_s_per_byte")
        first_s = first_dispatch_s(kernels, dispatch_s)
        longer: FloatArray = np.maximum(device_s + first_s, dispatch_s) + copy_s
        return longer

    def _dispatch_s(self, logs: FloatArray) -> FloatArray:
        """Seconds that the host of every step takes to dispatch it."""
        kernels = self.sample.kernels
        of_calls = [getattr(kernels, counted) * self.value(logs, name) for name, counted in _DISPATCHED.items()]
        total: FloatArray = self._host(logs) * np.sum(of_calls, axis=0)
        return total

    def _host(self, logs: FloatArray) -> FloatArray:
        """How slow the host of every step is."""
        sample = self.sample
        ratios = [self.value(logs, "host", device.id) * device.host_time_ratio for device in sample.devices]
        return np.array(ratios)[sample.device_of_step]

    def _family_s(self, logs: FloatArray, family: _Family) -> FloatArray:
        """Seconds of the family's kernels in every step."""
        seconds = kernel_times(family.kernels, self._rates(logs, family)).total_s[:, 0] * family.kernels.calls
        total: FloatArray = np.bincount(family.step, seconds, minlength=len(self.sample.steps)).astype(np.float64)
        return total

    def _rates(self, logs: FloatArray, family: _Family) -> Rates:
        """The same rates as `predict.rates.rates_of` gives, for flat kernels and the coefficients being tried."""
        efficiency = self.efficiency(logs)
        devices = [self.device_with_own(logs, index) for index in range(len(self.sample.devices))]
        peaks = np.array([[sustained_flops_per_s(one, efficiency, unit=unit) for unit in UNITS] for one in devices])
        bandwidths = np.array([sustained_bytes_per_s(one, efficiency) for one in devices])
        ratios = np.array([self.compute_ratio(logs, precision, family.name) for precision in self.precisions])

        flops_per_s = peaks[family.device, family.kernels.unit] * ratios[family.precision]

        def by_device(values: Sequence[float]) -> FloatArray:
            return np.array(values)[family.device][:, np.newaxis]

        def by_precision(name: str) -> FloatArray:
            return np.array([self.value(logs, name, one) for one in self.precisions])[family.precision][:, np.newaxis]

        scalars = {name: np.array(getattr(efficiency, name)) for name in OF_EFFICIENCY if name not in BY_PRECISION}

        def by_unit(ratio_of: Callable[..., float]) -> FloatArray:
            table = np.array([[ratio_of(one, efficiency, unit=unit) for unit in UNITS] for one in devices])
            return table[family.device, family.kernels.unit][:, np.newaxis]

        is_nchw = self._is_nchw[family.step][:, np.newaxis]
        return Rates(
            is_nchw=is_nchw,
            flops_per_s=flops_per_s[:, np.newaxis],
            memory_bytes_per_s=(bandwidths[family.device] * self.value(logs, "memory_ratio", family.name))[
                :, np.newaxis
            ],
            narrow_bytes_per_s=by_device([narrow_bytes_per_s(one, efficiency) for one in devices]),
            cache_bytes=by_device([one.cache_bytes for one in devices]),
            cache_bytes_per_s=by_device([cache_bytes_per_s(one) for one in devices]),
            core_count=by_device([one.core_count for one in devices]),
            full_core_count=np.array(1.0),
            lone_block_ratio=np.array(1.0),
            core_bytes_per_s=NOTHING_HELD,
            direct_flops_per_s=by_device([direct_flops_per_s(one, efficiency) for one in devices]),
            reread_ratio=np.maximum(
                is_nchw,
                by_device([reread_ratio(one, is_nchw=False) for one in devices]),
            ),
            transposed_ratio=is_nchw * by_unit(transposed_ratio),
            winograd_speedup=by_unit(winograd_speedup),
            launch_s=by_device([launch_s(one, efficiency) for one in devices]),
            join_s=by_device([join_s(one, efficiency) for one in devices]),
            library_s=by_device([library_s(one, efficiency) for one in devices]),
            **{name: by_precision(name) for name in BY_PRECISION},
            **scalars,
        )

    def compute_ratio(self, logs: FloatArray, precision: str, family: str) -> float:
        """Of families that only stream the same for all; of gradients a share of what they are the gradients of."""
        if family not in COMPUTING:
            return self.value(logs, STREAMING_COMPUTE)
        own = self.value(logs, "compute_ratio", precision, family)
        if ("gradient_ratio", family) not in self._index:
            return own
        forward = self.compute_ratio(logs, precision, GRADIENT_OF[family])
        return forward * self.value(logs, "gradient_ratio", family) * own

    def efficiency(self, logs: FloatArray) -> Efficiency:
        """The template with the fitted scalars that all precisions share."""
        names = {one.name[0] for one in self.coefficients if len(one.name) == 1} & _OF_EFFICIENCY
        values: dict[str, Any] = {name: self.value(logs, name) for name in names}
        return replace(self._template, **values)

    def device_with_own(self, logs: FloatArray, index: int) -> Device:
        """The device with the figures of its generation and its own; a CPU is the host of its own kernels."""
        device = self.sample.devices[index]
        own_host_ratio = self.value(logs, "host", device.id) if device.kind == "cpu" else 1.0
        return replace(
            device,
            host_time_ratio=device.host_time_ratio * own_host_ratio,
            sustained_compute_ratio=self.value(logs, "generation_compute", device.generation)
            * self.value(logs, "device_compute", device.id),
            sustained_memory_ratio=self.value(logs, "generation_memory", device.generation)
            * self.value(logs, "device_memory", device.id),
        )
