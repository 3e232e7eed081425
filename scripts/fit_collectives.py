"""Fits what collectives of GPUs take beyond NCCL's own figures, and prints the errors of devices left out.

    python scripts/fit_collectives.py --measured tests/data/measured/collectives.csv --engine profiles/engines/vllm.yaml

Latencies, protocols and rates of links are NCCL's (`advisor/scale/collectives.py`, `links.py`). Two figures are fitted
for NCCL and printed, to be written there; four for an engine's own kernels, which are written into its file. Messages
of less than `LEAST_BYTES` through NCCL have no weight: one process started them on all GPUs, which takes longer on an
A100 and a B200 than the operation. PCIe has no weight either: one machine was measured.
"""

import argparse
import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from advisor.catalog.overlay import load_catalog
from advisor.fit.files import number
from advisor.predict.capability import gpu_device
from advisor.records.engine import DirectKernels
from advisor.records.prediction import FloatArray
from advisor.records.price import Catalog
from advisor.records.scale import Fabric, Link
from advisor.scale.collectives import SWITCH_RATIO, all_gather_s, all_reduce_s, all_to_all_s, tensor_all_reduce_s
from advisor.scale.links import OWN_PART_RATIO, inside_link

LEAST_BYTES = 2**20
ROBUST_SCALE = 0.15
"""Log error from which on a row counts linearly: a choice, without a source."""
SIZES = (0, 2**16, 2**20, 2**24, 2**31)
"""Ends of the groups of message sizes in the table."""
OPERATIONS = {"all_gather": all_gather_s, "reduce_scatter": all_gather_s, "all_to_all": all_to_all_s}
START = {
    "own_part_ratio": OWN_PART_RATIO,
    "nccl_switch_ratio": SWITCH_RATIO,
    "direct_s": 5e-6,
    "direct_ratio": 0.75,
    "switch_s": 1e-5,
    "switch_ratio": 0.5,
}
PRIOR_SIGMA, PRIOR_WEIGHT = 0.3, 0.1
"""The prior keeps a coefficient at its start if no row depends on it. Both are choices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured collective."""

    device: str
    software: str
    operation: str
    gpus: int
    message_bytes: float
    step_s: float

    @property
    def is_fitted(self) -> bool:
        """Return whether the row has weight."""
        return self.device != "l40s" and (self.software == "vllm" or self.message_bytes >= LEAST_BYTES)


class Model:
    """The links of the measured machines, and the predictions with some coefficients."""

    def __init__(self, catalog: Catalog, kernels: DirectKernels) -> None:
        self._gpus, self._kernels = catalog.gpus, kernels
        self._links: dict[tuple[str, int], Link] = {}

    def log_errors(self, rows: Sequence[Row], values: Mapping[str, float]) -> FloatArray:
        """Return log(predicted / measured)."""
        return np.log([self._seconds(row, values) / row.step_s for row in rows])

    def _seconds(self, row: Row, values: Mapping[str, float]) -> float:
        key = (row.device, row.gpus)
        if key not in self._links:
            self._links[key] = inside_link([gpu_device(self._gpus[row.device], gpu_count=row.gpus)], ways=row.gpus)
        link = self._links[key]
        nccl = replace(
            link,
            own_part_ratio=np.where(link.own_part_ratio, values["own_part_ratio"], 0.0),
            switch_bytes_per_s=link.switch_bytes_per_s * values["nccl_switch_ratio"] / SWITCH_RATIO,
        )
        fabric = Fabric(gpu_count=row.gpus, inside=nccl)
        if row.software == "nccl":
            return float(OPERATIONS.get(row.operation, all_reduce_s)(row.message_bytes, fabric).item())
        # The switch's rate is NCCL's above; undo that for the engine's kernel.
        kernels = replace(
            self._kernels,
            **{name: values[name] for name in ("direct_s", "direct_ratio", "switch_s")},
            switch_ratio=values["switch_ratio"] * SWITCH_RATIO / values["nccl_switch_ratio"],
        )
        return float(tensor_all_reduce_s(row.message_bytes, fabric, kernels=kernels, waiting_s=0.0).item())


def fit(model: Model, rows: Sequence[Row]) -> dict[str, float]:
    """Return the coefficients that fit the rows."""
    start = np.array([START[name] for name in START])

    def values_at(point: FloatArray) -> dict[str, float]:
        return dict(zip(START, (start * np.exp(point)).tolist(), strict=True))

    def residuals(point: FloatArray) -> FloatArray:
        errors = model.log_errors(rows, values_at(point))
        return np.concatenate([errors, PRIOR_WEIGHT * point / PRIOR_SIGMA])

    solved = least_squares(residuals, np.zeros(len(start)), loss="soft_l1", f_scale=ROBUST_SCALE, diff_step=1e-3)
    return values_at(solved.x)


def read_rows(path: Path) -> list[Row]:
    """Return the rows of the table."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Row(
                device=row["device"],
                software=row["software"],
                operation=row["operation"],
                gpus=int(row["gpus"]),
                message_bytes=float(row["message_bytes"]),
                step_s=float(row["step_s"]),
            )
            for row in csv.DictReader(file)
        ]


def show(model: Model, rows: Sequence[Row], values: Mapping[str, float]) -> None:
    """Print the mean error and the bias of each operation, by message size."""
    for software, operation in dict.fromkeys((row.software, row.operation) for row in rows):
        cells = []
        for low, high in pairwise(SIZES):
            some = [
                row
                for row in rows
                if (row.software, row.operation) == (software, operation) and low < row.message_bytes <= high
            ]
            errors = model.log_errors(some, values)
            cells.append(f"{np.abs(np.expm1(errors)).mean():4.0%} ({errors.mean():+.2f})")
        print(f"  {software} {operation:14}  {'  '.join(cells)}")


def main() -> None:
    """Fit, print the errors of each device left out, and write the engine's coefficients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, help="table of collectives")
    parser.add_argument("--engine", type=Path, required=True, help="file of the engine, whose kernels are rewritten")
    given = parser.parse_args()
    rows, catalog = read_rows(given.measured), load_catalog()
    model = Model(catalog, catalog.engines["vllm"].all_reduce)
    fitted = [row for row in rows if row.is_fitted]
    found = fit(model, fitted)
    print("mean error (bias of the logarithm) up to 64 KiB, 1 MiB, 16 MiB, 512 MiB or 1 GiB, the device left out:")
    for device in dict.fromkeys(row.device for row in rows):
        print(device)
        without = fit(model, [row for row in fitted if row.device != device])
        show(model, [row for row in rows if row.device == device], without)
    print({name: float(number(value)) for name, value in found.items()})
    text = given.engine.read_text(encoding="utf-8")
    for name in ("direct_s", "direct_ratio", "switch_s", "switch_ratio"):
        text = re.sub(rf"^  {name}: .*$", f"  {name}: {number(found[name])}", text, count=1, flags=re.MULTILINE)
    given.engine.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
