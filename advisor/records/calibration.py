"""Defines the calibration of a machine: the key it is valid for, its timings and the fitted efficiencies."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.records.device import Efficiency, Precision

NET = "net of "
"""Prefix of the names of timed modules that are small complete networks."""
TIMED_HERE = "operators timed on this machine"
"""The `FamilyEfficiency.source` of a family that was timed on this machine rather than taken from the shipped data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationKey:
    """The conditions of a calibration; it is not valid if any of them differs.

    - `device`: id of the device's profile
    - `core_count`, `thread_count`: set for a CPU
    - `driver`, `power_limit_w`: set for a GPU
    - `torch`: version of torch
    - `program`: digests of the code that uses the coefficients, and of the device's datasheet
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
    """Efficiencies fitted on the timings of one device.

    - `at`: time of the calibration in UTC, ISO 8601; of the oldest part if precisions were timed at different times
    - `n`, `planned_count`: operators that were timed, out of those planned
    - `median_ape`: median of |fitted / measured - 1| over the operators
    - `warnings`: what disturbed the timings, and what to do about it
    - `host_to_device_bytes_per_s`: rate at which inputs are copied to a GPU; None for a device without copies
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
    """A calibration that was just made.

    - `file`: where it is stored; None if it could not be stored, for the reason in `problem`
    - `is_disturbed`: the timings were disturbed so much that the datasheet is more reliable
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
    """The timing of one step of a calibration module.

    - `workload`: its trace as JSON
    - `step_s`: time of the step; on a CPU, corrected to the usual pace: the measured time is `pace_ratio` times this
    - `iqr_ratio`: interquartile range of the timed blocks over their median
    - `pace_ratio`: how much slower the device was at that moment than usual during the calibration
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
    """All timings within the time budget.

    - `others_cpu_count`: CPUs that other processes kept busy during the timings
    - `is_interrupted`: the user pressed Ctrl-C
    """

    operators: tuple[TimedOperator, ...]
    planned_count: int
    others_cpu_count: float
    host_to_device_bytes_per_s: float | None = None
    is_interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedDevice:
    """A device whose collected calibrations were merged into the profile `file`.

    - `core_count`: None for a GPU
    - `torch`: versions of torch used for the timings, oldest first
    - `at`: time of the latest calibration
    """

    device: str
    core_count: float | None
    precisions: tuple[str, ...]
    torch: tuple[str, ...]
    at: str
    file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The calibrations collected from a fleet; `problems` explains every file that was not used or that differs."""

    devices: tuple[CollectedDevice, ...]
    problems: tuple[str, ...]
