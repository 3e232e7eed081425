"""Fits the launch overhead and the bandwidth per SM of an inference engine's kernel families, measured on one GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from advisor.fit.robust_loss import ROBUST_LOG_SCALE
from advisor.fit.sample import MeasuredStep, sample_of
from advisor.predict.efficiency import family_efficiencies
from advisor.predict.roofline import times_by_kernel
from advisor.records.device import ANY, Efficiency, FamilyEfficiency
from advisor.records.prediction import FloatArray

_STREAMING = "pointwise"
"""The family whose share of the bandwidth these kernels reach if bandwidth-bound: they read each operand once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKernel:
    """Two coefficients of a family, named as in `FamilyEfficiency`; the defaults are the start of a fit."""

    core_bytes_per_s: float = 7e9
    launch_s: float = 1.5e-6


def kernel_s(steps: Sequence[MeasuredStep], efficiency: Efficiency) -> FloatArray:
    """Return the predicted times of steps of one kernel each, all on one device."""
    kernels = sample_of(steps).kernels
    times = times_by_kernel(kernels, devices=[steps[0].device], efficiencies=[efficiency], layout="nchw")
    result: FloatArray = times.total_s[0, :, 0]
    return result


def fitted_kernels(steps: Sequence[MeasuredStep], efficiency: Efficiency) -> dict[str, EngineKernel]:
    """Fit the two coefficients of every family in the steps, with all others as in the efficiency."""
    families = sorted({family for step in steps for family in step.kernels.families})
    return {
        family: _fitted([step for step in steps if family in step.kernels.families], family, efficiency)
        for family in families
    }


def _fitted(steps: Sequence[MeasuredStep], family: str, efficiency: Efficiency) -> EngineKernel:
    measured_s = np.array([step.measured_s for step in steps])
    start = EngineKernel()

    def kernel(logs: FloatArray) -> EngineKernel:
        core_bytes_per_s, launch_s = np.exp(logs).tolist()
        return EngineKernel(core_bytes_per_s=core_bytes_per_s, launch_s=launch_s)

    def errors(logs: FloatArray) -> FloatArray:
        tried = with_engine_kernels(efficiency, {family: kernel(logs)}, log_spread=0.0, n=0, source="")
        result: FloatArray = np.log(kernel_s(steps, tried) / measured_s)
        return result

    logs = np.log([start.core_bytes_per_s, start.launch_s])
    return kernel(least_squares(errors, logs, loss="soft_l1", f_scale=ROBUST_LOG_SCALE).x)


def with_engine_kernels(
    efficiency: Efficiency, kernels: Mapping[str, EngineKernel], *, log_spread: float, n: int, source: str
) -> Efficiency:
    """Return the efficiency with an entry for each of these families before the entry "*"."""
    (streaming,) = family_efficiencies(efficiency, families=(_STREAMING,))
    others = {name: entry for name, entry in efficiency.families.items() if name not in (ANY, *kernels)}
    entries = {
        family: FamilyEfficiency(
            compute_ratio=1.0,
            memory_ratio=streaming.memory_ratio,
            log_spread=log_spread,
            n=n,
            source=source,
            core_bytes_per_s=kernel.core_bytes_per_s,
            launch_s=kernel.launch_s,
        )
        for family, kernel in kernels.items()
    }
    return replace(efficiency, families={**others, **entries, ANY: efficiency.families[ANY]})
