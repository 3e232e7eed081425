"""Defines the recommendation: ranked quotes, rejected offers, and the assumptions behind them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from advisor.records.device import Architecture, CompileMode, DeviceKind, Layout, Precision, TimeSource
from advisor.records.displayed import Displayed
from advisor.records.energy import Grid, Watts
from advisor.records.generation import Generation
from advisor.records.options import Objective, Statistic
from advisor.records.price import ApiPrice, ExchangeRate, PriceBasis, PriceKind, PriceMark, Tier, TorchWheel
from advisor.records.rejection import Rejection
from advisor.records.scale import Plan
from advisor.records.workload import Mode

if TYPE_CHECKING:
    from pathlib import Path


ANSWER_SCHEMA_VERSION = 1
GroupBy = Literal["family", "module", "phase"]
Bound = Literal["compute", "memory", "launch", "dispatch", "transfer", "loader", "communication"]
BOUNDS: tuple[Bound, ...] = get_args(Bound)
CostPart = Literal[
    "compute", "start-up", "lost-work", "billing-increments", "idle-time", "storage", "egress", "tax", "quota",
    "availability",
]  # fmt: skip

Z_90 = 1.645
"""Half the width of the 90 % interval of a normal distribution, in standard deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A point estimate and the ends of its 90 % interval; low <= mid <= high is enforced against rounding errors."""

    mid: float
    low: float
    high: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", min(self.low, self.mid))
        object.__setattr__(self, "high", max(self.high, self.mid))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedDevice:
    """The device of an instance, and how many of it the instance has."""

    id: str
    name: str
    kind: DeviceKind
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChance:
    """The probability that the cheapest offer with a trusted price has this device, from 0 to 1."""

    id: str
    name: str
    kind: DeviceKind
    chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostParts:
    """The parts, in dollars, that add up to the point estimate of a cost.

    - `lost_work`: work repeated after interruptions, with the restarts
    """

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
    """Time and cost per token of LLM serving on an offer.

    - `ttft_s`: time to first token
    - `tpot_s`: time per output token after the first, including prefill of other requests in between
    - `decode_s`: time of one decode pass alone
    - `output_tokens_per_s`: throughput of one instance
    - `usd_per_million_output_tokens`, `usd_per_million_tokens`: the full cost of the job per million output tokens, and
      per million prompt and output tokens together
    - `kv_cache_bytes`: the maximum over all requests in flight on an instance
    - `weight_bytes`: the weights of one replica
    - `undrafted_tpot_s`: `tpot_s` without speculative decoding; None if nothing is drafted
    - `kernels`: what its kernels for narrow weights and KV caches do; empty where all is in 16 bits
    - `compute_bound_from`: the fewest requests in flight on an instance at which decode is compute-bound, checked at
      powers of two per replica; None if decode is bandwidth-bound at all of them
    - `ttft_p50_s`, ..., `tpot_p99_s`: of a service, percentiles over requests that arrive at random; None without a
      load. The TPOT of a request is its mean
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
    kernels: str = ""
    undrafted_tpot_s: float | None = None
    ttft_p50_s: float | None = None
    ttft_p90_s: float | None = None
    ttft_p95_s: float | None = None
    ttft_p99_s: float | None = None
    tpot_p50_s: float | None = None
    tpot_p90_s: float | None = None
    tpot_p95_s: float | None = None
    tpot_p99_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """One offer with the predicted time and cost of the job.

    - `host_cpu`: the CPU whose clock sets the time to dispatch the operators to a GPU; None if it is not known and a
      clock of 4 GHz is assumed, and for a CPU
    - `architecture`: of the CPU; None if not known
    - `wheel`: the wheel of PyTorch that the GPU needs; None if `pip install torch` installs one for it
    - `gpus_used`: GPUs of the plan: on all machines together, or of one replica of a service
    - `usd_per_hour`: of one machine; for a service on owned hardware the mean over busy and idle hours
    - `price_is_trusted`: the price is recent enough, for its tier and its source, to head the answer
    - `is_candidate`: the price is trusted; a step or an operator was measured on the device's generation, or the upper
      end of the cost, with an hour of rent more than theirs, is below the cost of all such offers; and, for a job
      without a given size, no machine of fewer devices costs less with its start-up (`advisor.cost.leading`)
    - `may_lead`: a candidate, and, for a job without a given size, no smaller machine costs about the same
    - `price_adjustment`: how the user's terms changed the price, such as "less 12 %"; empty if they did not
    - `price_marks`: why the price is doubtful: STALE (known to be out of date), SUSPECT (not credible), OLD
    - `batch`: the global batch over all GPUs
    - `usd_per_million_samples`: cost of the computing time only
    - `job_usd`: cost of the parts that `covers` names
    - `job_s`: time from requesting the instance to the last step, including `wait_s`, `start_up_s` and `lost_s`; for a
      service, a month
    - `peak_memory_bytes`: peak memory of one device
    - `chance_cheapest`: the probability that no other ranked offer costs less, from 0 to 1; it counts the errors of the
      device, the host and the price, each shared by the offers that have it, not the error that all devices share
    - `chance_among_trusted`: the same among candidates, or all if there are none; 0 for the others
    - `indistinguishable`: the interval of the cost overlaps that of the best quote, by the same errors
    - `on_pareto_front`: no other quote is both cheaper and faster (for a service, with a lower `p99_s`)
    - `p50_s`, `p99_s`: of a service, the median and the 99th percentile of a request's latency, with the wait in the
      queue; None for other jobs
    - `server_count`: of a service, the batches that an instance works on at a time
    - `wait_s`: wait for the instance, from the user's overlay
    - `software_s`, `weights_s`: the parts of `start_up_s` that install packages and images, and that read the weights
    - `lost_s`: expected time lost to spot interruptions
    - `interruption`: the share of these spot instances that the provider interrupts within a month
    - `interruption_is_assumed`: no share is known for this offer
    - `commitment_usd`: what a committed price must be paid over its term, used or not
    - `loader_vcpus`: vCPUs needed to load data at the speed of the GPU, or, on an instance without a GPU, vCPUs that
      loading takes from computing; None if the loader is not known
    - `is_tight`: the peak memory may or may not fit, within its uncertainty
    - `plan`: how the step is spread over several GPUs or passes; None if it is not
    - `scaling_efficiency_ratio`: speed-up over one GPU with the same batch, its memory taken to suffice, divided by the
      number of GPUs; in LLM serving of each copy of the model, with the copy's requests
    - `tokens`: times and costs per token in LLM serving
    - `power`: of one machine while the step runs; None if not known
    - `energy_kwh`: energy of all machines, without cooling and losses of the data centre; None if not known
    - `co2_kg`: by the annual average of the local grid, with the PUE where it is published; None if not known
    - `on_co2_front`: no other quote with known CO2 costs less and emits less
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
    price_adjustment: str = ""
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
    chance_among_trusted: float = 0.0
    price_is_trusted: bool = True
    is_candidate: bool = True
    may_lead: bool = True
    on_pareto_front: bool = False
    architecture: Architecture | None = None
    wheel: TorchWheel | None = None
    instance_count: int = 1
    idle_ratio: float = 0.0
    p50_s: float | None = None
    p99_s: float | None = None
    server_count: int = 1
    wait_s: float = 0.0
    start_up_s: float = 0.0
    software_s: float = 0.0
    weights_s: float = 0.0
    start_up_measured: bool = False
    lost_s: float = 0.0
    interruption: str | None = None
    interruption_is_assumed: bool = False
    commitment_usd: float | None = None
    loader_vcpus: float | None = None
    is_tight: bool = False
    host_cpu: str | None = None
    plan: Plan | None = None
    scaling_efficiency_ratio: float | None = None
    tokens: TokenQuote | None = None
    power: Watts | None = None
    energy_kwh: Interval | None = None
    co2_kg: Interval | None = None
    on_co2_front: bool = False
    job_parts_usd: CostParts
    covers: tuple[CostPart, ...] = ("compute",)
    not_covered: tuple[CostPart, ...] = ()

    @property
    def needs_measurement(self) -> bool:
        """True if only the lack of measurements of its device's generation keeps the offer from being a candidate."""
        return self.price_is_trusted and not self.is_candidate and self.time_source == "datasheet"

    @property
    def time_s(self) -> float:
        """The time that the ranking by time uses: of the job, or the 99th percentile of a service's latency."""
        return self.job_s.mid if self.p99_s is None else self.p99_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A step of the model timed on a device of this machine, and its prediction.

    - `step_s`: the median of the faster half of `step_count` steps, and the range of 90 % of them
    - `iqr_ratio`: interquartile range of the steps over their median
    - `others_cpu_count`: CPUs that other processes kept busy during the timing; 0 if not checked
    - `is_disturbed`: they were CPUs that the step needed; no prediction rests on such a step
    - `predicted_s`: the prediction without this measurement, from `time_source`
    - `carried_ratio`: the factor applied to the times of other devices of the same kind, where the step has the same
      bottleneck
    - `loader_wait_s`: how long the device waited for the data of a step; None if not observed
    """

    device: QuotedDevice
    batch: int
    precision: Precision
    compile: CompileMode
    step_s: Interval
    step_count: int
    iqr_ratio: float
    others_cpu_count: float = 0.0
    is_disturbed: bool = False
    predicted_s: Interval
    time_source: TimeSource
    carried_ratio: float
    loader_wait_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """One step at one batch size; a batch that does not fit is predicted as if it did.

    - `usd_per_million_samples`: cost of the computing time only
    - `ttft_s`, `tpot_s`: set for LLM serving only
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
class SweptMachine:
    """The machine of the offer `id`, over which something is varied."""

    id: str
    provider: str
    instance: str
    device: QuotedDevice
    precision: Precision
    usd_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSweep(SweptMachine):
    """Throughput and cost over the batch size on the offer `id`; the ranking uses `batch`."""

    batch: int
    device_memory_bytes: float
    points: tuple[BatchPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePoint:
    """The job on `instance_count` machines of one type, with fields as in `Quote`.

    - `keeps_deadline`: the point estimate of `job_s` is within `--deadline`, or there is no deadline
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
class MachineSweep(SweptMachine):
    """Time and cost over the number of machines of the offer `id`; the ranking uses `instance_count`.

    Each point has its best plan and batch. Numbers of machines on which the step does not fit are left out.
    """

    instance_count: int
    device_memory_bytes: float
    points: tuple[MachinePoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPoint:
    """The users that a machine serves whose prompt and answer have `context_tokens` together, busy all the time.

    - `most_in_flight`: as many requests as memory and the engine's limit allow; 0 if not even one fits
    - `in_flight`: the number from which on less than 5 % more tokens a second are gained; the other fields are at it
    - `machine_count`: machines that serve them together
    - `usd_per_million_tokens`: of prompts and answers together, compute time only
    """

    context_tokens: int
    most_in_flight: int = 0
    in_flight: int = 0
    machine_count: int = 1
    output_tokens_per_s: float | None = None
    usd_per_million_tokens: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSweep(SweptMachine):
    """How many users the machine of the offer `id` serves at each length of context."""

    points: tuple[ContextPoint, ...]


def _limit(option: str, *, part: str = "") -> Any:
    """Return a field with the value of this field of `Options`, or of a part of it."""
    return field(default=None, metadata={"option": option, "part": part})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """Limits that an offer must keep to be ranked; None means no limit.

    - `min_samples_per_s`: of one instance
    - `ttft_of`, `tpot_of`: what `max_ttft_s` and `max_tpot_s` bound
    """

    deadline_s: float | None = _limit("deadline")
    max_usd: float | None = _limit("max_usd")
    max_usd_per_hour: float | None = _limit("max_hourly")
    max_co2_kg: float | None = _limit("max_co2")
    max_latency_s: float | None = _limit("max_latency")
    min_samples_per_s: float | None = _limit("min_throughput")
    max_ttft_s: float | None = _limit("max_ttft", part="seconds")
    ttft_of: Statistic = field(default="mean", metadata={"option": "max_ttft", "part": "of"})
    max_tpot_s: float | None = _limit("max_tpot", part="seconds")
    tpot_of: Statistic = field(default="mean", metadata={"option": "max_tpot", "part": "of"})
    p99_s: float | None = _limit("p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The job to price.

    - `samples`: all samples of the job; for a service, the requests of a month
    - `packed_samples`: samples of the data set, which are packed into `samples` sequences; None if they are not packed
    - `assumed`: the user gave no size, so the job is one million samples on a busy device
    - `requests_per_day`: set for an always-on service
    - `requests_per_second`: set if the user gave the load in this unit
    - `max_utilization`: the largest share of its capacity that the load of a service may use
    - `generation`: set for LLM serving, where a sample is a request and a batch is the requests in flight per instance
    - `loader_s_per_sample`: time one vCPU needs to load a sample; None if not known, then nothing waits for data
    - `loader_workers`: processes that load, 0 if the step waits for its data; None if there is one for each vCPU
    - `weight_bytes`: the file of the model's weights, which every machine reads when it starts; 0 if there is none
    - `trained_bytes`: the trained weights, which leave the cloud at the end; 0 in inference
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
    packed_samples: int | None = None
    requests_per_day: int | None = None
    requests_per_second: float | None = None
    max_utilization: float = 0.7
    generation: Generation | None = None
    checkpoint_every_s: float | None = None
    loader_s_per_sample: float | None = None
    loader_workers: int | None = None
    weight_bytes: float = 0.0
    trained_bytes: float = 0.0
    objective: Objective = "cost"
    limits: JobLimits = JobLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """One step in fp32 as traced, at the job's batch size, or the source's own if the batch is chosen per device."""

    batch: int
    flops: float
    read_bytes: float
    write_bytes: float
    peak_memory_bytes: float
    parameter_count: int
    op_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The part of a step in one operator family, module or phase; `flops_ratio` is its share of all FLOP."""

    name: str
    flops: float
    read_bytes: float
    write_bytes: float
    op_count: int
    flops_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSummary:
    """The counts of a step, the share covered by formulas, the tracing method and the assumptions."""

    name: str
    totals: Totals
    coverage_ratio: float
    unknown_ops: Mapping[str, int]
    method: str
    optimizer: str | None
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """The cheapest offer of one device kind, with the job on it; `samples_per_s` is per instance.

    - `is_candidate`: as in a quote, among the offers of both kinds
    """

    id: str
    name: str
    device: QuotedDevice
    usd_per_hour: float
    price_is_trusted: bool
    is_candidate: bool
    instance_count: int
    precision: Precision
    batch: int
    step_s: Interval
    samples_per_s: float
    time_source: TimeSource
    job_s: Interval
    job_usd: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The CPU and the GPU at one point of a curve; None if no offer of that kind does the job within the limits.

    - `cost_ratio`: CPU cost over GPU cost, above 1 if the GPU is cheaper; None if one is missing. Its interval holds
      the errors of both devices and prices, not those of counts and traces, which affect both alike
    """

    at: int
    cpu: Contender | None
    gpu: Contender | None
    cost_ratio: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A point of a curve from which on `cheaper` is the cheaper device kind.

    - `low`, `high`: ends of the 90 % interval of `at`: below `low` the kind is surely more expensive, from `high` on
      surely cheaper; None if the end lies outside the curve
    """

    at: int
    low: int | None
    high: int | None
    cheaper: DeviceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiComparison:
    """A service of one's own and an API with the same model.

    - `usd_per_request`: what the API charges for the tokens of a request, with the tax of the user's overlay
    - `usd_per_month`: what it charges for the requests of the job, if it is a service
    - `crossing`: requests per day from which on the service is cheaper; None if it never is
    - `own`: the cheapest service there, or, if it is never cheaper, at the most requests per day that were compared
    - `requests_per_day`, `own_usd_per_request`: the load of `own`, and its cost divided by the requests
    """

    price: ApiPrice
    usd_per_request: float
    usd_per_month: float | None
    crossing: Crossing | None
    own: Contender
    requests_per_day: int
    own_usd_per_request: float


SituationKind = Literal["busy", "once", "service"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The cheapest CPU and the cheapest GPU in one use of the model, by the rules of `advise breakeven`.

    - `kind`: "busy" pays for computing alone; "once" also for start-up and minimum billing; "service" for instances
      that are always on
    - `point`: both at this many samples, or requests per day for a service
    - `crossings`: the numbers of samples, or of requests per day, from which on the other kind is cheaper; none for
      "busy", where the ratio does not depend on the number
    - `at_crossing`: both at the first crossing, where the other kind has just become the cheaper one
    """

    kind: SituationKind
    point: CurvePoint
    crossings: tuple[Crossing, ...] = ()
    at_crossing: CurvePoint | None = None


Choice = Literal["cheapest", "balanced", "fastest"]


AlternativeKind = Literal["cheapest", "fastest", "budget", "deadline", "split", "flag"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """An offer outside the limits, named when no offer keeps all of them.

    - `kind`: "cheapest", "fastest": without any limit; "budget", "deadline": what --max-usd or --deadline alone buys;
      "split": inference split by hand over the `instance_count` machines of the quote; "flag": the answer with one flag
      changed
    - `flag`: what to type, such as `--batch auto`; "" if the whole job is done
    - `done_ratio`: the share of the job that is done
    """

    kind: AlternativeKind
    quote: Quote
    flag: str = ""
    done_ratio: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Recommendation(Displayed, report="recommendation"):
    """The answer; it is displayed as a table in a terminal and in a notebook.

    - `quotes`: cheapest first, or in the order of `job.objective`
    - `best`: the first quote that may lead (`Quote.may_lead`); the first of all if none may
    - `better_if_price_holds`: the first quote before `best` whose price is too old or too uncertain
    - `better_if_prediction_holds`: the first quote before `best` that `needs_measurement`
    - `chance_by_device`: `chance_among_trusted` of the quotes, added up for each device, the likeliest first
    - `best_by_tier`: the best quote of each tier, by the same rule, without the local machine
    - `best_rented`: the best of the rented offers, judged without owned hardware; None if none of that is in `quotes`
    - `best_in_auto`: for a script, the best quote in the precision that `--precision auto` takes for a model, if it
      costs over 5 % less than `best`
    - `notes`: what the answer is based on, such as defaults and overlays in use
    - `warnings`: reasons why the answer may be wrong
    - `situations`: a CPU and a GPU side by side for each use of a model whose job has no given size
    - `api`: the comparison with an API, if its price is given
    - `choices`: of a job with a size, the cheapest quote, the fastest that costs at most twice as much, and the one of
      these with the lowest cost x time; of the quotes that may lead
    - `alternatives`: if no offer that may lead keeps all limits, what comes closest, and which single flag to change
    - `at_hand`: the device of this machine that finishes the job first, outside the ranking. Its provider is "local"
      and its price the electricity of the user's own hardware, 0 if not known. With `--device local` it is in `quotes`
      too. None if this machine is ignored or no device of it can do the job
    - `measured`: steps timed on this machine for this answer
    - `batch_sweeps`: the best quote, the best of the other device kind and the devices named by the user, if there are
      several batch sizes to choose from
    - `machine_sweep`: the first quote that can use several machines, if `--max-machines` allows them
    - `context_sweeps`: of a served language model, users by context on the best machine, and on the best CPU and GPU
    - `exchange_rate`: the currency of text; numbers are in dollars
    - `grids`: the intensity of the grid by PROVIDER/REGION, or by the offer's id where its owner gives a figure
    """

    schema_version: int
    job: Job
    workload: WorkloadSummary
    best: Quote | None
    quotes: tuple[Quote, ...]
    rejected: tuple[Rejection, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    better_if_price_holds: Quote | None = None
    better_if_prediction_holds: Quote | None = None
    best_in_auto: Quote | None = None
    chance_by_device: tuple[DeviceChance, ...] = ()
    best_by_tier: Mapping[Tier, Quote] = field(default_factory=dict)
    best_rented: Quote | None = None
    situations: tuple[Situation, ...] = ()
    api: ApiComparison | None = None
    choices: Mapping[Choice, Quote] = field(default_factory=dict)
    alternatives: tuple[Alternative, ...] = ()
    at_hand: Quote | None = None
    measured: tuple[MeasuredStep, ...] = ()
    batch_sweeps: tuple[BatchSweep, ...] = ()
    machine_sweep: MachineSweep | None = None
    context_sweeps: tuple[ContextSweep, ...] = ()
    exchange_rate: ExchangeRate | None = None
    grids: Mapping[str, Grid] = field(default_factory=dict)

    def save(self, file: "str | Path", *, top: int = 10) -> None:
        """Write the answer like `advise SOURCE -o FILE`, in the format of the suffix: .txt .json .csv .md.

        `top` limits the rows of .txt and .md; .json and .csv hold every row. Raises `UsageError` for another suffix
        and a missing folder. An .html report shows more than the answer; `advisor.save_report` writes it.
        """
        from pathlib import Path

        from advisor.report.formats import save_answer

        save_answer(self, Path(file), top=top)
