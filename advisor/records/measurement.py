"""Defines measured step times, their predictions and the accuracy scores."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from advisor.records.device import CompileMode, Cpu, DeviceKind, Gpu, Layout, Precision
from advisor.records.device_memory import Verdict
from advisor.records.workload import Attention

MeasuredMode = Literal["inference", "forward_backward", "training"]
"""`forward_backward` is a training step without its optimizer."""
ServedMode = Literal["ttft", "tpot", "token"]
"""A measured figure of a served language model: TTFT, TPOT, or the time per output token of all requests together."""
Known = Literal["calibrated", "device", "generation", "vendor", "other-vendor"]
"""The source of a prediction's efficiency: this machine, this device, another device of its generation,
another generation of its vendor, or other vendors only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    """One measured step; the fields are the columns of a measurements file, in order.

    - `model`: a source as `advise` takes it
    - `torch`: release of PyTorch whose program was timed, as "2.4"; empty for what the installed one runs
    - `input`: as for `--input`, separated by blanks
    - `device`: id or alias of a profile, or ID@N for N physical cores of a CPU
    - `source`: who published the time
    """

    model: str
    mode: MeasuredMode
    precision: Precision
    layout: Layout = "nchw"
    compile: CompileMode = "eager"
    attention: Attention = "auto"
    torch: str = ""
    batch: int
    input: str = ""
    device: str
    step_s: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(TimedStep):
    """A row of a measurements file, with its file and line.

    For a served language model, `batch` is the requests in flight and `input` the tokens, as `256+128`.
    """

    mode: MeasuredMode | ServedMode  # type: ignore[assignment]  # `TimedStep` has the columns of steps
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """A measurement with its group keys; `device` is the profile's id, or the name in the file if there is none.

    The kind and generation of a device without a profile are "unknown".
    """

    measurement: Measurement
    device: str
    kind: DeviceKind | Literal["unknown"]
    generation: str
    family: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedRow(MeasuredRow):
    """A measurement with its prediction.

    - `low_s`, `high_s`: ends of the 90 % interval of the prediction
    - `without_own_s`: the prediction without the device's own `sustained` ratios; None if it has none
    - `roofline_s`: the plain roofline with datasheet figures
    - `usd_per_hour`: lowest on-demand price of the single device; None if nobody rents it alone
    """

    known: Known
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

    kind: DeviceKind | Literal["unknown"] = "unknown"
    generation: str = "unknown"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPeak:
    """A measured peak memory of one GPU with its prediction; `measured_bytes` is None for a run that failed.

    - `allocated_bytes`: predicted tensors and workspaces, as `torch.cuda.max_memory_allocated` counts them
    - `verdict`: whether the whole step fits the device, by its prediction
    """

    model: str
    device: str
    file: str
    line: int
    measured_bytes: float | None
    allocated_bytes: float
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The accuracy of predictions for `n` measurements, as ratios: a `mape` of 0.09 is 9 %.

    `advisor.answers.accuracy_score` defines each score; None means that it cannot be computed.

    - `own_figures_count`: rows on devices with their own `sustained` ratios
    - `mape_without_own_figures`: error of all rows predicted without these ratios
    - `half_width_ratio`: median half-width of the 90 % intervals over the mean error, both in log; normal errors need
      2.06
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
    half_width_ratio: float | None
    roofline_mape: float
    constant_mape: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """The score of the rows with these column values: `{"device": "t4"}`."""

    by: Mapping[str, str]
    score: Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """The result of `advise validate`.

    - `kendall_devices`: rank correlation over the devices that ran the same step
    - `cheapest_right_ratio`: share of steps for which the device with the lowest predicted cost is the cheapest
    - `mean_extra_cost_ratio`: mean extra cost of that device over the cheapest one
    - `peaks`: of fine-tuning runs
    - `notes`: the user's files in force, and implausible values in them
    """

    overall: Score
    kendall_devices: float | None
    cheapest_right_ratio: float | None
    mean_extra_cost_ratio: float | None
    groups: tuple[ScoredGroup, ...]
    predicted: tuple[PredictedRow, ...]
    failed: tuple[FailedRow, ...]
    peaks: tuple[PredictedPeak, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFit:
    """The result of `advise fit-device`: the device's profile with its two `sustained` ratios, and their accuracy.

    - `compute_log_sigma`, `memory_log_sigma`: standard deviation of the logarithm of each ratio
    - `n`, `model_count`: steps and models of the fit
    - `mape_without`, `mape`: mean absolute percentage error without and with the ratios, as `Score.mape`
    - `left_out_mape`: the error of each model with ratios fitted on the other models
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
