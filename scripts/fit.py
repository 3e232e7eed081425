"""Fit the efficiencies on measured steps: tables of times in, profiles/efficiency/*.yaml out.

`python scripts/fit.py --measured tests/data/measured --out profiles/efficiency` (= `make fit`)
"""

import argparse
import csv
from collections.abc import Collection, Hashable
from pathlib import Path
from zlib import crc32

import numpy as np
from fit_calibration_start import read_steps
from fit_kind import OPERATORS, Fitted, fit_kind, measured_steps, steps_of

from advisor.answers.accuracy_score import Compared, cheapest_choice, mean_kendall
from advisor.answers.validation import least_usd_per_hour
from advisor.catalog.load import load_catalog
from advisor.fit.files import file_name, yaml_text
from advisor.records.answer import Z_90
from advisor.records.device import DeviceKind, Efficiency
from advisor.records.measurement import Measurement

FILES = (
    "neusight_e2e.csv",
    "ryujaehun.csv",
    "timm_infer_amp_nchw_rtx3090.csv",
    "timm_infer_amp_nhwc_rtx3090.csv",
    "timm_infer_amp_nchw_rtx4090.csv",
    "timm_infer_amp_nchw_rtx4090_compile.csv",
    "timm_train_amp_nchw_rtx3090.csv",
    "timm_train_amp_nhwc_rtx3090.csv",
    "timm_infer_fp32_nchw_i9_10940x_compile.csv",
    "intel.csv",
    "neusight_ops.csv",
    "vidur_ops.csv",
    "matmuls.csv",
    "own/cpu_steps.csv",
)
CHECKED = "own/calibration_steps.csv"
"""Steps that calibrations are held to."""
SOURCES = (
    "NeuSight, timm, ryujaehun, Intel Neural Compressor, Vidur, torch-performance-test-data, own: "
    "tests/data/measured/README.md"
)
DATE = "2026-11-23"
SUSTAINED = Path(__file__).parent / "data/sustained.csv"
"""What `scripts/build_profiles.py` puts into the profiles of the measured devices."""
LONG_S = 1e-4
"""NeuSight's operators have 15 to 25 us of the host in their time, and convolutions of odd sizes 250 us and more."""
LARGE_PRODUCT = 8192
"""Smaller ones are over before a power limit acts: an L4 keeps up 0.51 of its peak at 2,048 and 0.36 from 8,192."""
OWN_LOG = 0.03
"""Figures of a device's own that differ less from 1 are left out."""
EVERY = 4
"""One timm net in four is fitted; the other three are there to test on."""


def main() -> None:
    """Fit, write, and show what is left on devices that the fit has not seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", type=Path, required=True, help="folder with the tables of measurements")
    parser.add_argument("--out", type=Path, required=True, help="folder for the efficiency files")
    arguments = parser.parse_args()
    steps = measured_steps([arguments.measured / name for name in FILES], wanted=is_fitted, timeout_s=120.0)
    checked = arguments.measured / CHECKED
    steps += steps_of(list(read_steps(checked)), table=checked.stem, timeout_s=120.0)
    written: list[Efficiency] = []
    sustained: dict[str, tuple[float, float]] = {}
    kinds: tuple[DeviceKind, ...] = ("gpu", "cpu")
    for kind in kinds:
        fitted = fit_kind(steps, kind=kind, date=DATE, sources=SOURCES)
        show(fitted)
        written += fitted.efficiencies
        sustained |= {name: one for name, one in fitted.sustained.items() if max(abs(np.log(one))) > OWN_LOG}
    for old in arguments.out.glob("*.yaml"):
        if "wholesteps" not in old.name:  # of scripts/fit_calibration_start.py, which starts from these
            old.unlink()
    for efficiency in written:
        (arguments.out / file_name(efficiency)).write_text(yaml_text(efficiency))
    with SUSTAINED.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("id", "sustained_compute_ratio", "sustained_memory_ratio", "source"))
        rows.writerows((name, f"{one[0]:.4g}", f"{one[1]:.4g}", f"make fit, {DATE}") for name, one in sustained.items())


def is_fitted(measurement: Measurement) -> bool:
    """Of timm's nets one in four, the same in every file; of single operators those that run for long.

    ryujaehun's cuDNN of 2020 found gradients in half and TF32 several times slower than others: of these none.
    """
    table = Path(measurement.file).stem
    if table == "ryujaehun" and measurement.mode != "inference" and measurement.precision != "fp32":
        return False
    if table == "matmuls":
        return measurement.batch >= LARGE_PRODUCT
    if measurement.model.startswith("operators.py::"):
        return measurement.step_s >= LONG_S and "::conv_" not in measurement.model
    return not measurement.model.startswith("timm:") or crc32(measurement.model.encode()) % EVERY == 0


def show(fitted: Fitted) -> None:
    """A line for every group of rows: how far predictions are off on a device left out."""
    for group in sorted({step.group for step in fitted.steps}):
        chosen = [index for index, step in enumerate(fitted.steps) if step.group == group]
        ratios = np.exp(-fitted.left_out.errors[chosen])
        errors = np.abs(ratios - 1)
        bias = np.exp(np.mean(np.log(ratios))) - 1
        print(*group, f"n {len(chosen)} mape {errors.mean():.3f} median {np.median(errors):.3f} bias {bias:+.3f}")
    show_intervals(fitted)
    tables = {step.group[0] for step in fitted.steps} - OPERATORS
    for table in sorted(tables):
        show_choices(fitted, table, tables={table})
    show_choices(fitted, "all", tables=tables)


def show_intervals(fitted: Fitted) -> None:
    """Of whole steps on devices left out: how many are inside their 90 % interval, and its median half-width over their
    mean error, both in log."""
    devices = np.array([step.device.id for step in fitted.steps])
    errors, half_widths = np.abs(fitted.left_out.errors), Z_90 * fitted.log_spreads
    stated = np.isfinite(half_widths)
    for name, of_device in [(name, devices == name) for name in sorted(set(devices[stated]))] + [("all", True)]:
        chosen = stated & of_device
        inside = (errors[chosen] <= half_widths[chosen]).mean()
        width = np.median(half_widths[chosen]) / errors[chosen].mean()
        print(f"{name}: {inside:.1%} of {chosen.sum()} inside, half-width {width:.2f} times the mean error")


def show_choices(fitted: Fitted, name: str, *, tables: Collection[str]) -> None:
    """Of steps that several devices ran, each device left out: their order, and the cheapest at list prices."""
    usd_per_hour = least_usd_per_hour(load_catalog())
    jobs: dict[Hashable, list[int]] = {}
    for index, step in enumerate(fitted.steps):
        if step.group[0] in tables:
            jobs.setdefault((step.group[0], step.job), []).append(index)
    blocks = []
    for members in jobs.values():
        measured_s = np.array([fitted.steps[index].measured_s for index in members])
        blocks.append(
            Compared(
                measured_s=measured_s,
                predicted_s=measured_s * np.exp(-fitted.left_out.errors[members]),
                usd_per_hour=[usd_per_hour.get(fitted.steps[index].device.id) for index in members],
            )
        )
    ranked = sum(len(block.measured_s) > 2 for block in blocks)
    if ranked == 0:
        return
    right_ratio, extra_ratio = cheapest_choice(blocks)
    print(f"{name}: {ranked} steps on three devices and more: Kendall {mean_kendall(blocks)};", end=" ")
    print(f"cheapest right {right_ratio}, extra cost {extra_ratio}")


if __name__ == "__main__":
    main()
