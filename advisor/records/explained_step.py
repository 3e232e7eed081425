"""Why a step takes as long as it does: its time by operator family, module and phase; and what would save most."""

from dataclasses import dataclass
from typing import Literal

from advisor.records.answer import Bound, Interval, QuotedDevice
from advisor.records.device import CompileMode, Layout, Precision, TimeSource
from advisor.records.generation import Generation
from advisor.records.price import ExchangeRate
from advisor.records.workload import Mode

EXPLANATION_SCHEMA_VERSION = 1
ChangeKind = Literal["precision", "batch", "layout", "compile", "attention", "weights", "instance"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStep:
    """One step on one device as it is predicted: what an explanation takes apart.

    `loading_s`: how long the machine takes to load a batch; 0 where nothing is known of the loader.
    """

    batch: int
    precision: Precision
    step_s: Interval
    bound: Bound
    time_source: TimeSource
    loading_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedGroup:
    """What one family, module or phase takes of a step, over all its calls.

    `time_s` adds up to the step. On a CPU it is the time of the kernels and of their dispatch; on a GPU, where host and
    device work side by side, of whichever sets the pace of the step. `kernels_s` is less than the sum of `compute_s`,
    `memory_s` and `launch_s` where compute and memory overlap.

    `flops_per_byte` is the arithmetic intensity, `ridge_flops_per_byte` the one from which the unit that does most of
    the FLOP is held up by its peak, not by memory. `roofline_s` is the plain roofline at the datasheet's figures,
    `roofline_ratio` its share of `time_s`: above 1 where caches or Winograd's convolutions save what it counts. None:
    nothing to divide by, or no FLOP.
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
    """Recurrent layers whose time steps wait for each other: `kernel_count` kernels of which no two run at once."""

    module: str
    op: str
    kernel_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing done otherwise, and what the whole job then costs: as `advise` says with the flag of that name.

    `to` is its new value, of another instance its provider and name. `saved_ratio` is of the cost without it.
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
    """One step on one device, taken apart; groups come with the longest first.

    `name` is the offer's provider and instance, or the device as it was named. `transfer_s` is the time of the copies
    of the inputs to the device. `job_usd` is what the job costs on the offer, None of a device by itself, and `changes`
    are the three that would save most of it, one by one. `memory_bytes_per_s`: the datasheet's.
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
    job_usd: Interval | None = None
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Explanation:
    """The same step on every device asked for; in a terminal it shows itself as tables.

    `samples` are those of the job, which are requests of a `generation`. `notes` name the overlays in force.
    Text is in the currency of `exchange_rate`; figures are dollars.
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

    def __repr__(self) -> str:
        from shutil import get_terminal_size

        from advisor.report.explanation_text import render_explanation
        from advisor.report.view import View

        return render_explanation(self, view=View(width=get_terminal_size().columns))
