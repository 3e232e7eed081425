"""Fits the kernels of an inference engine on one GPU, tests them on another, and adds them to the shipped efficiencies.

    python scripts/fit_engine_kernels.py --measured tests/data/measured --out profiles/efficiency

This is the second half of `make fit`: no whole step contains these kernels, and their share of the bandwidth comes from
the efficiencies of the first half. Reads `vidur_engine.csv` and `vidur_ops.csv`, rewrites the efficiency files of GPUs
in --out, and prints the errors. The linear layers and additions of `vidur_ops.csv`, shown for comparison, were fitted
on both GPUs.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fit_kind import measured_steps, with_fitted_engine

from advisor.catalog.load import load_catalog
from advisor.fit.engine_fit import kernel_s
from advisor.fit.files import file_name, yaml_text
from advisor.fit.sample import MeasuredStep
from advisor.predict.efficiency import efficiency_of
from advisor.records.device import Efficiency
from advisor.records.prediction import FloatArray

ENGINE, LINEAR = "vidur_engine.csv", "vidur_ops.csv"


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


if __name__ == "__main__":
    main()
