"""Fetches Google Cloud's prices: a machine costs the sum of its cores, memory and GPUs, each a SKU of the catalog.

The catalog prices parts even in regions that do not sell the machine, so only rows in the price file get a price. Types
that include local disks are not a sum of these parts and keep their price.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import AliasPath, BaseModel, Field, FiniteFloat

from advisor.records.price import ListedPrice, ListedType, Listing, ListSource, PriceKind, Wanted
from advisor.refresh.client import Client, Request, key_from_environment
from advisor.refresh.match import covered_prices

PROVIDER = "gcp"
LISTS = "Cloud Billing Catalog: the sum of cores, memory and GPUs; types with local disks are left as they are"
KINDS = "on-demand, spot"
SKUS_URL = "https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus"
KEY_VARIABLE = "GOOGLE_API_KEY"

_INSTANCE_PART = re.compile(
    r"(?:Spot Preemptible |Preemptible )?(?P<family>\w+)(?: Predefined)?(?: AMD| Arm)? "
    r"Instance (?P<part>Core|Ram) running in"
)
_GPU_PART = re.compile(r"(?P<name>Nvidia .+?) GPU (?:attached to Spot Preemptible VMs )?running in")
_GPU_IDS = {
    "Nvidia L4": "l4",
    "Nvidia Tesla A100": "a100-sxm4-40gb",
    "Nvidia Tesla A100 80GB": "a100-sxm4-80gb",
    "Nvidia Tesla P100": "p100-pcie-16gb",
    "Nvidia Tesla P4": "p4",
    "Nvidia Tesla T4": "t4",
    "Nvidia Tesla V100": "v100-sxm2-16gb",
}
_KINDS: dict[str, PriceKind] = {"OnDemand": "on_demand", "Preemptible": "spot"}
_UNITS = {"Core": "h", "Ram": "GiBy.h", "GPU": "h"}
WITH_DISKS = re.compile(r"a2-ultragpu|a3-|a4-|z3-|.*-(lssd|metal)")
"""Types with local disks or sold as a whole host (Compute Engine's documentation of machine types)."""


class _Money(BaseModel):
    currencyCode: str
    units: FiniteFloat = 0
    nanos: FiniteFloat = 0


class _Rate(BaseModel):
    unitPrice: _Money


class _Expression(BaseModel):
    usageUnit: str
    tieredRates: list[_Rate]


class _Pricing(BaseModel):
    pricingExpression: _Expression


class Sku(BaseModel):
    """One part and its price, with the API's field names."""

    description: str
    usageType: Annotated[str, Field(validation_alias=AliasPath("category", "usageType"))]
    serviceRegions: list[str]
    pricingInfo: list[_Pricing]


class _Page(BaseModel):
    skus: list[Sku]
    nextPageToken: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part with its own price in a region: "n2 Core", "n2 Ram" (per GiB) or the id of a GPU."""

    name: str
    region: str
    kind: PriceKind


def fetch(client: Client, wanted: Wanted) -> Listing:
    """Fetch on-demand and spot prices of the rows in the price file."""
    headers = {"X-Goog-Api-Key": key_from_environment(KEY_VARIABLE)}
    query = {"currencyCode": "USD", "pageSize": "5000"}

    def following(page: _Page) -> Request | None:
        if not page.nextPageToken:
            return None
        return Request(url=SKUS_URL, params={**query, "pageToken": page.nextPageToken}, key_headers=headers)

    pages = client.pages(Request(url=SKUS_URL, params=query, key_headers=headers), _Page, following=following)
    parts, problems = parse_skus(sku for page in pages for sku in page.skus)
    sums = {instance: counts for instance, listed in wanted.types.items() if (counts := _parts_of(listed))}
    rows = sorted(row for row in wanted.rows if row[0] in sums)
    return Listing(
        sources={"catalog": ListSource(url=SKUS_URL, how="DERIVED = sum of cores, memory and GPUs")},
        prices=tuple(_prices(rows, sums, parts)),
        covered=covered_prices(rows, *_KINDS.values()),
        problems=tuple(problems),
    )


def parse_skus(skus: Iterable[Sku]) -> tuple[dict[Part, float], list[str]]:
    """Return the dollars per hour of each part; report parts with two prices or another currency as problems."""
    found: dict[Part, float] = {}
    problems: list[str] = []
    ambiguous: set[Part] = set()
    for sku in skus:
        name, unit = _part_of(sku.description)
        kind = _KINDS.get(sku.usageType)
        if not name or kind is None or not sku.pricingInfo or not sku.pricingInfo[-1].pricingExpression.tieredRates:
            continue
        expression = sku.pricingInfo[-1].pricingExpression
        money = expression.tieredRates[-1].unitPrice
        if money.currencyCode != "USD" or expression.usageUnit != unit:
            problems.append(f"{sku.description}: priced in {money.currencyCode} per {expression.usageUnit}")
            continue
        usd_per_hour = money.units + money.nanos / 1e9
        for region in sku.serviceRegions:
            part = Part(name=name, region=region, kind=kind)
            if found.setdefault(part, usd_per_hour) != usd_per_hour and part not in ambiguous:
                ambiguous.add(part)
                problems.append(f"{region} {name}: {kind} is listed as both {found[part]:g} and {usd_per_hour:g}")
    return {part: usd for part, usd in found.items() if part not in ambiguous and usd > 0}, problems


def _part_of(description: str) -> tuple[str, str]:
    """Return the part that a SKU prices and the required unit; "" for any other SKU."""
    instance = _INSTANCE_PART.match(description)
    if instance:
        return f"{instance['family'].lower()} {instance['part']}", _UNITS[instance["part"]]
    gpu = _GPU_PART.match(description)
    return (_GPU_IDS.get(gpu["name"], ""), _UNITS["GPU"]) if gpu else ("", "")


def _parts_of(listed: ListedType) -> dict[str, float]:
    """Return how many of each part the machine has; empty if it has other parts, too."""
    gpu_ids = (None, *_GPU_IDS.values())
    if listed.vcpus is None or listed.memory_bytes is None or listed.gpu not in gpu_ids:
        return {}
    if WITH_DISKS.match(listed.instance):
        return {}
    family = listed.instance.split("-")[0]
    counts = {f"{family} Core": float(listed.vcpus), f"{family} Ram": listed.memory_bytes / 2**30}
    return counts if listed.gpu is None else {**counts, listed.gpu: float(listed.gpu_count)}


def _prices(
    rows: Iterable[tuple[str, str]], sums: Mapping[str, dict[str, float]], parts: Mapping[Part, float]
) -> Iterator[ListedPrice]:
    """Yield a price for each row and kind if all of its parts have one."""
    for instance, region in rows:
        for kind in _KINDS.values():
            usd = [
                count * parts.get(Part(name=name, region=region, kind=kind), math.nan)
                for name, count in sums[instance].items()
            ]
            usd_per_hour = round(sum(usd), 6)
            if not math.isnan(usd_per_hour):
                yield ListedPrice(
                    instance=instance, region=region, kind=kind, usd_per_hour=usd_per_hour, source="catalog"
                )
