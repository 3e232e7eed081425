"""Fits the shipped efficiencies to measured steps.

    python scripts/fit.py --measured tests/data/measured --out profiles/efficiency (= the first half of make fit)

Reads the tables of measured steps, replaces the efficiency files in --out, and writes `scripts/data/sustained.csv`.
Prints the errors on devices left out of the fit. `--kind gpu` or `--kind cpu` does one half and leaves the other as it
is.
"""

import argparse
import csv
import re
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from zlib import crc32

import numpy as np
from fit_calibration_start import read_steps
from fit_kind import OPERATORS, Fitted, fit_kind, measured_steps, steps_of
from lockbox import is_locked, net_of
from shipped_fit import file_name

from advisor.answers.accuracy_score import Compared, cheapest_choice, mean_kendall
from advisor.answers.validation import least_usd_per_hour
from advisor.catalog.overlay import load_catalog
from advisor.fit.files import yaml_text
from advisor.fit.sample import MeasuredStep
from advisor.records.answer import Z_90
from advisor.records.device import DeviceKind, Efficiency
from advisor.records.measurement import Measurement
from advisor.records.prediction import FloatArray

SHARED = "shared_cpu_steps"
OWN_GPUS = "steps"
DASHBOARD = "inductor_dashboard"
FILES = (
    "neusight_e2e.csv",
    "ryujaehun.csv",
    "timm_infer_amp_nchw_rtx3090.csv",
    "timm_infer_amp_nhwc_rtx3090.csv",
    "timm_infer_amp_nchw_rtx4090.csv",
    "timm_infer_amp_nchw_rtx4090_compile.csv",
    "timm_infer_amp_nchw_rtx4090_torch29.csv",
    "timm_infer_amp_nchw_rtx4090_torch29_compile.csv",
    "timm_infer_amp_nchw_rtx5090_torch29.csv",
    "timm_infer_amp_nchw_rtx5090_torch29_compile.csv",
    "timm_train_amp_nchw_rtx3090.csv",
    "timm_train_amp_nhwc_rtx3090.csv",
    "timm_infer_fp32_nchw_i9_10940x_compile.csv",
    "intel.csv",
    "neusight_ops.csv",
    "vidur_ops.csv",
    "matmuls.csv",
    "aiconfigurator_matmuls.csv",
    "lamikr.csv",
    "own/cpu_steps.csv",
    f"own/{SHARED}.csv",
    f"{DASHBOARD}.csv",
    f"own/h100-sxm5-80gb-2026-11-27/{OWN_GPUS}.csv",
    f"own/h200-sxm-141gb-2026-11-27/{OWN_GPUS}.csv",
)
CHECKED = "own/calibration_steps.csv"
"""The steps on which calibrations are checked."""
KINDS: tuple[DeviceKind, ...] = ("gpu", "cpu")
SOURCES = (
    "NeuSight, timm, ryujaehun, lamikr, Intel Neural Compressor, TorchInductor's dashboard, Vidur, "
    "torch-performance-test-data, aiconfigurator, own: tests/data/measured/README.md"
)
DATE = date.today().isoformat()
SUSTAINED = Path(__file__).parent / "data/sustained.csv"
"""Own compute and bandwidth ratios, which `scripts/build_profiles.py` copies into the profiles of measured devices."""
LEAST_FILLED = 0.85
"""The least share of a step that its kernels must take for a step on our own GPUs to be fitted."""
LONG_S = 1e-4
"""NeuSight's times of operators contain 15 to 25 us of dispatch overhead, for convolutions of odd sizes 250 us or
more."""
LARGE_PRODUCT = 8192
"""Smaller matmuls end before a power limit takes effect: an L4 reaches 0.51 of its peak at 2,048, 0.36 from 8,192."""
OWN_LOG = 0.03
"""Own ratios of a device that differ less from 1 in log are not written."""
INTEGRATED = frozenset({"radeon-780m"})
"""GPUs without memory of their own: their bandwidth is that of the laptop, which nobody described."""
WRITTEN_ELSEWHERE = ("wholesteps", "neuroncore", "apple")
"""Parts of the names of files that `fit_calibration_start.py`, `fit_neuron.py` and `fit_apple.py` write."""
LOCKBOX = "lockbox"
EVERY = 4
"""One timm net in four is fitted; the other three are for testing."""


