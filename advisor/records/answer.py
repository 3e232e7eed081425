"""The recommendation: ranked quotes, what was left out, and what everything rests on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from advisor.records.device import CompileMode, DeviceKind, Layout, Precision, TimeSource
from advisor.records.generation import Generation
from advisor.records.options import Objective
from advisor.records.price import ExchangeRate, PriceBasis, PriceKind, PriceMark, Rejection, Tier
from advisor.records.scale import Plan
from advisor.records.workload import Mode

if TYPE_CHECKING:
    from pathlib import Path

ANSWER_SCHEMA_VERSION = 1
GroupBy = Literal["family", "module", "phase"]
Bound = Literal["compute", "memory", "launch", "dispatch", "transfer", "loader", "communication"]
BOUNDS: tuple[Bound, ...] = ("compute", "memory", "launch", "dispatch", "transfer", "loader", "communication")
CostPart = Literal[
    "compute", "start-up", "lost-work", "billing-increments", "idle-time", "storage", "egress", "tax", "quota",
    "availability",
]  # fmt: skip

Z_90 = 1.645
"""Half the width of a 90 % interval in standard deviations of a normal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A middle and the ends of the 90 % interval around it: low <= mid <= high, whatever rounding made of the three."""

    mid: float
    low: float
    high: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", min(self.low, self.mid))
        object.__setattr__(self, "high", max(self.high, self.mid))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedDevice:
    """What the instance computes on, and how many of it there are."""

    id: str
    name: str
    kind: DeviceKind
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CostParts:
    """What the middle of a cost is the sum of. `lost_work`: done again after interruptions, restarts included."""

    compute: float
    start_up: float = 0.0
    lost_work: float = 0.0
    billing_increments: float = 0.0
    idle_time: float = 0.0
    storage: float = 0.0
    egress: float = 0.0
    tax: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenQuote:
    """A language model in service on an offer.

    `ttft_s`: time to first token, `tpot_s`: time per output token after it, with prompts of other requests read in
    between; `decode_s` is that of a pass of decode by itself. Tokens a second are those of answers, of one instance.
    Dollars are of a million tokens of answers, and of prompts and answers together: all that the job costs.

    `kv_cache_bytes` are of all requests in flight on an instance, at most; `weight_bytes` of one copy of the model.
    `compute_bound_from`: the fewest requests in flight on an instance, of the powers of two on each copy, with which
    decode is bound by computing and no longer by memory; None: its caches keep it bound by memory.
    """

    ttft_s: Interval
    tpot_s: Interval
    decode_s: float
    output_tokens_per_s: float
    usd_per_million_output_tokens: float
    usd_per_million_tokens: float
    kv_cache_bytes: float
    weight_bytes: float
    compute_bound_from: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """One offer with the predicted time and the cost of the job on it.

    `job_s` is from asking for the instance to the last step, so it holds `wait_s`, in which none can be had,
    `start_up_s` and `lost_s`, the time that interruptions of spot instances are expected to cost; of a service it
    is a month. `job_usd` is what `covers` names. `usd_per_million_samples` is of computing alone. `interruption`:
    the share of such spot instances that its provider took back within a month. `commitment_usd`: what the price
    obliges to, used or not. `on_pareto_front`: no other quote is both cheaper and sooner (of a service, with a
    shorter step).

    `price_marks` say why the price is doubtful: STALE (known to be out of date), SUSPECT (not credible), OLD.
    `loader_vcpus`: of an instance with a GPU, the vCPUs that it needs to load data as fast as the GPU takes it; of one
    without, those that loading takes from the computing. None: nothing is known of the loader.

    `is_tight`: whether the peak fits lies within the spread of what is not known of it exactly.

    `gpus_used` are those of all machines. Where a step runs on several, or in several passes, `plan` says how, and
    `scaling_efficiency_ratio` how long a step would take if they never waited for each other and divided all work, over
    how long it takes; `batch` is that of all together, `peak_memory_bytes` of one. `tokens`: where it is a
    language model in service.

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
    price_marks: tuple[PriceMark, ...]
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
    on_pareto_front: bool = False
    instance_count: int = 1
    idle_ratio: float = 0.0
    wait_s: float = 0.0
    start_up_s: float = 0.0
    start_up_measured: bool = False
    lost_s: float = 0.0
    interruption: str | None = None
    commitment_usd: float | None = None
    loader_vcpus: float | None = None
    is_tight: bool = False
    plan: Plan | None = None
    scaling_efficiency_ratio: float | None = None
    tokens: TokenQuote | None = None
    job_parts_usd: CostParts
    covers: tuple[CostPart, ...] = ("compute",)
    not_covered: tuple[CostPart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A step of the model timed on a device of this machine, beside what was predicted for it.

    `step_s`: the median of the faster half of `step_count` steps, and the ends between which 90 % of them took;
    `iqr_ratio` is their interquartile range over their median, `others_cpu_count` how many CPUs other processes kept
    busy meanwhile, 0 where that was not looked at.
    `predicted_s` is without it, by `time_source`. `carried_ratio`: what the times of other devices of its kind were
    multiplied by, where the same resource bounds the step. `loader_wait_s`: what the device waited for the data of a
    step, None where that was not seen.
    """

    device: QuotedDevice
    batch: int
    precision: Precision
    compile: CompileMode
    step_s: Interval
    step_count: int
    iqr_ratio: float
    others_cpu_count: float = 0.0
    predicted_s: Interval
    time_source: TimeSource
    carried_ratio: float
    loader_wait_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """One step at one batch size; its cost is of computing alone. What does not fit is shown as if it did.

    `ttft_s` and `tpot_s` are of a language model in service.
    """

    batch: int
    step_s: Interval
    samples_per_s: float
    usd_per_million_samples: float
    peak_memory_bytes: float
    fits: bool
    bound: Bound
    ttft_s: float | None = None
    tpot_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSweep:
    """The curves of throughput and cost over the batch on the offer `id`, which is ranked at `batch`."""

    id: str
    provider: str
    instance: str
    device: QuotedDevice
    precision: Precision
    usd_per_hour: float
    batch: int
    device_memory_bytes: float
    points: tuple[BatchPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePoint:
    """The job on so many machines of one type; fields are those of a `Quote`.

    `keeps_deadline`: the middle of `job_s` is within `--deadline`, or there is none.
    """

    instance_count: int
    gpus_used: int
    plan: Plan | None
    batch: int
    step_s: Interval
    job_s: Interval
    job_usd: Interval
    scaling_efficiency_ratio: float | None
    peak_memory_bytes: float
    keeps_deadline: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSweep:
    """The curves of time and cost over the machines of the offer `id`, which is ranked with `instance_count` of them.

    Each point has the plan and the batch that serve it best; numbers of machines that the step does not fit are left
    out.
    """

    id: str
    provider: str
    instance: str
    device: QuotedDevice
    precision: Precision
    usd_per_hour: float
    instance_count: int
    device_memory_bytes: float
    points: tuple[MachinePoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """What an offer must keep to be ranked. None: no such limit. `min_samples_per_s` is of one instance."""

    deadline_s: float | None = None
    max_usd: float | None = None
    max_usd_per_hour: float | None = None
    max_latency_s: float | None = None
    min_samples_per_s: float | None = None
    max_ttft_s: float | None = None
    max_tpot_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be done. `assumed`: the user named no size, so one million samples with the device kept busy.

    `loader_s_per_sample`: how long one vCPU takes to load a sample, None where it is not known, and then nothing waits.

    With `requests_per_day` it is a service that is on all day; `samples` are then the requests of a month.
    `requests_per_second`: the load was given so. Of a `generation` a sample is a request, and a batch the requests in
    flight on one instance.
    """

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
    tokens: int | None = None
    requests_per_day: int | None = None
    requests_per_second: float | None = None
    generation: Generation | None = None
    checkpoint_every_s: float | None = None
    loader_s_per_sample: float | None = None
    objective: Objective = "cost"
    limits: JobLimits = JobLimits()


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
    """The answer. In a terminal and in a notebook it shows itself as a table.

    `quotes` are cheapest first, or as `job.objective` says.

    `at_hand` is the device of this machine that does the job first, beside the ranking and not in it; its provider is
    "local" and its price the electricity of the user's own hardware, 0 where none is known. `quotes` hold it too where
    `--device local` asks for it. None: the answer leaves the machine at hand out, or no device of it can do the job.
    `notes` are what the headline rests on (defaults, overlays in force); `warnings` are what may make it wrong. Text is
    in the currency of `exchange_rate`; figures are dollars. `measured` are the steps that were timed here for it.
    `batch_sweeps` are of the best, of the best of the other kind of device and of devices that were named, where there
    are several sizes to choose from.
    `machine_sweep` is of the first quote that several machines can be had of, where `--max-machines` allows them.
    """

    schema_version: int
    job: Job
    workload: WorkloadSummary
    best: Quote | None
    quotes: tuple[Quote, ...]
    rejected: tuple[Rejection, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    at_hand: Quote | None = None
    measured: tuple[MeasuredStep, ...] = ()
    batch_sweeps: tuple[BatchSweep, ...] = ()
    machine_sweep: MachineSweep | None = None
    exchange_rate: ExchangeRate | None = None

    def __repr__(self) -> str:
        from shutil import get_terminal_size

        from advisor.report.text import render_text

        return render_text(self, width=get_terminal_size().columns, color=False)

    def _repr_html_(self) -> str:
        from advisor.report.notebook import render_html

        return render_html(self)

    def save(self, file: "str | Path", *, top: int = 10) -> None:
        """Write the answer as `advise SOURCE -o FILE` does, in the format that the suffix names: .txt .json .csv .md.

        `top`: rows of the formats for people; .json and .csv hold every row. Raises `UsageError` for another suffix.
        A report, .html, shows more than the answer: `advisor.save_report` writes it.
        """
        from pathlib import Path

        from advisor.report.formats import save_answer

        save_answer(self, Path(file), top=top)
