"""What a change did to a step and to its job: two answers, or two saved workloads, side by side."""

from dataclasses import dataclass
from typing import Literal

COMPARISON_SCHEMA_VERSION = 1
Measure = Literal[
    "flops",
    "moved_bytes",
    "parameter_count",
    "peak_memory_bytes",
    "step_s",
    "ttft_s",
    "tpot_s",
    "usd_per_million_tokens",
    "usd_per_hour",
    "job_s",
    "job_usd",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure before and after. `ratio` is after / before, None where there is nothing to divide by.

    `is_inside_interval`: the new figure lies inside the 90 % interval of the old one; None of what is counted or known.
    """

    measure: Measure
    before: float
    after: float
    ratio: float | None
    is_inside_interval: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceChange:
    """Time and cost on an instance before and after: "provider instance (device)", in `batch` and `precision`."""

    before: str
    after: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleChange:
    """A module that does more or less than before, or is new, or is gone."""

    name: str
    flops: Change
    moved_bytes: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`counted` is of one step, exact. `cheapest` compares the best of each side, `same_instance` the base's best with
    what it is now where that is no longer the best: None where a side has none, and of workloads, which have no prices.

    `modules` are those of workloads that changed, the largest change of FLOP first. `notes` say what else differs.
    """

    schema_version: int
    kind: Literal["answers", "workloads"]
    base: str
    new: str
    counted: tuple[Change, ...]
    cheapest: InstanceChange | None
    same_instance: InstanceChange | None
    modules: tuple[ModuleChange, ...]
    notes: tuple[str, ...]
