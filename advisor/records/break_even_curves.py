"""Where the cheapest CPU and the cheapest GPU cost the same, over what the job or the model may be."""

from dataclasses import dataclass
from typing import Literal

from advisor.records.answer import Interval, Job, Quote, QuotedDevice
from advisor.records.device import DeviceKind, Precision
from advisor.records.price import ExchangeRate

BREAK_EVEN_SCHEMA_VERSION = 1
CurveKind = Literal["batch", "requests_per_day", "samples", "parameter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindCost:
    """The cheapest offer of one kind of device, and what the cheapest of the kind costs if predictions err.

    `own_usd`: where every device is slower or faster by the 90 % interval of its own error; `shared_usd`: by that of
    the error which comes from the model and is the same on all. Both spreads are of the step of `quote`, one standard
    deviation of the logarithm.
    """

    quote: Quote
    own_usd: Interval
    shared_usd: Interval
    own_log_spread: float
    shared_log_spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """The cheapest offer of one kind of device, and the cost of the job on it."""

    id: str
    name: str
    device: QuotedDevice
    usd_per_hour: float
    instance_count: int
    precision: Precision
    batch: int
    step_s: Interval
    job_usd: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The two contenders at one place of a curve; None: no offer of that kind does the job within the limits.

    `cost_ratio` is the cost on the CPU over that on the GPU, above 1 where the GPU is the cheaper one; its interval
    leaves out what a wrong count or trace would do to both. None where one is missing.
    """

    at: int
    cpu: Contender | None
    gpu: Contender | None
    cost_ratio: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """From `at` on, `cheaper` is the cheaper kind. `low` and `high` are the ends of the 90 % interval.

    Before `low` it is the dearer one for sure, from `high` on the cheaper one; None: not within the range of the curve.
    """

    at: int
    low: int | None
    high: int | None
    cheaper: DeviceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Costs over the batch, the requests of a day, the samples of the job, or a parameter of the model's factory.

    `name` is that of the parameter, else of the kind. Between the points of a parameter, each of which is a trace, the
    logarithm of the cost ratio is taken as a straight line over that of the parameter; all other crossings are exact.
    """

    kind: CurveKind
    name: str
    points: tuple[CurvePoint, ...]
    crossings: tuple[Crossing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FolkRule:
    """The best CPU and the best GPU of the job as asked for: "take a GPU if it is faster by more than its price".

    `price_ratio` is of an hour, `speed_ratio` of samples a second, `cost_ratio` of the job on the CPU over the GPU.
    """

    cpu: Contender
    gpu: Contender
    price_ratio: float
    speed_ratio: Interval
    cost_ratio: Interval


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BreakEven:
    """The answer; in a terminal it shows itself as text. `left_out` says which curves are missing, and why.

    `folk_rule` is None where only one kind of device does the job. `notes` name the overlays in force.
    Text is in the currency of `exchange_rate`.
    """

    schema_version: int
    workload: str
    job: Job
    folk_rule: FolkRule | None
    curves: tuple[Curve, ...]
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]
    exchange_rate: ExchangeRate | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        from shutil import get_terminal_size

        from advisor.report.break_even_text import render_break_even
        from advisor.report.view import View

        return render_break_even(self, view=View(width=get_terminal_size().columns))
