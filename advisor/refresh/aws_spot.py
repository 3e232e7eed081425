"""AWS's two lists of spot instances in, by (instance, region): their prices, and what the Spot Advisor says of them.

The shapes below are those of spot.js and of spot-advisor-data.json, as far as they are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

from advisor.refresh.client import parsed_json
from advisor.refresh.decimal_text import positive

_REGION_OF_SPOT_JS = {
    "us-east": "us-east-1",
    "us-west": "us-west-1",
    "eu-ireland": "eu-west-1",
    "apac-sin": "ap-southeast-1",
    "apac-syd": "ap-southeast-2",
    "apac-tokyo": "ap-northeast-1",
}
"""spot.js has the old names of the first regions."""


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
class _SpotConfig:
    regions: list[_SpotRegion]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpotList:
    config: _SpotConfig


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
    """spot-advisor-data.json: by region, system and instance."""

    ranges: list[_Range]
    spot_advisor: dict[str, dict[str, dict[str, _Entry]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotAdvice:
    """What is saved on the on-demand price, and the range of shares taken back within a month."""

    saved_percent: int
    interruption_percent: str | None


ADVISOR_LIST = TypeAdapter(AdvisorList)
_SPOT_LIST = TypeAdapter(_SpotList)


def parse_spot_js(text: str, *, where: str) -> dict[tuple[str, str], float]:
    """Dollars an hour of Linux from spot.js, `callback({...});`; "N/A" is no price."""
    start, end = text.find("("), text.rfind(")")
    document = parsed_json(text[start + 1 : end], _SPOT_LIST, where=where)
    return {
        (size.size, _REGION_OF_SPOT_JS.get(region.region, region.region)): usd_per_hour
        for region in document.config.regions
        for family in region.instanceTypes
        for size in family.sizes
        for column in size.valueColumns
        if column.name == "linux" and (usd_per_hour := positive(column.prices.get("USD", ""))) is not None
    }


def advice_of(advisor: AdvisorList) -> Mapping[tuple[str, str], SpotAdvice]:
    """What the Spot Advisor says of Linux."""
    labels = {one.index: one.label.removesuffix("%") for one in advisor.ranges}
    return {
        (instance, region): SpotAdvice(saved_percent=entry.s, interruption_percent=labels.get(entry.r))
        for region, systems in advisor.spot_advisor.items()
        for instance, entry in systems.get("Linux", {}).items()
    }
