"""What short timings on one machine gave: which machine, when, how disturbed, and its efficiencies."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.records.device import Efficiency, Precision

NET = "net of "
"""How the names of those timed modules begin that are whole nets in small."""
TIMED_HERE = "operators timed on this machine"
"""The `FamilyEfficiency.source` of a family that was timed, and not taken over from the shipped efficiency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationKey:
    """What timings depend on beside the operator: where any of it differs, a calibration does not hold.

    `device` is the id of a profile. A CPU has `core_count` and `thread_count`, a GPU `driver` and `power_limit_w`.
    `program` are digests of the code that predicts from the coefficients, and of the device's datasheet.
    """

    device: str
    core_count: float | None = None
    thread_count: int | None = None
    driver: str | None = None
    power_limit_w: float | None = None
    torch: str
    program: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Efficiencies fitted on timings of `n` operators of the `planned_count` that were designed for it.

    `at` is in UTC, ISO 8601; where some of the precisions were timed earlier than others, it is of the earliest, and
    `warnings` are those of all. `median_ape` is the median of |fitted / measured - 1| over the operators.
    `warnings` say what disturbed the timings, with the remedy. `host_to_device_bytes_per_s`: how fast a GPU's inputs
    are copied to it, None of what has none to copy.
    """

    key: CalibrationKey
    at: str
    n: int
    planned_count: int
    median_ape: float
    warnings: tuple[str, ...] = ()
    host_to_device_bytes_per_s: float | None = None
    efficiencies: tuple[Efficiency, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A calibration that was just made, and the file that keeps it; `problem` says why none does.

    `is_disturbed`: so much that it says less than the datasheet.
    """

    calibration: Calibration
    file: Path | None = None
    problem: str = ""
    is_disturbed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCalibrated:
    """A device that could not be timed, and why."""

    device: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOperator:
    """One step of a designed module, its trace as JSON; `iqr_ratio` is the spread of its blocks over their median.

    `pace_ratio` is how much slower than usual in the calibration the device was at that moment. On a CPU `step_s` is
    what the step would have taken at the usual pace: `pace_ratio` times that is what it took.
    """

    name: str
    precision: Precision
    batch: int
    workload: Mapping[str, Any]
    step_s: float
    iqr_ratio: float
    pace_ratio: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """What was timed before time ran out; `others_cpu_count` is how many CPUs other processes kept busy meanwhile.

    `is_interrupted`: the user pressed Ctrl-C.
    """

    operators: tuple[TimedOperator, ...]
    planned_count: int
    others_cpu_count: float
    host_to_device_bytes_per_s: float | None = None
    is_interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedDevice:
    """A profile of `file` from calibrations that came back: of which device, and the latest of their times.

    `core_count` None: a GPU. `torch` are the versions that it was timed with, oldest first.
    """

    device: str
    core_count: float | None
    precisions: tuple[str, ...]
    torch: tuple[str, ...]
    at: str
    file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What came back from a fleet; `problems` say of every file that is not in a profile, or differs, why."""

    devices: tuple[CollectedDevice, ...]
    problems: tuple[str, ...]
