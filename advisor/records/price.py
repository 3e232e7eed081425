"""Offers: what a provider rents, where, at which price, with date and source."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from advisor.records.billing import Billing
from advisor.records.device import Cpu, Efficiency, Gpu

PriceKind = Literal["on_demand", "spot", "commit_1y", "commit_3y", "owned"]
PriceBasis = Literal["list", "minimum_live_offer", "median_live_offer", "published", "own_rate", "own_hardware"]
PriceMark = Literal["STALE", "SUSPECT", "OLD"]
Tier = Literal["hyperscaler", "neocloud", "marketplace", "owned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One price of a whole machine, billed by the hour or a part of it."""

    kind: PriceKind
    usd_per_hour: float
    date: str
    source: str
    basis: PriceBasis = "list"
    stale: bool = False
    suspect: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One instance type in one region. `gpu` and `cpu` are device ids; a machine without a GPU is a CPU offer.

    `vcpus` can be used; `threads_per_core` 2 means that a vCPU is half a core. `network_bytes_per_s` is what it
    sends to others of its type, where that was looked up. `billed_separately` names what the price
    leaves out; `excluded` says which of the user's lines rules the offer out. `purchase_usd` and `running_usd_per_hour`
    are those of owned hardware: what was paid for it, and what it costs beside that in an hour of use. By the user's
    overlay, `quota_instances` of them may run at once and one is waited for `wait_s`; None: it does not say.
    """

    id: str
    provider: str
    tier: Tier
    region: str
    geo: str
    instance: str
    vcpus: int | None
    threads_per_core: int | None
    memory_bytes: float | None
    cpu: str | None
    gpu: str | None
    gpu_count: int
    prices: tuple[Price, ...]
    measured_read_bytes_per_s: float | None = None
    host_to_device_bytes_per_s: float | None = None
    network_bytes_per_s: float | None = None
    interruption: str | None = None
    billed_separately: str | None = None
    excluded: str | None = None
    purchase_usd: float | None = None
    running_usd_per_hour: float | None = None
    quota_instances: int | None = None
    wait_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedOffer:
    """An offer with one of its prices, and what makes that doubtful."""

    offer: Offer
    price: Price
    marks: tuple[PriceMark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChange:
    """One price of an offer in two catalogs; None: it has none there."""

    offer_id: str
    kind: PriceKind
    before: Price | None
    after: Price | None


RejectionCode = Literal[
    "no-device-profile", "fractional-gpu", "unknown-cpu", "incomplete-machine", "excluded", "other-provider",
    "other-region", "other-tier", "other-device", "too-few-gpus", "no-price", "stale-price", "suspect-price",
    "old-price", "marketplace", "billed-separately", "no-native-precision", "unknown-vcpus", "does-not-fit",
    "over-latency", "over-ttft", "over-tpot", "under-throughput", "over-quota", "over-deadline", "over-max-usd",
    "over-max-hourly", "dearer-region",
]  # fmt: skip
"""What keeps an offer out: of the catalog, of the offers asked for, and of the ranking, in the order of the checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """An offer that is not in the ranking, and why; `code` groups."""

    id: str
    provider: str
    region: str
    instance: str
    code: RejectionCode
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRate:
    """What one unit of a currency was worth on a day. `currency` is its ISO 4217 code."""

    currency: str
    usd: float
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """All profiles in force. `overlays` names the files that changed ours, first wins; `doubts` say what they hold that
    is not credible.

    `copies_at_hand` is by the id of a GPU of this machine: how fast its inputs are copied to it, where that was timed.
    """

    gpus: Mapping[str, Gpu]
    cpus: Mapping[str, Cpu]
    efficiencies: tuple[Efficiency, ...]
    offers: tuple[Offer, ...]
    rejected: tuple[Rejection, ...]
    overlays: tuple[str, ...]
    doubts: tuple[str, ...] = ()
    exchange_rates: tuple[ExchangeRate, ...] = ()
    billing: Billing = field(default_factory=Billing)
    copies_at_hand: Mapping[str, float] = field(default_factory=dict)
