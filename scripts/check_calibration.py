"""Checks the accuracy of CPU calibrations: compares predicted with measured step times on this machine.

    python scripts/check_calibration.py --name amd-epyc-9r45@2 --out FOLDER --kept tests/data/measured/own

Calibrates the CPU twice, as `advise calibrate` does, and prints how much the two calibrations differ. Then, for every
model, it calibrates again and times whole steps as `scripts/measure_steps.py` does. Each step is predicted with this
calibration, with the one from the beginning of the run, and without calibration. The start of a calibration is fitted
by ten-fold cross-validation on the steps and operators of other runs (`--kept`), without the predicted models.
Disturbed calibrations are repeated, and disturbed steps are measured a second time. Writes three tables into --out:
the predictions, and the steps and operators of this run in the format of `--kept`.
"""

import argparse
import csv
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import numpy as np
from fit_calibration_start import DEVICE, OPERATORS, PRECISIONS, STEPS, prepared, read_operators, read_steps, start_of
from measure_steps import DISTURBED_RATIO, FOLDER, Series, load_to_time, taken_ratio, time_series_step

from advisor.answers.validation import Run, predict_runs
from advisor.calibrate.calibration_run import calibrate
from advisor.calibrate.noise import noise_of
from advisor.calibrate.operator_process import TimingRequest, time_operators
from advisor.calibrate.own_efficiencies import WHOLE_STEPS, fit_calibration
from advisor.catalog.overlay import load_catalog
from advisor.devices.local_device import local_devices
from advisor.errors import AdvisorError
from advisor.fit.coefficients import COMPUTING
from advisor.machine.this_machine import this_machine
from advisor.records.calibration import TIMED_HERE, Calibration, NotCalibrated, TimedOperator, Timings
from advisor.records.device import Device, Efficiency, Precision
from advisor.records.machine import Machine
from advisor.records.measurement import FailedRow, MeasuredMode, Measurement, PredictedRow
from advisor.records.price import Catalog
from advisor.records.timing import StepTiming
from advisor.units import format_duration, parse_duration_s
from advisor.workload.loaded import LoadedModel
from advisor.workload.torch_devices import keep_freed_memory

TABLE = "calibration_check.csv"
EXAMPLES, NETS = "../../../../examples", "../../../../scripts/nets"
MODELS = (
    f"{EXAMPLES}/mlp.py",
    f"{EXAMPLES}/lstm.py",
    f"{EXAMPLES}/transformer.py",
    "timm:resnet18@224",
    "timm:resnet50@224",
    "timm:resnext50_32x4d@224",
    "timm:seresnet50@224",
    "timm:regnety_016@224",
    "timm:efficientnet_b0@224",
    "timm:mobilenetv2_100@224",
    "timm:mobilenetv3_large_100@224",
    "timm:ghostnet_100@224",
    "timm:convnext_tiny@224",
    "timm:densenet121@224",
    "timm:dla34@224",
    "timm:vit_tiny_patch16_224",
    "timm:vit_small_patch16_224",
    "timm:vit_base_patch16_224",
    "timm:vit_large_patch16_224",
    "timm:deit_tiny_patch16_224",
    "timm:swin_tiny_patch4_window7_224",
    "timm:mixer_b16_224",
    "timm:poolformer_s12",
    "timm:levit_256",
    "torchvision:vgg11",
    "torchvision:alexnet",
    "torchvision:shufflenet_v2_x1_0",
    "torchvision:squeezenet1_1",
    "torchvision:googlenet",
    "hf:configs/bert_base_128.json",
    "hf:configs/distilbert_128.json",
    "hf:configs/gpt2_small_256.json",
    "hf:configs/t5_small_128.json",
    "hf:configs/whisper_tiny_encoder.json",
    f"{NETS}/deep_mlp.py",
    f"{NETS}/diffusion.py",
    f"{NETS}/embedding_bag.py",
    f"{NETS}/graph.py",
    f"{NETS}/gru.py",
    f"{NETS}/long_attention.py",
    f"{NETS}/super_resolution.py",
    f"{NETS}/unet.py",
    f"{NETS}/video.py",
    f"{NETS}/wide_mlp.py",
)
"""Models of 0.1 to 304 million parameters."""
REGIMES: tuple[tuple[MeasuredMode, Precision], ...] = (
    ("inference", "fp32"),
    ("inference", "amp-bf16"),
    ("training", "fp32"),
    ("training", "amp-bf16"),
)
BATCHES = (1, 16)
SLOW_STEP_S = 5.0
"""A batch is left out if its step would take longer than this, in proportion to the batch before."""
CALIBRATION_TRIES = 3
DATASHEET_ERRORS = ((2.0, 1.0), (0.5, 1.0), (1.0, 1.6), (1.6, 1.3))
"""Factors by which a datasheet's peak and bandwidth are wrong; a calibration should compensate for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Steps of some models, and the start of calibrations fitted without these models."""

    runs: Sequence[Run]
    start: Sequence[Efficiency]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCalibration:
    """The operators of a calibration, and the standard deviation of the logarithm of their timings."""

    operators: Sequence[TimedOperator]
    noise_log: float


