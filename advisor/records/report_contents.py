"""What a report shows beside the ranking: a few devices looked at closely, break-even, prices, accuracy."""

from dataclasses import dataclass
from typing import Literal

from advisor.records.answer import BatchPoint, Quote, Recommendation
from advisor.records.break_even_curves import BreakEven
from advisor.records.device_memory import DeviceMemory
from advisor.records.explained_step import ExplainedStep
from advisor.records.price import PriceBasis

Role = Literal["best GPU", "best CPU", "at hand"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseLook:
    """One device: its quote, its step taken apart, the same step at other batch sizes, and what it keeps in memory.

    No batches: how the step grows with the batch is not known. `memory` None: the device has no unit for its precision.
    """

    role: Role
    quote: Quote
    step: ExplainedStep
    batches: tuple[BatchPoint, ...]
    memory: DeviceMemory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSource:
    """Where the prices of ranked offers are from, with the dates of the oldest and the newest of them."""

    provider: str
    basis: PriceBasis
    source: str
    oldest: str
    newest: str
    offer_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyGroup:
    """How far predictions are from measured steps; errors are of |predicted / measured - 1|, in ratios.

    `by` is what the rows have in common ("device"), `name` which ("t4"); both are "" for all rows.
    """

    by: str
    name: str
    n: int
    mape: float
    median_ape: float
    bias: float | None
    coverage_90: float | None
    roofline_mape: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A recommendation with what it rests on, by which version of this program and on which day.

    `break_even` None: it is asked for by itself, or one kind of device has no offer.
    """

    recommendation: Recommendation
    looks: tuple[CloseLook, ...]
    price_sources: tuple[PriceSource, ...]
    accuracy: tuple[AccuracyGroup, ...]
    version: str
    made_on: str
    break_even: BreakEven | None = None
