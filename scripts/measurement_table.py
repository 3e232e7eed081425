"""Reads published tables and writes tables of measurements; a module of `scripts/list_measurements.py`."""

import csv
import gzip
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import TypeVar

from advisor.records.measurement import TimedStep

ItemT = TypeVar("ItemT")
KeyT = TypeVar("KeyT", bound=Hashable)

NEUSIGHT_COMMIT = "6945927d"

DEVICE_IDS = {
    # The sources' name of a device -> the id of its profile.
    "rtx3090": "rtx-3090",
    "rtx4090": "rtx-4090",
    "cpu-i9_10940x": "intel-core-i9-10940x",
    "4090": "rtx-4090",
    "5090": "rtx-5090",
    "AMD_Instinct_MI100": "mi100",
    "NVIDIA_A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "Tesla_P100-PCIE-16GB": "p100-pcie-16gb",
    "Tesla P100-PCIE-16GB": "p100-pcie-16gb",
    "Tesla_P4": "p4",
    "Tesla P4": "p4",
    "Tesla_T4": "t4",
    "Tesla T4": "t4",
    "Tesla_V100-PCIE-32GB": "v100-pcie-32gb",
    "Tesla V100-PCIE-32GB": "v100-pcie-32gb",
    "a40": "a40",
    "a100": "a100-sxm4-80gb",  # Vidur does not distinguish SXM and PCIe cards; see tests/data/measured/README.md
    "A100-SXM4-40GB": "a100-sxm4-40gb",
    "a100_sxm": "a100-sxm4-80gb",  # the source's bandwidth is 2,039 GB/s
    "h100_sxm": "h100-sxm5-80gb",
    "l40s": "l40s",
    "b200_sxm": "b200",
    "AMD Radeon 780M": "radeon-780m",
    "AMD Radeon RX 6800": "radeon-rx-6800",
    "AMD Radeon RX 7700S": "radeon-rx-7700s",
    "AMD Radeon RX 7700S NO OPT": "radeon-rx-7700s",
    "AMD Radeon RX 7900 XTX": "radeon-rx-7900-xtx",
    "GeForce RTX 2060 MaxQ": "rtx-2060-max-q",
    "GeForce RTX 4060 TI 16GB": "rtx-4060-ti",
    "GeForce GTX 1080 Ti": "gtx-1080-ti",
    "GeForce RTX 2080 Ti": "rtx-2080-ti",
    "TITAN RTX": "titan-rtx",
    "TITAN V": "titan-v",
    "TITAN Xp": "titan-xp",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A published row that was left out; the fields are the columns of `dropped.csv`, before the count."""

    file: str
    model: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rows of NAME.csv, and the published rows that were left out."""

    name: str
    rows: Sequence[TimedStep]
    dropped: Sequence[Dropped]


def read_csv(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file, gzipped or not."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def merged(rows: Iterable[TimedStep]) -> list[TimedStep]:
    """Return one row for each step, in order of first occurrence, with the median of rows that measure the same."""
    groups = grouped(rows, by=lambda row: replace(row, step_s=0.0, source=""))
    return [
        group[0]
        if len(group) == 1
        else replace(
            group[0],
            step_s=median(row.step_s for row in group),
            source=f"{group[0].source}, median of {len(group)} rows",
        )
        for group in groups.values()
    ]


def grouped(items: Iterable[ItemT], *, by: Callable[[ItemT], KeyT]) -> dict[KeyT, list[ItemT]]:
    """Return the items of each key, in their order."""
    groups: dict[KeyT, list[ItemT]] = {}
    for item in items:
        groups.setdefault(by(item), []).append(item)
    return groups


def write_rows(path: Path, rows: Sequence[TimedStep]) -> None:
    """Write measurement rows, with times of seven digits, the most that the sources have."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(TimedStep))
        for row in rows:
            writer.writerow(f"{value:.7g}" if isinstance(value, float) else value for value in astuple(row))


def write_dropped(path: Path, dropped: Iterable[Dropped]) -> None:
    """Write the rows that were left out, each with the number of equal ones."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*(field.name for field in fields(Dropped)), "row_count"])
        writer.writerows([*astuple(row), count] for row, count in Counter(dropped).items())
