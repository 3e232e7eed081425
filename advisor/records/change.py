"""Defines the comparison of two answers or of two saved workloads."""

from dataclasses import dataclass
from typing import Literal

from advisor.records.price import ExchangeRate

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
    """One number before and after.

    - `ratio`: after / before; None if `before` is 0
    - `is_inside_interval`: the new number lies in the 90 % interval of the old one; None for numbers that are exact
    """

    measure: Measure
    before: float
    after: float
    ratio: float | None
    is_inside_interval: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceChange:
    """Time and cost before and after on two instances, each given as "provider instance (device)"."""

    before: str
    after: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleChange:
    """A module that changed, was added or was removed."""

    name: str
    flops: Change
    moved_bytes: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The differences between a base and a new answer or workload.

    - `counted`: exact counts of one step
    - `cheapest`: the best offer of each side; None if a side has none, and for workloads, which have no prices
    - `new_fits`: an instance can do the new job within its limits; None for workloads
    - `same_instance`: the base's best offer before and after, if it is no longer the best; else None
    - `modules`: modules that changed, for workloads, largest change of FLOP first
    - `notes`: other differences
    - `exchange_rate`: the currency of text, that of the new answer; numbers are in dollars
    """

    schema_version: int
    kind: Literal["answers", "workloads"]
    base: str
    new: str
    counted: tuple[Change, ...]
    cheapest: InstanceChange | None
    new_fits: bool | None
    same_instance: InstanceChange | None
    modules: tuple[ModuleChange, ...]
    notes: tuple[str, ...]
    exchange_rate: ExchangeRate | None = None
