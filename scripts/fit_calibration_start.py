"""Fits the start of CPU calibrations to the whole steps and operators that were timed on one CPU.

    python scripts/fit_calibration_start.py --measured tests/data/measured/own --out profiles/efficiency

Reads the tables that `scripts/check_calibration.py` writes, and writes an efficiency file per precision class.
Measurements of a second, noisier CPU did not improve the calibrations of either CPU, so one CPU is used.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from advisor.answers.validation import Run, prepare
from advisor.calibrate.design import probes
from advisor.calibrate.operator_child import trace_probe
from advisor.calibrate.own_efficiencies import fit_start, whole_step
from advisor.catalog.overlay import load_catalog
from advisor.fit.files import file_name, yaml_text
from advisor.records.calibration import TimedOperator
from advisor.records.device import Device, Efficiency, Precision
from advisor.records.measurement import Measurement

DEVICE = "amd-epyc-9r45@2"
"""The CPU with the least noise and the most runs."""
STEPS, OPERATORS = "calibration_steps.csv", "calibration_operators.csv"
PRECISIONS: tuple[Precision, ...] = ("fp32", "amp-bf16")


def main() -> None:
    """Read, trace, fit and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, help=f"folder with {STEPS} and {OPERATORS}")
    parser.add_argument("--out", type=Path, required=True, help="folder for the efficiency files")
    arguments = parser.parse_args()
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


def prepared(measurements: Sequence[Measurement], *, device: Device | None = None) -> Iterator[Run]:
    """Yield every measurement with its workload, on `device` or on its own; print the reason for each failure."""
    for one in prepare(measurements, load_catalog(), timeout_s=120.0, device=device):
        if isinstance(one, Run):
            yield one
        else:
            print(f"{one.measurement.model}: {one.reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
