"""Tables of measurements: the published ones in, rows and what was left out as CSV files out."""

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
    # A device as the sources write it -> the id of its profile.
    "rtx3090": "rtx-3090",
    "rtx4090": "rtx-4090",
    "cpu-i9_10940x": "intel-core-i9-10940x",
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
    "a100": "a100-sxm4-80gb",  # Vidur takes the SXM and the PCIe card for one; tests/data/measured/README.md
    "A100-SXM4-40GB": "a100-sxm4-40gb",
    "GeForce GTX 1080 Ti": "gtx-1080-ti",
    "GeForce RTX 2080 Ti": "rtx-2080-ti",
    "TITAN RTX": "titan-rtx",
    "TITAN V": "titan-v",
    "TITAN Xp": "titan-xp",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A published row that became none; the fields are the columns of `dropped.csv`, before the count."""

    file: str
    model: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What becomes NAME.csv, and what was left out of it."""

    name: str
    rows: Sequence[TimedStep]
    dropped: Sequence[Dropped]


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a published table, compressed or not."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def merged(rows: Iterable[TimedStep]) -> list[TimedStep]:
    """One row for each step, in the order of the first: the median of what was measured alike."""
    alike = grouped(rows, by=lambda row: replace(row, step_s=0.0, source=""))
    return [
        group[0]
        if len(group) == 1
        else replace(
            group[0],
            step_s=median(row.step_s for row in group),
            source=f"{group[0].source}, median of {len(group)} rows",
        )
        for group in alike.values()
    ]


def grouped(items: Iterable[ItemT], *, by: Callable[[ItemT], KeyT]) -> dict[KeyT, list[ItemT]]:
    """The items of each key, in their order."""
    groups: dict[KeyT, list[ItemT]] = {}
    for item in items:
        groups.setdefault(by(item), []).append(item)
    return groups


def write_rows(path: Path, rows: Sequence[TimedStep]) -> None:
    """Write measurement rows; times keep the seven digits that the sources have at most."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(TimedStep))
        for row in rows:
            writer.writerow(f"{value:.7g}" if isinstance(value, float) else value for value in astuple(row))


def write_dropped(path: Path, dropped: Iterable[Dropped]) -> None:
    """Write what was left out, with the number of published rows."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*(field.name for field in fields(Dropped)), "row_count"])
        writer.writerows([*astuple(row), count] for row, count in Counter(dropped).items())
