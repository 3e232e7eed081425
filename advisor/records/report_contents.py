"""Defines the contents of a report beyond the ranking: device details, break-even, price sources, accuracy."""

from dataclasses import dataclass
from typing import Literal

from advisor.records.answer import BatchPoint, Quote, Recommendation
from advisor.records.break_even_curves import BreakEven
from advisor.records.device_memory import DeviceMemory
from advisor.records.explained_step import ExplainedStep
from advisor.records.price import PriceBasis

Role = Literal["best GPU", "best CPU", "at hand"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDetail:
    """One device in detail: its quote, the breakdown of its step, other batch sizes and its memory.

    - `batches`: empty if it is not known how the step grows with the batch
    - `memory`: None if it was not counted
    """

    role: Role
    quote: Quote
    step: ExplainedStep
    batches: tuple[BatchPoint, ...]
    memory: DeviceMemory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSource:
    """One source of the prices of ranked offers; `oldest` and `newest` are dates."""

    provider: str
    basis: PriceBasis
    source: str
    oldest: str
    newest: str
    offer_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyGroup:
    """The accuracy of predictions against measured steps; errors are |predicted / measured - 1|, as ratios.

    - `by`: the column that the rows are grouped by ("device"), "" for all rows
    - `name`: the value of that column ("t4"), "" for all rows
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
    """A recommendation with its details, the version of the program and the date.

    - `break_even`: None if it was not computed, or one device kind has no offer
    """

    recommendation: Recommendation
    details: tuple[DeviceDetail, ...]
    price_sources: tuple[PriceSource, ...]
    accuracy: tuple[AccuracyGroup, ...]
    version: str
    made_on: str
    break_even: BreakEven | None = None
