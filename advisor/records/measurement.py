"""Measured step times, what is predicted for them, and how far the two are apart."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from advisor.records.device import CompileMode, Cpu, DeviceKind, Gpu, Layout, Precision
from advisor.records.workload import Attention

MeasuredMode = Literal["inference", "forward_backward", "training"]
"""`forward_backward` is a training step without its optimizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    """One step that somebody timed; the fields are the columns of a measurements file, in order.

    `model` is a source as `advise` takes it, `input` what `--input` would take, with blanks between several. `device`
    is the id or an alias of a profile, or ID@N: N physical cores of a CPU. `source` says who published the time.
    """

    model: str
    mode: MeasuredMode
    precision: Precision
    layout: Layout = "nchw"
    compile: CompileMode = "eager"
    attention: Attention = "auto"
    batch: int
    input: str = ""
    device: str
    step_s: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(TimedStep):
    """A row of a measurements file, and where it stands."""

    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """A measurement with what it is grouped by. `device` is the profile's id, or the name as written where none is."""

    measurement: Measurement
    device: str
    kind: DeviceKind | Literal["unknown"]
    family: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedRow(MeasuredRow):
    """A measurement with its prediction and the ends of its 90 % interval.

    `without_own_s` is what is predicted without the two figures that the device has of its own, None where it has none.
    `roofline_s` is the plain roofline at datasheet figures. `usd_per_hour` is the least on-demand price of the device,
    None where it is not on offer by itself.
    """

    predicted_s: float
    low_s: float
    high_s: float
    without_own_s: float | None
    roofline_s: float
    flops: float
    usd_per_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRow(MeasuredRow):
    """A measurement that could not be traced or predicted, and why."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How far predictions are from `n` measurements; all are ratios, so a `mape` of 0.09 is 9 %.

    None: nothing to tell it from. `advisor.answers.accuracy_score` defines each.

    `own_figures_count` rows ran on devices with figures of their own; `mape_without_own_figures` is the error of all
    rows where none has any.
    """

    n: int
    failed_count: int
    own_figures_count: int
    mape: float
    mape_without_own_figures: float | None
    median_ape: float
    p90_ape: float
    bias: float | None
    kendall: float | None
    coverage_90: float | None
    roofline_mape: float
    constant_mape: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """The score of the rows that have these values in common: `{"device": "t4"}`."""

    by: Mapping[str, str]
    score: Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Everything `advise validate` found.

    `kendall_devices` is the rank correlation over the devices that ran the same step. Taking the device of the least
    predicted cost is right in `cheapest_right_ratio` of the steps and costs `mean_extra_cost_ratio` more than the best.
    """

    overall: Score
    kendall_devices: float | None
    cheapest_right_ratio: float | None
    mean_extra_cost_ratio: float | None
    groups: tuple[ScoredGroup, ...]
    predicted: tuple[PredictedRow, ...]
    failed: tuple[FailedRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFit:
    """What `advise fit-device` found: the device's profile with two figures of its own, and what they are worth.

    The log sigmas are one standard deviation of each figure's logarithm. The errors are means over `n` steps of
    `model_count` models, as `Score.mape`: without the figures, with them, and `left_out_mape` with those that were
    fitted on other models than the step's.
    """

    profile: Gpu | Cpu
    compute_log_sigma: float
    memory_log_sigma: float
    n: int
    model_count: int
    mape_without: float
    mape: float
    left_out_mape: float
    failed: tuple[FailedRow, ...]
