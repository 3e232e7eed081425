"""Parses AWS's two lists of spot instances: prices, and savings and interruption rates from the Spot Advisor.

The classes below describe the parts of spot.js and spot-advisor-data.json that are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import AliasPath, Field, TypeAdapter

from advisor.refresh.client import parsed_json

_REGION_OF_SPOT_JS = {
    "us-east": "us-east-1",
    "us-west": "us-west-1",
    "eu-ireland": "eu-west-1",
    "apac-sin": "ap-southeast-1",
    "apac-syd": "ap-southeast-2",
    "apac-tokyo": "ap-northeast-1",
}
"""spot.js uses old names for the first regions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpotPrice:
    name: str
    prices: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpotSize:
    size: str
    valueColumns: list[_SpotPrice]  # noqa: N815 - spot.js's name


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpotFamily:
    sizes: list[_SpotSize]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpotRegion:
    region: str
    instanceTypes: list[_SpotFamily]  # noqa: N815


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpotList:
    regions: Annotated[list[_SpotRegion], Field(validation_alias=AliasPath("config", "regions"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    index: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    s: Annotated[int, Field(ge=0, le=100)]  # percent saved
    r: int  # index of the range of interruptions


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisorList:
    """The content of spot-advisor-data.json: by region, system and instance."""

    ranges: list[_Range]
    spot_advisor: dict[str, dict[str, dict[str, _Entry]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotAdvice:
    """Savings relative to the on-demand price, and the percentage range of instances interrupted within a month."""

    saved_percent: int
    interruption_percent: str | None


ADVISOR_LIST = TypeAdapter(AdvisorList)
_SPOT_LIST = TypeAdapter(_SpotList)


def parse_spot_js(text: str, *, where: str) -> dict[tuple[str, str], float]:
    """Return the Linux prices in dollars per hour from spot.js, `callback({...});`; skip "N/A"."""
    start, end = text.find("("), text.rfind(")")
    document = parsed_json(text[start + 1 : end], _SPOT_LIST, where=where)
    return {
        (size.size, _REGION_OF_SPOT_JS.get(region.region, region.region)): usd_per_hour
        for region in document.regions
        for family in region.instanceTypes
        for size in family.sizes
        for column in size.valueColumns
        if column.name == "linux" and (usd_per_hour := positive(column.prices.get("USD", ""))) is not None
    }


def advice_of(advisor: AdvisorList) -> Mapping[tuple[str, str], SpotAdvice]:
    """Return the Spot Advisor's data for Linux, by (instance, region)."""
    labels = {one.index: one.label.removesuffix("%") for one in advisor.ranges}
    return {
        (instance, region): SpotAdvice(saved_percent=entry.s, interruption_percent=labels.get(entry.r))
        for region, systems in advisor.spot_advisor.items()
        for instance, entry in systems.get("Linux", {}).items()
    }


def positive(text: str) -> float | None:
    """Return the price, or None for 0 and for other text, such as "N/A*"."""
    return (float(text) or None) if text.replace(".", "", 1).isdecimal() else None
