"""Fit what calibrations of CPUs start from: steps and operators in, an efficiency file of each class of precision out.

`python scripts/fit_calibration_start.py --measured tests/data/measured/own --out profiles/efficiency`; the steps and
the operators are those of one CPU. Another's beside them, a noisier one, made calibrations of neither better.
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
from advisor.catalog.load import load_catalog
from advisor.fit.files import file_name, yaml_text
from advisor.records.calibration import TimedOperator
from advisor.records.device import Device, Efficiency, Precision
from advisor.records.measurement import Measurement

DEVICE = "amd-epyc-9r45@2"
"""The calmest one, with the most runs."""
STEPS, OPERATORS = "calibration_steps.csv", "calibration_operators.csv"
PRECISIONS: tuple[Precision, ...] = ("fp32", "amp-bf16")


def main() -> None:
    """Read, trace, fit and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, help=f"folder of {STEPS} and {OPERATORS}")
    parser.add_argument("--out", type=Path, required=True, help="folder of efficiency files")
    arguments = parser.parse_args()
    runs = list(prepared(list(read_steps(arguments.measured / STEPS, device=DEVICE))))
    operators = read_operators(arguments.measured / OPERATORS, device=DEVICE)
    for efficiency in start_of(runs, operators, load_catalog().efficiencies):
        (arguments.out / file_name(efficiency)).write_text(yaml_text(efficiency), encoding="utf-8")


def read_steps(table: Path, *, device: str | None = None) -> Iterator[Measurement]:
    """The steps in a table that scripts/check_calibration.py wrote, all or those of a device."""
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
    """The operators of a device in a table that scripts/check_calibration.py wrote, traced anew."""
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
    """What calibrations are to start from, of the device of the runs and of others."""
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
    """Every measurement with its workload, on `device` or on the one that it names; one that has none is told."""
    for one in prepare(measurements, load_catalog(), timeout_s=120.0, device=device):
        if isinstance(one, Run):
            yield one
        else:
            print(f"{one.measurement.model}: {one.reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
