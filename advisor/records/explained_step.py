"""Defines the breakdown of a step's time by operator family, module and phase, and the changes that save most."""

from dataclasses import dataclass
from typing import Literal

from advisor.records.answer import Bound, Interval, QuotedDevice
from advisor.records.device import CompileMode, Layout, Precision, TimeSource
from advisor.records.displayed import Displayed
from advisor.records.energy import Watts
from advisor.records.generation import Generation
from advisor.records.price import ExchangeRate
from advisor.records.scale import Plan
from advisor.records.workload import Mode

EXPLANATION_SCHEMA_VERSION = 1
ChangeKind = Literal["precision", "batch", "layout", "compile", "attention", "weights", "instance"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStep:
    """One predicted step on one device, or the requests in flight of a served model on all GPUs of a plan.

    - `loading_s`: time the machine needs to load a batch; 0 if the loader is not known
    - `plan`: how a served model is spread over GPUs, of which one's part is explained; None on one GPU
    - `exchange_s`: time in which the GPUs of the plan exchange results or wait for the slowest of them
    - `checkpoint_activations`: as in `Plan`
    - `timed_ratio`: time of the step over its prediction without the steps timed on this machine, both without loading;
      1 if none of them counts for it
    """

    batch: int
    precision: Precision
    step_s: Interval
    bound: Bound
    time_source: TimeSource
    loading_s: float = 0.0
    plan: Plan | None = None
    exchange_s: float = 0.0
    checkpoint_activations: bool = False
    timed_ratio: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedGroup:
    """The part of a step in one family, module or phase, over all its calls.

    - `time_s`: its share of the step; all groups add up to the step. On a CPU this is kernels plus dispatch; on a GPU,
      where host and device run in parallel, it is the slower of the two over the whole step. If the step was timed, all
      predicted parts are scaled by measured / predicted time
    - `kernels_s`: less than `compute_s` + `memory_s` + `launch_s` where compute and memory overlap
    - `flops_per_byte`: arithmetic intensity; None if nothing is moved or computed
    - `ridge_flops_per_byte`: arithmetic intensity from which the unit that does most of the FLOP is compute-bound
    - `roofline_s`: the plain roofline with datasheet figures
    - `roofline_ratio`: `roofline_s` over `time_s`; above 1 if caches or Winograd convolutions save work that the
      roofline counts
    """

    name: str
    time_s: float
    time_ratio: float
    bound: Bound
    kernels_s: float
    compute_s: float
    memory_s: float
    launch_s: float
    dispatch_s: float
    op_count: int
    flops: float
    moved_bytes: float
    flops_per_byte: float | None
    ridge_flops_per_byte: float | None
    roofline_s: float
    roofline_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialChain:
    """Recurrent layers whose time steps depend on each other: `kernel_count` kernels that run one at a time."""

    module: str
    op: str
    kernel_count: int


WhyUnfused = Literal["asked", "dims", "rows", "shared", "own", "dropout", "fast path"]
"""Why attention writes its scores to memory instead of running in a fused kernel:

- asked: eager attention was asked for
- dims: its operands do not have the 4 dimensions (samples, heads, length, width)
- rows: the elements of the rows of an operand or the mask are not adjacent in memory
- shared: samples or heads share keys or values by broadcasting
- own: the model computes it from products and a softmax
- dropout, fast path: CPUs have no fused kernel with dropout, and none in torch's fast path for encoders
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfusedAttention:
    """Modules whose attention writes its scores to memory, for the same cause."""

    why: WhyUnfused
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One changed setting and the cost of the job with it, as `advise` gives it with the flag of that name.

    - `to`: the new value; for another instance, its provider and name
    - `saved_ratio`: saving over the cost without the change
    """

    kind: ChangeKind
    to: str
    step_s: Interval
    batch: int
    job_usd: Interval
    saved_usd: float
    saved_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedStep(PredictedStep):
    """The breakdown of one step on one device; groups are sorted by time, longest first.

    - `name`: provider and instance of the offer, or the device as the user named it
    - `memory_bytes_per_s`: bandwidth from the datasheet
    - `transfer_s`: time to copy the inputs to the device
    - `paging_s`: time in which a GPU's optimizer copies its state from and to the host's memory
    - `host_cpu`: the CPU whose clock sets the dispatch time of a GPU; None for a CPU, or if not known (4 GHz assumed)
    - `job_usd`: cost of the job on the offer; None for a device without an offer
    - `changes`: the three single changes that save most
    - `power`, `energy_kwh`, `co2_kg`: as in `Quote`; None for a device without an offer, or if they are not known
    """

    name: str
    device: QuotedDevice
    core_count: float
    memory_bytes_per_s: float
    transfer_s: float
    total: ExplainedGroup
    families: tuple[ExplainedGroup, ...]
    modules: tuple[ExplainedGroup, ...]
    phases: tuple[ExplainedGroup, ...]
    sequential: tuple[SequentialChain, ...]
    unfused: tuple[UnfusedAttention, ...] = ()
    paging_s: float = 0.0
    host_cpu: str | None = None
    job_usd: Interval | None = None
    changes: tuple[Change, ...] = ()
    power: Watts | None = None
    energy_kwh: Interval | None = None
    co2_kg: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Explanation(Displayed, report="explanation"):
    """The breakdown of one step on every requested device; it is displayed as tables in a terminal and in a notebook.

    - `samples`: samples of the job; requests if `generation` is set
    - `exchange_rate`: the currency of text; numbers are in dollars
    - `notes`: the overlays in use
    """

    schema_version: int
    workload: str
    mode: Mode
    samples: int
    layout: Layout
    compile: CompileMode
    steps: tuple[ExplainedStep, ...]
    warnings: tuple[str, ...]
    exchange_rate: ExchangeRate | None = None
    generation: Generation | None = None
    notes: tuple[str, ...] = ()
