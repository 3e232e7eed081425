"""The bulk CSV of AWS, written from answers of its other price lists, which have the same fields."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

from tests.refresh.conftest import sample

HEADER = (
    "SKU", "OfferTermCode", "RateCode", "TermType", "PriceDescription", "EffectiveDate", "StartingRange", "EndingRange",
    "Unit", "PricePerUnit", "Currency", "RelatedTo", "LeaseContractLength", "PurchaseOption", "OfferingClass",
    "Product Family", "serviceCode", "Location", "Location Type", "Instance Type", "Current Generation",
    "Instance Family", "vCPU", "Physical Processor", "Clock Speed", "Memory", "Storage", "Network Performance",
    "Tenancy", "Operating System", "License Model", "CapacityStatus", "MarketOption", "Pre Installed S/W",
    "Region Code",
)  # fmt: skip
PREAMBLE = (
    ("FormatVersion", "v1.0"),
    ("Disclaimer", "This pricing list is for informational purposes only."),
    ("Publication Date", "2026-11-20T21:03:11Z"),
    ("Version", "20261120210311"),
    ("OfferCode", "AmazonEC2"),
)
PLAIN = {
    "TermType": "OnDemand",
    "Unit": "Hrs",
    "Currency": "USD",
    "Location Type": "AWS Region",
    "Tenancy": "Shared",
    "Operating System": "Linux",
    "License Model": "No License required",
    "CapacityStatus": "Used",
    "MarketOption": "OnDemand",
    "Pre Installed S/W": "NA",
}


def row(instance: str, usd: str, **changes: str) -> dict[str, str]:
    """A row of a plain Linux machine; a change's `_` stands for a blank."""
    named = {name.replace("_", " ").replace("S W", "S/W"): value for name, value in changes.items()}
    return {**PLAIN, "Instance Type": instance, "PricePerUnit": usd, **named}


def lines(rows: Iterable[dict[str, str]]) -> Iterator[str]:
    for values in (*PREAMBLE, HEADER):
        yield _line(values)
    for one in rows:
        yield _line([one.get(name, "") for name in HEADER])


def pricing_page_rows() -> list[dict[str, str]]:
    """AWS's pricing page of us-east-1 in April 2025."""
    (region,) = sample("aws_pricingpage_ondemand_us-east-1_trimmed.json")["regions"].values()
    return [row(one["Instance Type"], one["price"]) for one in region.values()]


def m5_large_rows() -> list[dict[str, str]]:
    """The product m5.large of the Price List API with all of its terms."""
    answer = sample("aws_pricing_getproducts_m5_large.json")
    return [
        row(
            answer["product"]["attributes"]["instanceType"],
            dimension["pricePerUnit"]["USD"],
            TermType=term_type,
            Unit=dimension["unit"],
            **term["termAttributes"],
        )
        for term_type, terms in answer["terms"].items()
        for term in terms.values()
        for dimension in term["priceDimensions"].values()
    ]


def spot_js(prices: dict[tuple[str, str], str]) -> bytes:
    """spot.js with the prices of (region as it names it, size)."""
    import json

    regions: list[Any] = [
        {
            "region": region,
            "instanceTypes": [
                {
                    "type": "gpuCurrentGen",
                    "sizes": [
                        {
                            "size": size,
                            "valueColumns": [
                                {"name": "linux", "prices": {"USD": usd}},
                                {"name": "mswin", "prices": {"USD": "9.9"}},
                            ],
                        }
                    ],
                }
            ],
        }
        for (region, size), usd in prices.items()
    ]
    config = {"rate": "perhr", "valueColumns": ["linux", "mswin"], "currencies": ["USD"], "regions": regions}
    return f"callback({json.dumps({'vers': 0.01, 'config': config})});".encode()


def _line(values: Iterable[str]) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(values)
    return out.getvalue()
