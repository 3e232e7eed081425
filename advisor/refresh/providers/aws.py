"""Fetches Amazon EC2's prices: the bulk price list of each region as CSV, spot.js and the Spot Advisor.

The list of a region has about 300 MB; it is parsed as it arrives, and only the requested types are kept. Spot prices
come from spot.js if it has the type; otherwise they are DERIVED from the advisor's savings on the on-demand price.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from advisor.errors import NetworkError
from advisor.records.listing import ListedPrice, Listing, ListSource, Wanted
from advisor.records.price import PriceKind
from advisor.refresh.aws_spot import ADVISOR_LIST, advice_of, parse_spot_js, positive
from advisor.refresh.client import Client, Request, text_lines
from advisor.refresh.match import covered_prices

PROVIDER = "aws"
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
    spot_prices, spot_sources = _fetch_spot(client, wanted, prices=prices)
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
    client: Client, wanted: Wanted, *, prices: Iterable[ListedPrice]
) -> tuple[list[ListedPrice], dict[str, ListSource]]:
    """Return spot prices and interruption rates for the rows of the price file; `prices` has the on-demand prices."""
    listed = client.text(Request(url=SPOT_PRICE_URL)).decode("utf-8", errors="replace")
    paid = parse_spot_js(listed, where=SPOT_PRICE_URL)
    advised = advice_of(client.json(Request(url=SPOT_ADVISOR_URL), ADVISOR_LIST))
    usd_on_demand = {(one.instance, one.region): one.usd_per_hour for one in prices if one.kind == "on_demand"}
    found = []
    for instance, region in sorted(wanted.rows):
        advice = advised.get((instance, region))
        usd_per_hour, source = paid.get((instance, region)), "spot"
        if usd_per_hour is None and advice is not None and (instance, region) in usd_on_demand:
            usd_per_hour = round(usd_on_demand[instance, region] * (1 - advice.saved_percent / 100), 4)
            source = "spot-advisor"
        if usd_per_hour is None:
            continue
        found.append(
            ListedPrice(
                instance=instance,
                region=region,
                kind="spot",
                usd_per_hour=usd_per_hour,
                source=source,
                interruption_percent=advice.interruption_percent if advice else None,
            )
        )
    return found, {
        "spot": ListSource(url=SPOT_PRICE_URL),
        "spot-advisor": ListSource(url=SPOT_ADVISOR_URL, how="DERIVED = on_demand*(1-savings%)"),
    }