Operators = Mapping[str, TimedCalibration]
"""The operators of the calibration that predicts a model's steps, by model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A measured step and how much other processes disturbed it."""

    measurement: Measurement
    timing: StepTiming
    taken_ratio: float

    @property
    def disturbance(self) -> float:
        """The larger of the spread of the blocks and the share of the CPUs that other processes took."""
        return max(self.timing.iqr_ratio, self.taken_ratio)


def main() -> None:
    """Calibrate, time, predict, write the tables and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True, metavar="ID@CORES", help="name of this CPU in the written rows")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder for the tables")
    parser.add_argument(
        "--kept", type=Path, required=True, metavar="FOLDER", help="folder with the steps and operators of other runs"
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="run the series whose text contains this pattern")
    parser.add_argument(
        "--time-budget", type=parse_duration_s, default=10.0, help="time for each calibration, such as 10s"
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    machine, catalog = this_machine(), load_catalog()
    device = this_cpu()
    before = read_operators(arguments.kept / OPERATORS, device=DEVICE)
    (first, before_that), (second, early) = (
        calmly_calibrated(machine, catalog, budget_s=arguments.time_budget) for _ in range(2)
    )
    apart = difference(first, second)
    print(f"two consecutive calibrations: median difference of a coefficient {apart:.1%}", flush=True)
    keep_freed_memory()
    timed: list[Timed] = []
    operators: dict[str, TimedCalibration] = {}
    for model in MODELS:
        chosen = [
            one for one in series_of(model, device.id, int(machine.core_count)) if re.search(arguments.only, str(one))
        ]
        if chosen:
            _, operators[model] = calmly_calibrated(machine, catalog, budget_s=arguments.time_budget)
            timed += [row for one in chosen for row in measured(one)]
    used = [one for made in (before_that, early, *operators.values()) for one in made.operators]
    write(arguments.out / OPERATORS, (operator_row(one, device=arguments.name) for one in used))
    write(arguments.out / STEPS, (step_row(one, device=arguments.name) for one in timed))
    shipped = [one for one in catalog.efficiencies if one.generation != WHOLE_STEPS]
    runs = list(prepared([one.measurement for one in timed], device=device))
    kept = list(prepared(list(read_steps(arguments.kept / STEPS, device=DEVICE))))
    folds = list(starts_without(runs, kept, before, shipped))
    own = list(predicted(folds, operators, device, shipped))
    at_the_beginning = dict.fromkeys(operators, early)
    once = list(predicted(folds, at_the_beginning, device, shipped))
    plain = predicted_with(shipped, [run for fold in folds for run in fold.runs], device)
    timed_of = {one.measurement: one for one in timed}
    rows = [
        row_of(row, early_row, plain_row, timed_of[row.measurement])
        for row, early_row, plain_row in zip(own, once, plain, strict=True)
    ]
    write(arguments.out / TABLE, rows)
    show_errors(rows)
    for compute, memory in DATASHEET_ERRORS:
        claimed = predicted(folds, at_the_beginning, with_errors(device, compute=compute, memory=memory), shipped)
        errors = np.array([abs(row.predicted_s / row.measurement.step_s - 1) for row in claimed])
        print(
            f"datasheet peak times {compute:g}, bandwidth times {memory:g} | {len(errors)} | "
            f"{errors.mean():.1%} | {np.median(errors):.1%}"
        )


def this_cpu() -> Device:
    """Return the CPU of this machine."""
    found = [local.device for local in local_devices(this_machine(), load_catalog()) if local.id == "cpu"]
    if not found or found[0] is None:
        sys.exit("the CPU of this machine cannot be predicted")
    return found[0]


def write(table: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write a CSV file with the keys of the first row as its columns."""
    found = list(rows)
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


