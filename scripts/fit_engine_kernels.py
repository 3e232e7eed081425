"""Fits the kernels of an inference engine on one GPU, tests them on another, and adds them to the shipped efficiencies.

    python scripts/fit_engine_kernels.py --measured tests/data/measured --out profiles/efficiency

This is the second half of `make fit`: no whole step contains these kernels, and their share of the bandwidth comes from
the efficiencies of the first half. Reads `vidur_engine.csv` and `vidur_ops.csv`, rewrites the efficiency files of GPUs
in --out, and prints the errors. The linear layers and additions of `vidur_ops.csv`, shown for comparison, were fitted
on both GPUs.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from fit_kind import measured_steps
from left_out_spread import rms
from scipy.optimize import least_squares
from shipped_fit import file_name

from advisor.catalog.overlay import load_catalog
from advisor.fit.files import yaml_text
from advisor.fit.robust_loss import ROBUST_LOG_SCALE
from advisor.fit.sample import MeasuredStep, sample_of
from advisor.predict.efficiency import efficiency_of, family_efficiency
from advisor.predict.kernel_time import kernel_times
from advisor.predict.roofline import rates_by_kernel
from advisor.records.device import ANY, Efficiency, FamilyEfficiency
from advisor.records.prediction import FloatArray

ENGINE, LINEAR = "vidur_engine.csv", "vidur_ops.csv"
_OTHER_STACKS = ("AWS",)
"""Vendors whose devices do not run these kernels: AWS with its NeuronCores."""
_ENGINE_GPU = "a100-sxm4-80gb"
"""The GPU on which an engine's kernels are fitted: its memory is fast enough to show the limit of an SM, unlike an
A40's."""
_STREAMING = "pointwise"
"""The family whose share of the bandwidth these kernels reach if bandwidth-bound: they read each operand once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Steps of one kernel on one GPU, and the ratio of predicted to measured time of each."""

    device: str
    kernel: str
    ratios: FloatArray

    def __str__(self) -> str:
        errors = np.abs(self.ratios - 1)
        return (
            f"{self.device} {self.kernel}: n {len(errors)}, mean {errors.mean():.1%}, median {np.median(errors):.1%}, "
            f"bias {np.median(self.ratios) - 1:+.1%}"
        )


def main() -> None:
    """Fit, write the files, and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, help="folder with the tables of measurements")
    parser.add_argument("--out", type=Path, required=True, help="folder of the efficiency files")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    steps = engine_steps(arguments.measured)
    efficiencies = with_fitted_engine(load_catalog().efficiencies, steps)
    for efficiency in efficiencies:
        if efficiency.kind == "gpu":
            (arguments.out / file_name(efficiency)).write_text(yaml_text(efficiency), encoding="utf-8")
    for group in groups([*steps, *linear_steps(arguments.measured)], efficiencies):
        print(group)


def engine_steps(folder: Path) -> list[MeasuredStep]:
    """Return the steps of norms, rotary embeddings and gated activations."""
    return measured_steps([folder / ENGINE], wanted=lambda _: True, timeout_s=120.0)


def linear_steps(folder: Path) -> list[MeasuredStep]:
    """Return the steps of linear layers and additions, from the same source."""
    return measured_steps([folder / LINEAR], wanted=lambda _: True, timeout_s=120.0)


def groups(steps: Sequence[MeasuredStep], efficiencies: Sequence[Efficiency]) -> Iterator[Group]:
    """Yield the steps by GPU and kernel, and all steps of each GPU last."""
    for device in dict.fromkeys(step.device.id for step in steps):
        there = [step for step in steps if step.device.id == device]
        efficiency = efficiency_of(there[0].device, precision="fp16", efficiencies=efficiencies)
        ratios = kernel_s(there, efficiency) / np.array([step.measured_s for step in there])
        kernels = np.array([step.kernels.families[0] for step in there])
        for kernel in dict.fromkeys(kernels.tolist()):
            yield Group(device=device, kernel=kernel, ratios=ratios[kernels == kernel])
        yield Group(device=device, kernel="all", ratios=ratios)


def with_fitted_engine(efficiencies: Sequence[Efficiency], steps: Sequence[MeasuredStep]) -> tuple[Efficiency, ...]:
    """Add the kernels of an inference engine to the efficiencies of GPUs, fitted on the steps of one of two GPUs.

    Their spread is the error on the other GPU's steps; without measurements it is that of an unmeasured family.
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
        spread = rms(errors) if is_measured else one.families[ANY].log_spread
        n = len(fitted) if is_measured else 0
        entered = with_engine_kernels(one, kernels, log_spread=spread, n=n, source=source)
        found.append(entered if one.kind == "gpu" and one.vendor not in _OTHER_STACKS else one)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKernel:
    """Two coefficients of a family, named as in `FamilyEfficiency`; the defaults are the start of a fit."""

    core_bytes_per_s: float = 7e9
    launch_s: float = 1.5e-6


def kernel_s(steps: Sequence[MeasuredStep], efficiency: Efficiency) -> FloatArray:
    """Return the predicted times of steps of one kernel each, all on one device."""
    kernels = sample_of(steps).kernels
    times = kernel_times(kernels, rates_by_kernel(kernels, devices=[steps[0].device], efficiencies=[efficiency]))
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
    streaming = family_efficiency(efficiency, _STREAMING)
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


if __name__ == "__main__":
    main()
