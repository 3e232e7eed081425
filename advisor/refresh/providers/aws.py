"""Fetches Amazon EC2's prices: the bulk price list of each region as CSV, spot.js and the Spot Advisor.

The list of a region has about 300 MB; it is parsed as it arrives, and only the requested types are kept. Spot prices
come from spot.js if it has the type; otherwise they are DERIVED from the advisor's savings on the on-demand price.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import AliasPath, BaseModel, Field

from advisor.errors import NetworkError
from advisor.records.price import ListedPrice, Listing, ListSource, PriceKind, Wanted
from advisor.refresh.client import Client, Request, parsed_json, text_lines
from advisor.refresh.match import covered_prices

PROVIDER = "aws"
LISTS = (
    "the bulk price list of each region (CSV, some 300 MB, streamed, and fetched only if it has "
    "changed), spot.js, Spot Advisor"
)
KINDS = "on-demand, commitments without upfront payment, spot, interruptions"
BULK_ORIGIN = "https://pricing.us-east-1.amazonaws.com"
SPOT_PRICE_URL = "https://spot-price.s3.amazonaws.com/spot.js"
SPOT_ADVISOR_URL = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"

_NEEDED = {
    "Unit": ("Hrs",),
    "Currency": ("USD",),
    "Operating System": ("Linux",),
    "Tenancy": ("Shared",),
    "CapacityStatus": ("Used",),
    "Pre Installed S/W": ("NA",),
    # A list may lack these columns.
    "Location Type": ("AWS Region", ""),
    "License Model": ("No License required", ""),
    "MarketOption": ("OnDemand", ""),
}
"""Columns and their values in the rows of plain Linux machines."""
_RESERVED: Mapping[tuple[str, str, str], PriceKind] = {
    ("1yr", "No Upfront", "standard"): "commit_1y",
    ("3yr", "No Upfront", "standard"): "commit_3y",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkList:
    """The publication date of a region's list, and its prices by (instance, kind)."""

    date: str
    usd_per_hour: Mapping[tuple[str, PriceKind], float]
    problems: tuple[str, ...]


def fetch(client: Client, wanted: Wanted) -> Listing:
    """Fetch on-demand prices, commitments without upfront payment, spot prices and interruption rates."""
    sources: dict[str, ListSource] = {}
    prices: list[ListedPrice] = []
    problems: list[str] = []
    unchanged: list[str] = []
    regions_read: set[str] = set()
    for region in wanted.regions:
        url = f"{BULK_ORIGIN}/offers/v1.0/aws/AmazonEC2/current/{region}/index.csv"
        request = Request(url=url, etag=wanted.etags.get(url))
        reply = client.read(request, lambda chunks: parse_bulk_csv(text_lines(chunks), instances=wanted.types))
        if reply.body is None:
            unchanged.append(url)
            continue
        key = f"bulk-{region}"
        sources[key] = ListSource(url=url, how=f"published {reply.body.date}", etag=reply.etag)
        problems += [f"{region}: {problem}" for problem in reply.body.problems]
        regions_read.add(region)
        prices += [
            ListedPrice(instance=instance, region=region, kind=kind, usd_per_hour=usd, source=key)
            for (instance, kind), usd in reply.body.usd_per_hour.items()
        ]
    usd_on_demand = {row: usd for row, usd in wanted.usd_on_demand.items() if row[1] not in regions_read}
    usd_on_demand |= {(one.instance, one.region): one.usd_per_hour for one in prices if one.kind == "on_demand"}
    spot_prices, spot_sources = _fetch_spot(client, wanted, usd_on_demand=usd_on_demand)
    return Listing(
        sources={**sources, **spot_sources},
        prices=(*prices, *spot_prices),
        covered=covered_prices(
            (row for row in wanted.rows if row[1] in regions_read), "on_demand", "commit_1y", "commit_3y"
        ),
        unchanged=tuple(unchanged),
        problems=tuple(problems),
    )


def parse_bulk_csv(lines: Iterable[str], *, instances: Iterable[str]) -> BulkList:
    """Return the prices of `instances`: Linux on shared hardware, on-demand and reserved without upfront payment.

    The header is after five lines. A price of 0 and two prices for the same item are reported as problems.
    """
    rows = _csv_rows(lines)
    date = ""
    for row in rows:
        if row[:1] == ["Publication Date"]:
            date = "".join(row[1:2])[:10]
        if row[:1] == ["SKU"]:
            break
    else:
        raise NetworkError("the price list of AWS has no header", hint="the format of the list may have changed")
    column = {name: index for index, name in enumerate(row)}
    missing = [name for name in ("TermType", "PricePerUnit", "Instance Type", "Unit", "Tenancy") if name not in column]
    if missing or not date:
        message = f"the price list of AWS has no {', '.join(missing) or 'publication date'}"
        raise NetworkError(message, hint="the format of the list may have changed")
    return _bulk_list(rows, column=column, wanted=frozenset(instances), date=date)


def _csv_rows(lines: Iterable[str]) -> Iterator[list[str]]:
    try:
        yield from csv.reader(lines)
    except csv.Error as error:
        raise NetworkError(f"the price list of AWS is not CSV: {error}", hint="try again later") from None


