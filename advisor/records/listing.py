"""What a price file knows of its types, and what the provider's own list says of them today."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from advisor.records.price import PriceBasis, PriceKind, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedType:
    """One instance type of a price file. `gpu` is a device id."""

    instance: str
    vcpus: int | None
    memory_bytes: float | None
    gpu: str | None
    gpu_count: int
    tier: Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The types and regions to fetch, and the pairs of them (instance, region) that the file has.

    `etags` are those of the lists that the file was last written from, by address. `gpu_id` finds the id of a GPU by
    the name that a driver or a provider gives it and its memory in GiB where that is known, or None.
    """

    types: Mapping[str, ListedType]
    regions: tuple[str, ...]
    rows: frozenset[tuple[str, str]]
    etags: Mapping[str, str]
    gpu_id: Callable[[str, float | None], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSource:
    """One list that prices came from: its address, and how they were had from it."""

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
    """What a provider's lists say.

    `covered` are the (instance, region, kind) of the file's rows that the lists have as long as they are sold: one that
    is not among `prices` is sold no longer. `unchanged` are the addresses of lists that are as the file has them.
    `problems` say what was refused, and why.
    """

    sources: Mapping[str, ListSource]
    prices: tuple[ListedPrice, ...]
    covered: frozenset[tuple[str, str, PriceKind]]
    unchanged: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
