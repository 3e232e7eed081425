"""Defines offers and their prices, and the price lists of providers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from advisor.records.billing import Billing
from advisor.records.device import Architecture, Cpu, DeviceKind, Efficiency, Gpu
from advisor.records.engine import Engine
from advisor.records.rejection import Cause, Rejection, RejectionCode

PriceKind = Literal["on_demand", "spot", "commit_1y", "commit_3y", "owned"]
PriceBasis = Literal["list", "minimum_live_offer", "median_live_offer", "published", "own_rate", "own_hardware"]
PriceMark = Literal["STALE", "SUSPECT", "OLD"]
Tier = Literal["hyperscaler", "neocloud", "marketplace", "owned"]

TORCH_INDEX = "https://download.pytorch.org/whl"
"""The index of PyTorch's wheels, with a folder for each version of CUDA and one for CPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One hourly price of a whole machine.

    `adjustment` says how the user's terms changed it, such as "less 60 %"; empty if they did not.
    """

    kind: PriceKind
    usd_per_hour: float
    date: str
    source: str
    basis: PriceBasis = "list"
    adjustment: str = ""
    stale: bool = False
    suspect: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSpread:
    """A standard deviation of the logarithm of a price, from `n` measured price changes, or assumed."""

    log_spread: float
    n: int
    basis: Literal["measured", "assumed"]
    source: str


ANY_REGION = "global"
"""The region of a price that is the same in every region of its provider."""
SPOT_DRIFT = "spot"
"""The key of the drift of spot prices, beside those of the tiers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceErrors:
    """How far a listed price may be off from the price to pay; what is missing has no error.

    - `drift`: after one year, by tier, and of spot prices under `SPOT_DRIFT`; the variance grows with the age
    - `listing`: by basis, at any age
    - `trusted`: the largest error of a price that may head the answer, counted to the newest price
    """

    drift: Mapping[str, PriceSpread] = field(default_factory=dict)
    listing: Mapping[str, PriceSpread] = field(default_factory=dict)
    trusted: PriceSpread | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSource:
    """The page with the prices of a provider, and how new ones are had: by `advise prices refresh` or by hand."""

    page: str
    refresh: Literal["command", "by hand"] = "by hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPrice:
    """The price of a language model behind an API, in dollars per million tokens.

    `cached_usd_per_mtok` is that of prompt tokens in its prefix cache; None if they cost the same.
    """

    input_usd_per_mtok: float
    output_usd_per_mtok: float
    cached_usd_per_mtok: float | None = None
    date: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchWheel:
    """A wheel of PyTorch, by release and CUDA version; `index_url` is where pip finds it."""

    torch: str
    cuda: str

    @property
    def index_url(self) -> str:
        """The `--index-url` of pip for wheels with this version of CUDA."""
        return f"{TORCH_INDEX}/cu{self.cuda.replace('.', '')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One instance type in one region; a machine without a GPU is a CPU offer.

    - `vcpus`: vCPUs that the user can use
    - `threads_per_core`: 2 means that a vCPU is half a core
    - `cpu`, `gpu`: device ids
    - `architecture`: of the CPU; None if not known, which counts as x86
    - `wheel`: the wheel of PyTorch that its GPU needs; None if `pip install torch` installs one for it
    - `no_wheel`: the GPU for which no wheel of PyTorch has code
    - `stack`: the software that its accelerator needs, as in `Gpu`
    - `network_bytes_per_s`: rate to other machines of the same type; None if not known
    - `billed_separately`: what the price leaves out
    - `excluded`: the entry of the user's overlay that excludes the offer
    - `purchase_usd`, `running_usd_per_hour`: purchase price and hourly running cost of owned hardware
    - `used_ratio`: share of all hours in which owned hardware is used, over which its purchase price is spread
    - `electricity_usd_per_kwh`: what the owner pays; the price of an hour follows the power of the machine
    - `power_w`: power of owned hardware under load, measured by its owner; None if it is predicted. While the machine
      is idle it draws its predicted power
    - `gco2_per_kwh`: CO2 of the owner's electricity
    - `quota_instances`: instances that may run at once, from the user's overlay; None if not given
    - `wait_s`: wait for an instance, from the user's overlay; None if not given
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
    architecture: Architecture | None = None
    wheel: TorchWheel | None = None
    no_wheel: str | None = None
    stack: str | None = None
    measured_read_bytes_per_s: float | None = None
    host_to_device_bytes_per_s: float | None = None
    network_bytes_per_s: float | None = None
    interruption: str | None = None
    billed_separately: str | None = None
    excluded: str | None = None
    purchase_usd: float | None = None
    running_usd_per_hour: float | None = None
    used_ratio: float = 1.0
    electricity_usd_per_kwh: float | None = None
    power_w: float | None = None
    gco2_per_kwh: float | None = None
    quota_instances: int | None = None
    wait_s: float | None = None

    @property
    def kind(self) -> DeviceKind:
        """The kind of its device."""
        return "cpu" if self.gpu is None else "gpu"

    @property
    def usual_threads_per_core(self) -> int:
        """`threads_per_core`, or, where it is not known, that of most clouds: 1 on Arm and 2 on x86."""
        return self.threads_per_core or (1 if self.architecture == "arm" else 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedOffer:
    """An offer with one of its prices, the marks of a doubtful price, and its error.

    - `log_spread`: standard deviation of the logarithm of the price to pay today over the listed price
    - `is_trusted`: the error, counted to the newest price in the catalog, is at most `PriceErrors.trusted`
    - `unpredicted`: why no step can be predicted on it; empty if one can
    """

    offer: Offer
    price: Price
    marks: tuple[PriceMark, ...] = ()
    log_spread: float = 0.0
    is_trusted: bool = True
    unpredicted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChange:
    """One price of an offer in two catalogs; None if it has no such price there."""

    offer_id: str
    kind: PriceKind
    before: Price | None
    after: Price | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """An offer that is left out, with all causes; the first one is its group."""

    offer: Offer
    causes: tuple[Cause, ...]

    @property
    def code(self) -> RejectionCode:
        """The group of the rejection."""
        return self.causes[0].code


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRate:
    """The value of one unit of a currency in dollars on a date; `currency` is an ISO 4217 code."""

    currency: str
    usd: float
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """All profiles and prices in use.

    - `unpredicted`: the offers of `rejected`, in the same order, with their prices and without a device
    - `overlays`: the user's files that override the built-in data; the first one wins
    - `doubts`: values in those files that are not credible, and discounts without an effect
    - `price_sources`: by provider
    - `api_prices`: of language models behind an API, by the name that `--api-usd-per-mtok` takes
    - `own_dates`: dates of the user's own prices, each with an offer
    - `copies_at_hand`: measured copy rate in bytes/s to each GPU of this machine, by id
    - `engines`: inference engines, by name
    """

    gpus: Mapping[str, Gpu]
    cpus: Mapping[str, Cpu]
    efficiencies: tuple[Efficiency, ...]
    offers: tuple[Offer, ...]
    rejected: tuple[Rejection, ...]
    overlays: tuple[str, ...]
    unpredicted: tuple[Offer, ...] = ()
    doubts: tuple[str, ...] = ()
    own_dates: Mapping[str, str] = field(default_factory=dict)
    exchange_rates: tuple[ExchangeRate, ...] = ()
    billing: Billing = field(default_factory=Billing)
    price_errors: PriceErrors = field(default_factory=PriceErrors)
    price_sources: Mapping[str, PriceSource] = field(default_factory=dict)
    api_prices: Mapping[str, ApiPrice] = field(default_factory=dict)
    copies_at_hand: Mapping[str, float] = field(default_factory=dict)
    engines: Mapping[str, Engine] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedType:
    """One instance type of a price file; `gpu` is a device id."""

    instance: str
    vcpus: int | None
    memory_bytes: float | None
    gpu: str | None
    gpu_count: int
    tier: Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The instance types and regions to fetch.

    - `rows`: the pairs (instance, region) in the price file
    - `etags`: ETags of the lists that the file was last written from, by URL
    - `usd_on_demand`: the credible on-demand prices of the file, by (instance, region)
    - `gpu_id`: finds a GPU's id by its name at a driver or provider, and its memory in GiB if known; None if not found
    """

    types: Mapping[str, ListedType]
    regions: tuple[str, ...]
    rows: frozenset[tuple[str, str]]
    etags: Mapping[str, str]
    gpu_id: Callable[[str, float | None], str | None]
    usd_on_demand: Mapping[tuple[str, str], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSource:
    """One list that prices came from; `how` says how they were derived from it."""

    url: str
    how: str = ""
    etag: str | None = None
    basis: PriceBasis = "list"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPrice:
    """One price of a whole machine; `source` is a key of `Listing.sources`."""

    instance: str
    region: str
    kind: PriceKind
    usd_per_hour: float
    source: str
    interruption_percent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The content of a provider's price lists.

    - `covered`: (instance, region, kind) that the lists contain while they are on sale, so a row of the price file in
      `covered` but not in `prices` is no longer sold
    - `unchanged`: URLs of lists that have not changed since the file was written
    - `problems`: entries that were refused, and why
    """

    sources: Mapping[str, ListSource]
    prices: tuple[ListedPrice, ...]
    covered: frozenset[tuple[str, str, PriceKind]]
    unchanged: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
