"""Defines what a price refresh asks for and what a provider's price lists return."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from advisor.records.price import PriceBasis, PriceKind, Tier


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
    - `gpu_id`: finds a GPU's id by its name at a driver or provider, and its memory in GiB if known; None if not found
    """

    types: Mapping[str, ListedType]
    regions: tuple[str, ...]
    rows: frozenset[tuple[str, str]]
    etags: Mapping[str, str]
    gpu_id: Callable[[str, float | None], str | None]


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
