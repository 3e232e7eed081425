"""A question: one step, the options, the catalog in force, and what is known of this machine."""

from collections.abc import Callable
from dataclasses import dataclass

from advisor.calibrate.measured_beside import Measuring
from advisor.calibrate.store import Stored
from advisor.records.machine import Machine
from advisor.records.options import Options
from advisor.records.price import Catalog
from advisor.records.workload import Workload

TraceAt = Callable[[int], Workload]
"""Traces the source anew at a batch size, for models whose dimensions are not affine in it."""

ReadCalibrations = Callable[[Machine, Catalog], Stored]
"""What was timed on the machine at hand, or is timed now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What an answer is made from: a step, the options, every profile and price, and what is known of this machine."""

    workload: Workload
    options: Options
    catalog: Catalog
    trace_at: TraceAt | None = None
    machine: Machine | None = None
    calibrated: Stored | None = None
    measuring: Measuring | None = None