def _bulk_list(rows: Iterator[list[str]], *, column: Mapping[str, int], wanted: frozenset[str], date: str) -> BulkList:
    needed = [(column[name], values) for name, values in _NEEDED.items() if name in column]
    instance_column, price_column = column["Instance Type"], column["PricePerUnit"]
    found: dict[tuple[str, PriceKind], float] = {}
    problems: list[str] = []
    for row in rows:
        if len(row) < len(column):
            raise NetworkError("the price list of AWS is truncated", hint="try again later")
        if row[instance_column] not in wanted:
            continue
        if any(row[index] not in values for index, values in needed):
            continue
        kind = _kind_of(row, column)
        if kind is None:
            continue
        key, usd_per_hour = (row[instance_column], kind), positive(row[price_column])
        if usd_per_hour is None:
            problems.append(f"{key[0]}: {kind} of {row[price_column]!r}")
        elif found.setdefault(key, usd_per_hour) != usd_per_hour:
            problems.append(
                f"{key[0]}: {kind} is listed as both {found[key]:g} and {usd_per_hour:g}; the first is used"
            )
    return BulkList(date=date, usd_per_hour=found, problems=tuple(problems))


def _kind_of(row: list[str], column: Mapping[str, int]) -> PriceKind | None:
    term = row[column["TermType"]]
    if term == "OnDemand":
        return "on_demand"
    names = ("LeaseContractLength", "PurchaseOption", "OfferingClass")
    if term != "Reserved" or not column.keys() >= set(names):
        return None
    length, option, offering = (row[column[name]] for name in names)
    return _RESERVED.get((length, option, offering))


def _fetch_spot(
    client: Client, wanted: Wanted, *, usd_on_demand: Mapping[tuple[str, str], float]
) -> tuple[list[ListedPrice], dict[str, ListSource]]:
    """Return spot prices and interruption rates for the rows of the price file, by (instance, region)."""
    listed = client.text(Request(url=SPOT_PRICE_URL)).decode("utf-8", errors="replace")
    paid = parse_spot_js(listed, where=SPOT_PRICE_URL)
    advised = advice_of(client.json(Request(url=SPOT_ADVISOR_URL), AdvisorList))
    found = []
    for row in sorted(wanted.rows):
        saved_percent, interruption_percent = advised.get(row, (None, None))
        usd, source = paid.get(row), "spot"
        if usd is None and saved_percent is not None and row in usd_on_demand:
            usd, source = round(usd_on_demand[row] * (1 - saved_percent / 100), 4), "spot-advisor"
        if usd is not None:
            price = ListedPrice(instance=row[0], region=row[1], kind="spot", usd_per_hour=usd, source=source)
            found.append(replace(price, interruption_percent=interruption_percent))
    return found, {
        "spot": ListSource(url=SPOT_PRICE_URL),
        "spot-advisor": ListSource(url=SPOT_ADVISOR_URL, how="DERIVED = on_demand*(1-savings%)"),
    }


_REGION_OF_SPOT_JS = {
    "us-east": "us-east-1",
    "us-west": "us-west-1",
    "eu-ireland": "eu-west-1",
    "apac-sin": "ap-southeast-1",
    "apac-syd": "ap-southeast-2",
    "apac-tokyo": "ap-northeast-1",
}
"""spot.js uses old names for the first regions."""


class _SpotPrice(BaseModel):
    name: str
    prices: dict[str, str]


class _SpotSize(BaseModel):
    size: str
    valueColumns: list[_SpotPrice]


class _SpotFamily(BaseModel):
    sizes: list[_SpotSize]


class _SpotRegion(BaseModel):
    region: str
    instanceTypes: list[_SpotFamily]


class _SpotList(BaseModel):
    regions: Annotated[list[_SpotRegion], Field(validation_alias=AliasPath("config", "regions"))]


class _Range(BaseModel):
    index: int
    label: str


class _Entry(BaseModel):
    s: Annotated[int, Field(ge=0, le=100)]  # percent saved
    r: int  # index of the range of interruptions


class AdvisorList(BaseModel):
    """The content of spot-advisor-data.json: by region, system and instance."""

    ranges: list[_Range]
    spot_advisor: dict[str, dict[str, dict[str, _Entry]]]


def parse_spot_js(text: str, *, where: str) -> dict[tuple[str, str], float]:
    """Return the Linux prices in dollars per hour from spot.js, `callback({...});`; skip "N/A"."""
    start, end = text.find("("), text.rfind(")")
    document = parsed_json(text[start + 1 : end], _SpotList, where=where)
    return {
        (size.size, _REGION_OF_SPOT_JS.get(region.region, region.region)): usd_per_hour
        for region in document.regions
        for family in region.instanceTypes
        for size in family.sizes
        for column in size.valueColumns
        if column.name == "linux" and (usd_per_hour := positive(column.prices.get("USD", ""))) is not None
    }


def advice_of(advisor: AdvisorList) -> Mapping[tuple[str, str], tuple[int, str | None]]:
    """Return the Spot Advisor's data for Linux, by (instance, region).

    It is the saving in percent of the on-demand price, and the percentage range of instances interrupted in a month.
    """
    labels = {one.index: one.label.removesuffix("%") for one in advisor.ranges}
    return {
        (instance, region): (entry.s, labels.get(entry.r))
        for region, systems in advisor.spot_advisor.items()
        for instance, entry in systems.get("Linux", {}).items()
    }


def positive(text: str) -> float | None:
    """Return the price, or None for 0 and for other text, such as "N/A*"."""
    return (float(text) or None) if text.replace(".", "", 1).isdecimal() else None