def main() -> None:
    """Fit both kinds of device, write the files, and print the errors on devices left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, help="folder with the tables of measurements")
    parser.add_argument("--out", type=Path, required=True, help="folder for the efficiency files")
    parser.add_argument("--kind", choices=KINDS, help="fit only this kind of device")
    parser.add_argument("--look", action="store_true", help="predict the lockbox, too (log it in experiments.md)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)  # fails now, not after the fit
    kinds = (arguments.kind,) if arguments.kind else KINDS
    gpus = load_catalog().gpus.keys()

    def is_wanted(measurement: Measurement) -> bool:
        return is_fitted(measurement) and ("gpu" if measurement.device in gpus else "cpu") in kinds

    steps = measured_steps([arguments.measured / name for name in FILES], wanted=is_wanted, timeout_s=120.0)
    if "cpu" in kinds:
        checked = arguments.measured / CHECKED
        steps += steps_of(list(read_steps(checked)), table=checked.stem, timeout_s=120.0)
    unlocked = [locked(step) if is_locked(step.device.id, step.model) else step for step in steps]
    written: list[Efficiency] = []
    sustained = {name: one for name, one in read_sustained().items() if ("gpu" if name in gpus else "cpu") not in kinds}
    for kind in kinds:
        fitted = fit_kind(unlocked, shipped=steps, kind=kind, date=DATE, sources=SOURCES)
        show(fitted, with_lockbox=arguments.look)
        written += fitted.efficiencies
        sustained |= {name: one for name, one in fitted.sustained.items() if max(abs(np.log(one))) > OWN_LOG}
    for old in (file for kind in kinds for file in arguments.out.glob(f"{kind}-*.yaml")):
        if not any(written in old.name for written in WRITTEN_ELSEWHERE):
            old.unlink()
    for efficiency in written:
        (arguments.out / file_name(efficiency)).write_text(yaml_text(efficiency))
    with SUSTAINED.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("id", "sustained_compute_ratio", "sustained_memory_ratio", "source"))
        rows.writerows((name, f"{one[0]:.4g}", f"{one[1]:.4g}", f"make fit, {DATE}") for name, one in sustained.items())


def read_sustained() -> dict[str, tuple[float, float]]:
    """Return the own ratios that the last fit wrote, by device."""
    with SUSTAINED.open(newline="") as file:
        return {
            row["id"]: (float(row["sustained_compute_ratio"]), float(row["sustained_memory_ratio"]))
            for row in csv.DictReader(file)
        }


def is_fitted(measurement: Measurement) -> bool:
    """Return whether the measurement is fitted: one of timm's nets in four, long single operators, most whole steps.

    All nets on a shared CPU are fitted, as in the table of calibrations: they are few, and their errors differ most. Of
    own GPUs all steps are fitted that the host did not delay, and of Intel's dashboard one model in two on all cores.
    ryujaehun's backward steps in half and TF32 are left out, since its cuDNN of 2020 ran them several times slower.
    """
    table = Path(measurement.file).stem
    if measurement.device in INTEGRATED:
        return False
    if table == DASHBOARD:
        return not measurement.device.endswith("@1") and crc32(net_of(measurement.model).encode()) % 2 == 0
    if table == OWN_GPUS:
        filled = re.search(r"kernels fill ([\d.]+)", measurement.source)
        return filled is not None and float(filled[1]) >= LEAST_FILLED
    if table == "ryujaehun" and measurement.mode != "inference" and measurement.precision != "fp32":
        return False
    if table == "matmuls":
        return measurement.batch >= LARGE_PRODUCT
    if measurement.model.startswith("operators.py::"):
        return measurement.step_s >= LONG_S and "::conv_" not in measurement.model
    is_few = table == SHARED or not measurement.model.startswith("timm:")
    return is_few or crc32(net_of(measurement.model).encode()) % EVERY == 0


def locked(step: MeasuredStep) -> MeasuredStep:
    """Return a step of the lockbox: it is predicted, but has no weight in the fit and its spreads."""
    return replace(step, trust=0.0, group=(LOCKBOX, *step.group))


def show(fitted: Fitted, *, with_lockbox: bool) -> None:
    """Print the errors on what was left out, for every group of rows, and how well they rank devices."""
    print(f"{fitted.shared_count} coefficients of all devices; at a bound:", *fitted.at_bounds or ["none"])
    for level, left in fitted.left_out.items():
        print(f"\n{level} left out whole; its offset adds to the spread of a known device's {fitted.unseen[level]:.3f}")
        show_errors(fitted.steps, left.errors, fitted.log_spreads[level], shown=lambda table: table != LOCKBOX)
    if with_lockbox:
        print("\nlockbox, its GPU or CPU unseen and the other devices seen")
        show_errors(fitted.steps, fitted.known.errors, fitted.known_log_spreads, shown=lambda table: table == LOCKBOX)
    tables = {step.group[0] for step in fitted.steps} - OPERATORS - {LOCKBOX}
    for table in sorted(tables):
        show_choices(fitted, table, tables={table})
    show_choices(fitted, "all", tables=tables)


def show_errors(
    steps: Sequence[MeasuredStep], errors: FloatArray, log_spreads: FloatArray, *, shown: Callable[[str], bool]
) -> None:
    """Print the errors of every group of rows of the `shown` tables, their coverage and the half-width of intervals.

    The half-width is that of 90 % intervals, relative to the mean error, both in log.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, step in enumerate(steps):
        if shown(step.group[0]) and not np.isnan(errors[index]):
            groups.setdefault(step.group, []).append(index)
    for group, members in sorted(groups.items()):
        ratios, half_widths = np.exp(-errors[members]), Z_90 * log_spreads[members]
        apes, logs = np.abs(ratios - 1), np.abs(errors[members])
        bias = np.exp(np.mean(np.log(ratios))) - 1
        print(
            *group,
            f"n {len(members)} mape {apes.mean():.3f} median {np.median(apes):.3f} bias {bias:+.3f}",
            f"inside {np.mean(logs <= half_widths):.0%} half-width {np.median(half_widths) / logs.mean():.2f}",
        )


def show_choices(fitted: Fitted, name: str, *, tables: Collection[str]) -> None:
    """Print how well predictions rank devices, by time and by cost at list prices, with each device left out.

    The steps are those of `tables` that several devices ran.
    """
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
                predicted_s=measured_s * np.exp(-fitted.left_out["device"].errors[members]),
                usd_per_hour=[usd_per_hour.get(fitted.steps[index].device.id) for index in members],
            )
        )
    ranked = sum(len(block.measured_s) > 2 for block in blocks)
    if ranked == 0:
        return
    right_ratio, extra_ratio = cheapest_choice(blocks)
    print(f"{name}: {ranked} steps on three or more devices: Kendall {mean_kendall(blocks)};", end=" ")
    print(f"cheapest device correct {right_ratio}, extra cost {extra_ratio}")


if __name__ == "__main__":
    main()
