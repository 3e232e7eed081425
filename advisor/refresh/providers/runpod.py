"""Fetches RunPod's prices per GPU from its GraphQL API, for its own data centres and its community."""

from pydantic import BaseModel, FiniteFloat

from advisor.records.price import ListedPrice, Listing, ListSource, PriceKind, Wanted
from advisor.refresh.client import Client, Request
from advisor.refresh.match import covered_prices, rows_of_gpu, rows_with_gpu

PROVIDER = "runpod"
LISTS = "GraphQL `gpuTypes`"
KINDS = "on-demand, spot"
GRAPHQL_URL = "https://api.runpod.io/graphql"
_QUERY = "{ gpuTypes { id memoryInGb securePrice communityPrice secureSpotPrice communitySpotPrice } }"


class _GpuType(BaseModel):
    """A GPU type; `id` is the name that the driver reports. A price of null or 0 means not available."""

    id: str
    memoryInGb: FiniteFloat | None = None
    securePrice: FiniteFloat | None = None
    communityPrice: FiniteFloat | None = None
    secureSpotPrice: FiniteFloat | None = None
    communitySpotPrice: FiniteFloat | None = None


class _GpuTypes(BaseModel):
    gpuTypes: list[_GpuType]


class _Answer(BaseModel):
    data: _GpuTypes


def fetch(client: Client, wanted: Wanted) -> Listing:
    """Fetch on-demand and spot prices; rows of the marketplace tier are the community's."""
    answer = client.json(Request(url=GRAPHQL_URL, json={"query": _QUERY}), _Answer)
    prices = []
    for gpu in answer.data.gpuTypes:
        for instance, region in rows_of_gpu(gpu.id, wanted, memory_gib=gpu.memoryInGb):
            listed = wanted.types[instance]
            is_community = listed.tier == "marketplace"
            of_one_gpu: dict[PriceKind, float | None] = {
                "on_demand": gpu.communityPrice if is_community else gpu.securePrice,
                "spot": gpu.communitySpotPrice if is_community else gpu.secureSpotPrice,
            }
            for kind, usd_per_gpu_hour in of_one_gpu.items():
                if usd_per_gpu_hour:
                    usd = usd_per_gpu_hour * listed.gpu_count
                    price = ListedPrice(instance=instance, region=region, kind=kind, usd_per_hour=usd, source="api")
                    prices.append(price)
    return Listing(
        sources={"api": ListSource(url=GRAPHQL_URL, basis="published")},
        prices=tuple(prices),
        covered=covered_prices(rows_with_gpu(wanted), "on_demand", "spot"),
    )
