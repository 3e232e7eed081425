"""The recommendation: quotes, cheapest first, what was left out, and what everything rests on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from advisor.records.device import CompileMode, DeviceKind, Layout, Precision, TimeSource
from advisor.records.price import PriceBasis, PriceKind, Rejection, Tier
from advisor.records.workload import Mode

ANSWER_SCHEMA_VERSION = 1
GroupBy = Literal["family", "module", "phase"]
Bound = Literal["compute", "memory", "launch", "dispatch", "transfer"]
BOUNDS: tuple[Bound, ...] = ("compute", "memory", "launch", "dispatch", "transfer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A middle and the ends of the 90 % interval around it."""

    mid: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedDevice:
    """What the instance computes on, and how many of it there are."""

    id: str
    name: str
    kind: DeviceKind
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """One offer with the predicted time and the cost of the job on it.

    `chance_cheapest` is a ratio: the chance that no other ranked offer costs less. `indistinguishable`: the interval of
    its cost overlaps that of the first. Both look at the error that each device has of its own.
    """

    id: str
    provider: str
    tier: Tier
    region: str
    instance: str
    vcpus: int | None
    device: QuotedDevice
    gpus_used: int
    price_kind: PriceKind
    price_basis: PriceBasis
    usd_per_hour: float
    price_date: str
    precision: Precision
    compile: CompileMode
    batch: int
    step_s: Interval
    samples_per_s: float
    usd_per_million_samples: float
    job_usd: Interval
    job_s: Interval
    peak_memory_bytes: float
    device_memory_bytes: float
    fits: bool
    bound: Bound
    time_source: TimeSource
    chance_cheapest: float
    indistinguishable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be done. `assumed`: the user named no size, so one million samples with the device kept busy."""

    mode: Mode
    samples: int
    epochs: int | None
    steps: int | None
    assumed: bool
    batch: str
    precision: str
    layout: Layout
    compile: CompileMode
    price: PriceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """One step at the job's batch size (the source's own where the batch is chosen per device), in fp32 as traced."""

    batch: int
    flops: float
    read_bytes: float
    write_bytes: float
    peak_memory_bytes: float
    parameter_count: int
    op_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The part of a step that one family, module or phase does; `flops_ratio` is its share of all FLOP."""

    name: str
    flops: float
    read_bytes: float
    write_bytes: float
    op_count: int
    flops_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSummary:
    """What was counted, how much of it the formulas cover, how it was traced and what was assumed."""

    name: str
    totals: Totals
    coverage_ratio: float
    unknown_ops: Mapping[str, int]
    method: str
    optimizer: str | None
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Recommendation:
    """The answer. `quotes` are cheapest first; in a terminal and in a notebook it shows itself as a table.

    `notes` are what the headline rests on (defaults, overlays in force); `warnings` are what may make it wrong.
    """

    schema_version: int
    job: Job
    workload: WorkloadSummary
    best: Quote | None
    quotes: tuple[Quote, ...]
    rejected: tuple[Rejection, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        from shutil import get_terminal_size

        from advisor.report.text import render_text

        return render_text(self, width=get_terminal_size().columns, color=False)

    def _repr_html_(self) -> str:
        from advisor.report.notebook import render_html

        return render_html(self)