def operator_row(operator: TimedOperator, *, device: str) -> dict[str, object]:
    """Return a row of the table of operators."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": device,
        "name": operator.name,
        "precision": operator.precision,
        "batch": operator.batch,
        "step_s": f"{operator.step_s:.4g}",
        "iqr_ratio": f"{operator.iqr_ratio:.4g}",
    }


def calmly_calibrated(machine: Machine, catalog: Catalog, *, budget_s: float) -> tuple[Calibration, TimedCalibration]:
    """Return the first calibration without a warning, or the last of several tries."""
    for _ in range(CALIBRATION_TRIES):
        made = calibrated(machine, catalog, budget_s=budget_s)
        if not made[0].warnings:
            break
    return made


def calibrated(machine: Machine, catalog: Catalog, *, budget_s: float) -> tuple[Calibration, TimedCalibration]:
    """Calibrate the CPU; return the calibration and the operators timed for it."""
    begin_s = time.monotonic()
    timings: list[Timings] = []

    def time_them(request: TimingRequest) -> Timings:
        timings.append(time_operators(request))
        return timings[-1]

    (made,) = calibrate("cpu", machine=machine, catalog=catalog, budget_s=budget_s, time_them=time_them)
    if isinstance(made, NotCalibrated):
        sys.exit(made.reason)
    print(f"calibrated in {time.monotonic() - begin_s:.1f} s", flush=True)
    show(made.calibration)
    noise = noise_of(timings[-1], spare_cpu_count=0, used_cpu_count=machine.thread_count)
    return made.calibration, TimedCalibration(operators=timings[-1].operators, noise_log=noise.log_spread)


def difference(first: Calibration, second: Calibration) -> float:
    """Return the median relative difference of the coefficients that both calibrations timed."""
    before, after = coefficients(first), coefficients(second)
    common = [name for name in before if name in after and before[name] > 0]
    return float(np.median([abs(after[name] / before[name] - 1) for name in common]))


def coefficients(calibration: Calibration) -> dict[tuple[str, ...], float]:
    """Return the achieved share of peak compute of each family that was timed, by precision and family."""
    return {
        (efficiency.precision, family): entry.compute_ratio
        for efficiency in calibration.efficiencies
        for family, entry in efficiency.families.items()
        if entry.source == TIMED_HERE and family in COMPUTING
    }


def show(calibration: Calibration) -> None:
    """Print the number of operators, the median error and the warnings of a calibration."""
    print(f"{calibration.n} of {calibration.planned_count} operators, median error {calibration.median_ape:.1%}")
    for warning in calibration.warnings:
        print(f"warning: {warning}", flush=True)


def series_of(model: str, device: str, thread_count: int) -> Iterator[Series]:
    """Yield a series of the model for every mode and precision."""
    for mode, precision in REGIMES:
        yield Series(
            model=model,
            mode=mode,
            precision=precision,
            layout="nchw",
            compile="eager",
            device=device,
            thread_count=thread_count,
            batches=BATCHES,
        )


def measured(series: Series) -> Iterator[Timed]:
    """Time the steps of a series; if one fails, print the reason and leave out the rest."""
    sample_s = 0.0
    try:
        loaded = load_to_time(series)
        for batch in series.batches:
            if sample_s * batch > SLOW_STEP_S:
                return
            found = measured_step(loaded, series, batch)
            if found.disturbance > DISTURBED_RATIO:
                found = min(found, measured_step(loaded, series, batch), key=lambda one: one.disturbance)
            sample_s = found.timing.step_s / batch
            print(f"{series} batch {batch}: {format_duration(found.timing.step_s)}", flush=True)
            yield found
    except (AdvisorError, RuntimeError, TypeError, ValueError) as error:
        print(f"{series}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)


def measured_step(loaded: LoadedModel, series: Series, batch: int) -> Timed:
    """Time the step at one batch."""
    timing = time_series_step(loaded, series, batch=batch)
    measurement = Measurement(
        model=series.model,
        mode=series.mode,
        precision=series.precision,
        batch=batch,
        device=series.device,
        step_s=timing.step_s,
        source="own",
        file=str(FOLDER / STEPS),
        line=0,
    )
    return Timed(
        measurement=measurement, timing=timing, taken_ratio=taken_ratio(timing, thread_count=series.thread_count)
    )


def starts_without(
    runs: Sequence[Run],
    kept: Sequence[Run],
    before: Sequence[TimedOperator],
    shipped: Sequence[Efficiency],
) -> Iterator[Fold]:
    """Yield each tenth of the models with its runs and a start of calibrations fitted on the other models."""
    for held in tenths({run.measurement.model for run in runs}):
        others = [run for run in kept if run.measurement.model not in held]
        chosen = [run for model in held for run in runs if run.measurement.model == model]
        yield Fold(runs=chosen, start=start_of(others, before, shipped))


def predicted(
    folds: Iterable[Fold], operators: Operators, device: Device, shipped: Sequence[Efficiency]
) -> Iterator[PredictedRow]:
    """Predict every step with the calibration of its model's operators; `device` has the datasheet's figures."""
    for fold in folds:
        for model, runs in groupby(fold.runs, key=lambda run: run.measurement.model):
            own = fit_calibration(
                operators[model].operators,
                device,
                (*shipped, *fold.start),
                precisions=PRECISIONS,
                noise_log=operators[model].noise_log,
                date=fold.start[0].date,
            ).efficiencies
            yield from predicted_with((*shipped, *own), runs, device)


def predicted_with(efficiencies: Sequence[Efficiency], runs: Iterable[Run], device: Device) -> Iterator[PredictedRow]:
    """Predict every step; print and leave out the ones that cannot be predicted."""
    chosen = [replace(run, device=replace(run.device, device=device)) for run in runs]
    for row in predict_runs(chosen, replace(load_catalog(), efficiencies=tuple(efficiencies))):
        if isinstance(row, FailedRow):
            print(f"{row.measurement.model} cannot be predicted", file=sys.stderr)
        else:
            yield row


def with_errors(device: Device, *, compute: float, memory: float) -> Device:
    """Return the device with its peak compute and its bandwidth multiplied by these factors."""
    peaks = {unit: peak * compute for unit, peak in device.peak_flops_per_s.items()}
    return replace(device, peak_flops_per_s=peaks, memory_bytes_per_s=device.memory_bytes_per_s * memory)


def tenths(models: Iterable[str]) -> list[list[str]]:
    """Divide the models into ten parts, or into one part per model if there are fewer."""
    ordered = sorted(models)
    return [part for first in range(10) if (part := ordered[first::10])]


def step_row(timed: Timed, *, device: str) -> dict[str, object]:
    """Return a row of the table of steps."""
    today = datetime.now(UTC).date().isoformat()
    return {"date": today, "device": device, **measured_columns(timed)}


def measured_columns(timed: Timed) -> dict[str, object]:
    """Return the columns of the measurement, common to both tables of steps."""
    asked = timed.measurement
    numbers = {"measured_s": asked.step_s, "iqr_ratio": timed.timing.iqr_ratio, "taken_ratio": timed.taken_ratio}
    step = {"model": asked.model, "mode": asked.mode, "precision": asked.precision, "batch": asked.batch}
    return step | {name: f"{value:.4g}" for name, value in numbers.items()}


def row_of(own: PredictedRow, early: PredictedRow, plain: PredictedRow, timed: Timed) -> dict[str, object]:
    """Return a row of the table of predictions."""
    numbers = {
        "calibrated_s": own.predicted_s,
        "low_s": own.low_s,
        "high_s": own.high_s,
        "early_calibrated_s": early.predicted_s,
        "uncalibrated_s": plain.predicted_s,
    }
    return measured_columns(timed) | {name: f"{value:.4g}" for name, value in numbers.items()}


def show_errors(rows: Sequence[dict[str, object]]) -> None:
    """Print the mean and median errors with each calibration and without, for all rows and by regime."""
    regimes: dict[str, list[dict[str, object]]] = {"all": list(rows)}
    for row in rows:
        for name in (f"{row['mode']} {row['precision']}", f"batch {row['batch']}"):
            regimes.setdefault(name, []).append(row)
    logs = np.array([np.log(number(row, "measured_s") / number(row, "calibrated_s")) for row in rows])
    print(
        f"log(measured / calibrated): 90 % within 1.645 x {np.quantile(np.abs(logs), 0.9) / 1.645:.3f}, "
        f"median {np.median(logs):+.3f}"
    )
    print(
        "regime | n | mean error | median | inside 90 % | mean, calibrated at the beginning | median | "
        "mean, uncalibrated | median"
    )
    for name, chosen in regimes.items():
        columns = [errors_of(chosen, name) for name in ("calibrated_s", "early_calibrated_s", "uncalibrated_s")]
        (own, *others) = [f"{errors.mean():.1%} | {np.median(errors):.1%}" for errors in columns]
        inside = np.mean([number(row, "low_s") <= number(row, "measured_s") <= number(row, "high_s") for row in chosen])
        print(f"{name} | {len(chosen)} | {own} | {inside:.0%} | {' | '.join(others)}")


def errors_of(rows: Iterable[dict[str, object]], column: str) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return |predicted / measured - 1| of every row."""
    return np.array([abs(number(row, column) / number(row, "measured_s") - 1) for row in rows])


def number(row: dict[str, object], column: str) -> float:
    """Return a number as the table has it."""
    return float(str(row[column]))


if __name__ == "__main__":
    main()
