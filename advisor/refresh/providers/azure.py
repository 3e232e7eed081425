"""Fetches Azure's prices from the Retail Prices API, page by page for each region.

Meters that share a name with a virtual machine are left out: Cloud Services (up to twice the price), Windows and low
priority. The price of a reservation is the total of its term, whatever its unit says.
"""

from collections.abc import Iterable
from dataclasses import field

from pydantic import BaseModel, FiniteFloat

from advisor.records.price import ListedPrice, Listing, ListSource, PriceKind, Wanted
from advisor.refresh.client import Client, Request
from advisor.refresh.match import covered_prices

PROVIDER = "azure"
LISTS = "Retail Prices API"
KINDS = "on-demand, spot, savings plans, reservations"
RETAIL_URL = "https://prices.azure.com/api/retail/prices"
_API_VERSION = "2023-01-01-preview"
"""The API version with savings plans."""
_HOURS_OF_TERM = {"1 Year": 8760, "3 Years": 26280}
_KIND_OF_TERM: dict[str, PriceKind] = {"1 Year": "commit_1y", "3 Years": "commit_3y", "3 Year": "commit_3y"}
_OTHER_PRODUCTS = ("windows", "cloud services", "cloudservices", "dedicated host")


class _SavingsPlan(BaseModel):
    term: str
    retailPrice: FiniteFloat


class Item(BaseModel):
    """One meter, with the API's field names."""

    currencyCode: str
    armRegionName: str
    armSkuName: str = ""
    productName: str
    skuName: str
    meterName: str
    unitOfMeasure: str
    type: str
    retailPrice: FiniteFloat
    reservationTerm: str = ""
    savingsPlan: list[_SavingsPlan] = field(default_factory=list)


class _Page(BaseModel):
    Items: list[Item]
    NextPageLink: str | None


def fetch(client: Client, wanted: Wanted) -> Listing:
    """Fetch on-demand and spot prices, and commitments from the savings plan or else the reservation."""
    prices: list[ListedPrice] = []
    problems: list[str] = []
    for region in wanted.regions:
        query = {
            "api-version": _API_VERSION,
            "$filter": f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}'",
        }
        pages = client.pages(
            Request(url=RETAIL_URL, params=query),
            _Page,
            following=lambda page: Request(url=page.NextPageLink) if page.NextPageLink else None,
        )
        items = (item for page in pages for item in page.Items if item.armSkuName in wanted.types)
        found, refused = parse_items(items, region=region)
        prices += found
        problems += refused
    return Listing(
        sources={
            "retail": ListSource(url=RETAIL_URL),
            "retail-savings-plan": ListSource(url=RETAIL_URL, how="savings plan, hourly"),
            "retail-reservation": ListSource(
                url=RETAIL_URL, how="DERIVED = total of the reservation / hours of its term"
            ),
        },
        prices=tuple(prices),
        covered=covered_prices(wanted.rows, "on_demand", "spot", "commit_1y", "commit_3y"),
        problems=tuple(problems),
    )


def parse_items(items: Iterable[Item], *, region: str) -> tuple[list[ListedPrice], list[str]]:
    """Return the prices of Linux virtual machines among the meters of a region, and the problems."""
    found: dict[tuple[str, PriceKind], ListedPrice] = {}
    problems: list[str] = []
    for item in items:
        if not _is_linux_machine(item, region=region):
            continue
        for kind, usd_per_hour, source in _prices_of(item):
            price = ListedPrice(
                instance=item.armSkuName, region=region, kind=kind, usd_per_hour=usd_per_hour, source=source
            )
            other = found.get((item.armSkuName, kind))
            if usd_per_hour <= 0:
                problems.append(f"{region} {item.armSkuName}: {kind} of {usd_per_hour:g}")
            elif other is None or (other.source, source) == ("retail-reservation", "retail-savings-plan"):
                found[item.armSkuName, kind] = price
            elif other.source == source and other.usd_per_hour != usd_per_hour:
                both = f"{other.usd_per_hour:g} and {usd_per_hour:g}"
                problems.append(f"{region} {item.armSkuName}: {kind} is listed as both {both}; the first is used")
    return list(found.values()), problems


def _is_linux_machine(item: Item, *, region: str) -> bool:
    product = item.productName.lower()
    return (
        item.armRegionName == region
        and item.currencyCode == "USD"
        and item.unitOfMeasure == "1 Hour"
        and product.startswith("virtual machines")
        and not any(other in product for other in _OTHER_PRODUCTS)
        and "low priority" not in f"{item.skuName} {item.meterName}".lower()
    )


def _prices_of(item: Item) -> list[tuple[PriceKind, float, str]]:
    """Return kind, dollars per hour and source of each price of a meter."""
    if item.type == "Reservation":
        if item.reservationTerm not in _HOURS_OF_TERM:
            return []
        usd_per_hour = item.retailPrice / _HOURS_OF_TERM[item.reservationTerm]
        return [(_KIND_OF_TERM[item.reservationTerm], round(usd_per_hour, 6), "retail-reservation")]
    if item.type != "Consumption":
        return []
    if item.skuName.lower().endswith(" spot"):
        return [("spot", item.retailPrice, "retail")]
    plans = [plan for plan in item.savingsPlan if plan.term in _KIND_OF_TERM]
    return [
        ("on_demand", item.retailPrice, "retail"),
        *((_KIND_OF_TERM[plan.term], plan.retailPrice, "retail-savings-plan") for plan in plans),
    ]
