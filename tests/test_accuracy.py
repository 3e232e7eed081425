"""Predictions beside published step times that no fit has seen; the README's table is this test's."""

import csv
from pathlib import Path

import numpy as np
import pytest

from advisor.catalog.load import load_catalog
from advisor.predict.capability import gpu_device
from advisor.predict.step_time import predict
from advisor.workload.sources.timm import load
from advisor.workload.trace import trace

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "tests" / "data" / "measured" / "timm_sample.csv"


@pytest.mark.slow
def test_the_accuracy_the_readme_states_is_measured() -> None:
    catalog = load_catalog()
    ratios: dict[str, list[float]] = {}
    inside: dict[str, list[bool]] = {}
    workloads = {}
    for row in csv.DictReader(SAMPLE.read_text().splitlines()):
        key = (row["model"], row["image_size"])
        if key not in workloads:
            loaded = load(f"{row['model']}@{row['image_size']}", mode="inference", specs=())
            workloads[key] = trace(loaded, mode="inference", batch=None)
        predicted = predict(
            workloads[key],
            devices=[gpu_device(catalog.gpus[row["device"]])],
            efficiencies=catalog.efficiencies,
            batches=np.array([int(row["batch"])]),
            precision="amp-fp16",
        )
        measured_s = float(row["step_s"])
        ratios.setdefault(row["device"], []).append(float(predicted.step_s[0, 0]) / measured_s)
        inside.setdefault(row["device"], []).append(
            bool(predicted.step_low_s[0, 0] <= measured_s <= predicted.step_high_s[0, 0])
        )
    lines = []
    for device, values in ratios.items():
        errors = np.abs(np.array(values) - 1)
        bias = float(np.exp(np.mean(np.log(values))) - 1)
        shares = [f"{errors.mean():.0%}", f"{np.median(errors):.0%}", f"{bias:+.0%}", f"{np.mean(inside[device]):.0%}"]
        lines.append(f"| {catalog.gpus[device].name} | {len(values)} | {' | '.join(shares)} |")

    readme = (ROOT / "README.md").read_text()
    assert all(line in readme for line in lines), lines
