"""Defines the break-even answer: where the cheapest CPU and the cheapest GPU cost the same."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from advisor.records.answer import ApiComparison, Contender, Crossing, CurvePoint, Interval, Job, Quote
from advisor.records.displayed import Displayed
from advisor.records.price import ExchangeRate

BREAK_EVEN_SCHEMA_VERSION = 1
DECADE_COUNT = 9
"""Curves over requests per day and over samples run from 1 to 10 to this power."""
CurveKind = Literal["batch", "requests_per_day", "samples", "parameter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindCost:
    """The cheapest offer of one device kind, and the range of the lowest cost of that kind.

    - `quote`: builds the quote of the offer, which takes longer than its cost
    - `own_usd`: the lowest cost with every device at the ends of the 90 % interval of its own error
    - `shared_usd`: the same for the error that comes from the model and is equal on all devices
    - `price_usd`: the same for the errors of the prices, and of the watts that owned machines pay for
    - `own_log_spread`, `shared_log_spread`: standard deviations of the logarithm of the step of `quote`
    """

    quote: Callable[[], Quote]
    own_usd: Interval
    shared_usd: Interval
    price_usd: Interval
    own_log_spread: float
    shared_log_spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Costs over the batch, the requests per day, the samples of the job, or a parameter of the model's factory.

    `name` is the parameter's name, else the kind. Each point of a parameter curve is one trace; between them, the
    logarithm of the cost ratio is interpolated linearly over the logarithm of the parameter. All other crossings are
    computed.
    """

    kind: CurveKind
    name: str
    points: tuple[CurvePoint, ...]
    crossings: tuple[Crossing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FolkRule:
    """The cheapest CPU and GPU for the job, to check the rule "take a GPU if its speedup exceeds its price ratio".

    - `price_ratio`: hourly GPU price over CPU price
    - `speed_ratio`: GPU samples per second over those of the CPU
    - `cost_ratio`: cost of the job on the CPU over the GPU
    """

    cpu: Contender
    gpu: Contender
    price_ratio: float
    speed_ratio: Interval
    cost_ratio: Interval


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BreakEven(Displayed, report="break_even"):
    """The break-even answer; it is displayed as text in a terminal and as HTML in a notebook.

    - `folk_rule`: None if only one device kind can do the job, or does it at no cost
    - `api`: the comparison with an API, if its price is given
    - `left_out`: the curves that are missing, with the reason
    - `exchange_rate`: the currency of text
    - `notes`: the overlays in use
    """

    schema_version: int
    workload: str
    job: Job
    folk_rule: FolkRule | None
    curves: tuple[Curve, ...]
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]
    api: ApiComparison | None = None
    exchange_rate: ExchangeRate | None = None
    notes: tuple[str, ...] = ()
