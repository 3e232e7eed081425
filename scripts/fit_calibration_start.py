"""Fits the start of CPU calibrations to the whole steps and operators that were timed on one CPU.

    python scripts/fit_calibration_start.py --measured tests/data/measured/own --out profiles/efficiency

Reads the tables that `scripts/check_calibration.py` writes, and writes an efficiency file per precision class.
Measurements of a second, noisier CPU did not improve the calibrations of either CPU, so one CPU is used.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from shipped_fit import file_name

from advisor.answers.validation import Run, prepare
from advisor.calibrate.design import probes
from advisor.calibrate.operator_child import trace_probe
from advisor.calibrate.own_efficiencies import (
    STEP_LOG_SPREAD,
    WHOLE_STEPS,
    Sigmas,
    fit_steps,
    operator_key,
    operator_step,
    whole_step,
)
from advisor.catalog.overlay import load_catalog
from advisor.fit.files import yaml_text
from advisor.fit.sample import MeasuredStep
from advisor.predict.efficiency import precision_class
from advisor.predict.roofline import step_times
from advisor.records.calibration import TimedOperator
from advisor.records.device import Device, Efficiency, Precision
from advisor.records.measurement import Measurement

DEVICE = "amd-epyc-9r45@2"
"""The CPU with the least noise and the most runs."""
STEPS, OPERATORS = "calibration_steps.csv", "calibration_operators.csv"
PRECISIONS: tuple[Precision, ...] = ("fp32", "amp-bf16")
WHOLE_STEP_SIGMAS = Sigmas(device=None, scalar=1.0, compute=1.5, memory=1.5)
"""Wider priors than a calibration's: whole steps say more about the coefficients that all kernels share."""


def main() -> None:
    """Read, trace, fit and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, help=f"folder with {STEPS} and {OPERATORS}")
    parser.add_argument("--out", type=Path, required=True, help="folder for the efficiency files")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    runs = list(prepared(list(read_steps(arguments.measured / STEPS, device=DEVICE))))
    operators = read_operators(arguments.measured / OPERATORS, device=DEVICE)
    for efficiency in start_of(runs, operators, load_catalog().efficiencies):
        (arguments.out / file_name(efficiency)).write_text(yaml_text(efficiency), encoding="utf-8")


def read_steps(table: Path, *, device: str | None = None) -> Iterator[Measurement]:
    """Yield the steps in a table that scripts/check_calibration.py wrote: all, or only those of `device`."""
    with table.open(newline="", encoding="utf-8") as lines:
        for line, row in enumerate(csv.DictReader(lines), start=2):
            if device not in (None, row["device"]):
                continue
            yield Measurement(
                model=row["model"],
                mode="training" if row["mode"] == "training" else "inference",
                precision=next(one for one in PRECISIONS if one == row["precision"]),
                batch=int(row["batch"]),
                device=row["device"],
                step_s=float(row["measured_s"]),
                source="own",
                file=str(table),
                line=line,
            )


def read_operators(table: Path, *, device: str) -> list[TimedOperator]:
    """Return the operators of a device in a table that scripts/check_calibration.py wrote, with new traces."""
    planned = {(one.name, one.precision, one.batch): one for one in probes(PRECISIONS, size_factor=1)}
    traces = {key: trace_probe(probe) for key, probe in planned.items()}
    with table.open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["device"] == device]
    keyed = [((row["name"], row["precision"], int(row["batch"])), row) for row in rows]
    return [
        TimedOperator(
            name=planned[key].name,
            precision=planned[key].precision,
            batch=planned[key].batch,
            workload=traces[key],
            step_s=float(row["step_s"]),
            iqr_ratio=float(row["iqr_ratio"]),
        )
        for key, row in keyed
        if key in planned
    ]


def start_of(
    runs: Sequence[Run], operators: Sequence[TimedOperator], shipped: Sequence[Efficiency]
) -> tuple[Efficiency, ...]:
    """Fit the start of calibrations, for the device of the runs and for others."""
    steps = [
        whole_step(
            run.workload,
            run.device.device,
            precision=run.measurement.precision,
            batch=run.measurement.batch,
            step_s=run.measurement.step_s,
        )
        for run in runs
    ]
    today = datetime.now(UTC).date().isoformat()
    models = len({run.measurement.model for run in runs})
    source = f"scripts/fit_calibration_start.py, {len(runs)} steps of {models} models"
    device = runs[0].device.device
    return fit_start(steps, operators, device, shipped, precisions=PRECISIONS, date=today, source=source)


def fit_start(
    steps: Sequence[MeasuredStep],
    operators: Sequence[TimedOperator],
    device: Device,
    shipped: Sequence[Efficiency],
    *,
    precisions: Sequence[Precision],
    date: str,
    source: str,
) -> tuple[Efficiency, ...]:
    """Fit the start for calibrations of this kind of device to whole steps, as `whole_step` makes them.

    `operators` were timed on the same machine; an operator may occur several times.
    """
    made = fit_steps(
        steps,
        device,
        shipped,
        precisions=precisions,
        starts={},
        sigmas=WHOLE_STEP_SIGMAS,
        spread=STEP_LOG_SPREAD,
        date=date,
    )
    seen = {family for step in steps for family in step.kernels.families}
    return tuple(
        replace(
            one,
            device="*",
            core_count=None,
            vendor="*",
            generation=WHOLE_STEPS,
            source=source,
            families={
                name: replace(entry, source=WHOLE_STEPS) if name in seen else replace(entry, n=0)
                for name, entry in one.families.items()
            },
            operator_ratios=operator_ratios(
                [operator for operator in operators if precision_class(operator.precision) == one.precision],
                device,
                one,
                seen=seen,
            ),
        )
        for one in made.efficiencies
    )


def operator_ratios(
    operators: Sequence[TimedOperator], device: Device, efficiency: Efficiency, *, seen: Set[str]
) -> Mapping[str, float]:
    """Return measured over predicted time of every operator, as the median of its timings.

    The ratio of an operator with a family that is in no step is 1: nothing else is known about such a family.
    """
    ratios: dict[str, list[float]] = {}
    for operator in operators:
        step = operator_step(operator, device, step_s=operator.step_s)
        times = step_times(step.kernels, kind=device.kind, devices=[device], efficiencies=[efficiency])
        is_known = seen >= set(step.kernels.families)
        ratios.setdefault(operator_key(operator), []).append(
            operator.step_s / float(times.step_s[0, 0]) if is_known else 1.0
        )
    return {key: float(np.median(found)) for key, found in ratios.items()}


def prepared(measurements: Sequence[Measurement], *, device: Device | None = None) -> Iterator[Run]:
    """Yield every measurement with its workload, on `device` or on its own; print the reason for each failure."""
    for one in prepare(measurements, load_catalog(), timeout_s=120.0, device=device):
        if isinstance(one, Run):
            yield one
        else:
            print(f"{one.measurement.model}: {one.reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
