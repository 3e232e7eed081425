"""For each provider a small price file, and the answers of its list with the very prices of the file."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from json import dumps
from typing import Any

import httpx

from advisor.catalog.overlay import Layer, shipped_profiles
from advisor.catalog.yaml_text import yaml_text
from advisor.refresh.client import Client
from advisor.refresh.providers import aws, azure, gcp, lambda_cloud, runpod, vast
from tests.refresh.aws_csv import lines, row, spot_js
from tests.refresh.conftest import sample

KEYS = (lambda_cloud.KEY_VARIABLE, gcp.KEY_VARIABLE)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the price file; `gpu_name` is as the provider writes it."""

    instance: str
    gpu: str
    gpu_name: str
    memory_gib: int
    usd: float
    count: int = 1
    vcpus: int = 8


@dataclass(frozen=True, kw_only=True)
class ProviderList:
    """`replies` gives the body of each address, from the dollars of each instance."""

    provider: str
    region: str
    rows: tuple[Row, ...]
    spot_ratio: float | None
    replies: Callable[[Mapping[str, float]], dict[str, bytes]]

    def file(self) -> str:
        kinds: dict[str, float] = {"on_demand": 1.0}
        if self.spot_ratio is not None:
            kinds["spot"] = self.spot_ratio
        instances = {
            one.instance: {
                "machine": {"vcpus": one.vcpus, "memory_gib": 32, "gpu": one.gpu, "gpu_count": one.count},
                "usd_per_hour": {
                    self.region: {kind: [round(one.usd * part, 6), "old"] for kind, part in kinds.items()}
                },
            }
            for one in self.rows
        }
        sources = {"old": {"date": "2026-01-01", "from": "an older list"}}
        return yaml_text({"provider": self.provider, "tier": "neocloud", "sources": sources, "instances": instances})

    def usd(self) -> dict[str, float]:
        return {one.instance: one.usd for one in self.rows}


def client_of(replies: Mapping[str, bytes]) -> Client:
    """A client whose servers give these bodies, by address, at once."""

    def answer(request: httpx.Request) -> httpx.Response:
        body = replies.get(str(request.url.copy_with(query=None)))
        return httpx.Response(404) if body is None else httpx.Response(200, content=body)

    return Client(sleep=lambda seconds: None, transport=httpx.MockTransport(answer))


def small_layer() -> Layer:
    """Our profiles of the GPUs above only, because a refresh parses every profile several times."""
    folder = shipped_profiles() / "devices/gpu"
    names = sorted({row.gpu for one in LISTS for row in one.rows})
    return Layer(name="", gpus=tuple(folder / f"{name}.yaml" for name in names))


_CARDS = (
    Row(instance="one 4090", gpu="rtx-4090", gpu_name="RTX 4090", memory_gib=24, usd=0.5),
    Row(instance="eight 4090", gpu="rtx-4090", gpu_name="RTX 4090", memory_gib=24, usd=4.0, count=8, vcpus=64),
    Row(instance="3090", gpu="rtx-3090", gpu_name="RTX 3090", memory_gib=24, usd=0.3),
    Row(instance="A6000", gpu="rtx-a6000", gpu_name="RTX A6000", memory_gib=48, usd=0.8),
    Row(instance="L4", gpu="l4", gpu_name="L4", memory_gib=24, usd=0.6),
    Row(instance="L40S", gpu="l40s", gpu_name="L40S", memory_gib=48, usd=1.1),
    Row(instance="A40", gpu="a40", gpu_name="A40", memory_gib=48, usd=0.7),
)
_MACHINES = tuple(
    Row(instance=instance, gpu="l4", gpu_name="L4", memory_gib=24, usd=usd)
    for instance, usd in {
        "g6.xlarge": 0.8,
        "g6.2xlarge": 0.98,
        "g6.4xlarge": 1.32,
        "g6.8xlarge": 2.01,
        "g6.16xlarge": 3.4,
    }.items()
)
_AZURE = tuple(
    Row(instance=f"Standard_NC{size}as_T4_v3", gpu="t4", gpu_name="T4", memory_gib=16, usd=usd)
    for size, usd in {4: 0.526, 8: 0.752, 12: 0.98, 16: 1.204, 20: 1.43}.items()
)
_GCP = tuple(
    # The parts below: vCPUs x 0.03 + 32 GiB x 0.005 + one L4 at 0.6.
    Row(instance=f"g2-standard-{vcpus}", gpu="l4", gpu_name="L4", memory_gib=24, usd=0.76 + 0.03 * vcpus, vcpus=vcpus)
    for vcpus in (4, 8, 12, 16)
)


def _lambda(usd: Mapping[str, float]) -> dict[str, bytes]:
    (example,) = sample("lambda_instance_types_openapi_example.json")["data"].values()
    data = {}
    for one in (one for one in _CARDS if one.instance in usd):
        item = deepcopy(example)
        item["instance_type"] |= {
            "name": one.instance,
            "gpu_description": one.gpu_name,
            "price_cents_per_hour": round(usd[one.instance] * 100),
            "specs": {"vcpus": one.vcpus, "gpus": one.count},
        }
        data[one.instance] = item
    return {lambda_cloud.TYPES_URL: _json({"data": data})}


def _runpod(usd: Mapping[str, float]) -> dict[str, bytes]:
    types = [
        {
            "id": one.gpu_name,
            "memoryInGb": one.memory_gib,
            "securePrice": usd[one.instance],
            "communityPrice": None,
            "secureSpotPrice": usd[one.instance] / 2,
            "communitySpotPrice": None,
        }
        for one in _CARDS
        if one.count == 1 and one.instance in usd
    ]
    return {runpod.GRAPHQL_URL: _json({"data": {"gpuTypes": types}})}


def _vast(usd: Mapping[str, float]) -> dict[str, bytes]:
    offers = [
        {
            "gpu_name": one.gpu_name,
            "gpu_ram": one.memory_gib * 1024.0,
            "num_gpus": 1,
            "dph_total": round(usd[one.instance] * part, 6),
        }
        for one in _CARDS
        if one.count == 1 and one.instance in usd
        for part in (0.9, 1.0, 1.3)
    ]
    return {vast.OFFERS_URL: _json({"offers": offers})}


def _aws(usd: Mapping[str, float]) -> dict[str, bytes]:
    spot = {("us-east", instance): f"{price / 2:.6f}" for instance, price in usd.items()}
    return {
        f"{aws.BULK_ORIGIN}/offers/v1.0/aws/AmazonEC2/current/us-east-1/index.csv": "".join(
            lines(row(instance, str(price)) for instance, price in usd.items())
        ).encode(),
        aws.SPOT_PRICE_URL: spot_js(spot),
        aws.SPOT_ADVISOR_URL: _json(sample("aws_spot_advisor_trimmed.json")),
    }


def _azure(usd: Mapping[str, float]) -> dict[str, bytes]:
    page = sample("azure_retail_prices_D8_v4_westeurope_2022.json")
    (example,) = (one for one in page["Items"] if one["type"] == "Consumption")
    items = [
        example
        | {"armSkuName": instance, "skuName": instance + name, "meterName": instance, "retailPrice": price * part}
        for instance, price in usd.items()
        for name, part in (("", 1.0), (" Spot", 0.5))
    ]
    return {azure.RETAIL_URL: _json({"Items": items, "NextPageLink": None})}


def _gcp(usd: Mapping[str, float]) -> dict[str, bytes]:
    skus: list[Any] = []
    if usd:
        example = sample("gcp_billing_catalog_skus_opencost.json")["skus"][0]
        factor = sum(usd.values()) / sum(one.usd for one in _GCP if one.instance in usd)
        parts = {"G2 Instance Core": ("h", 0.03), "G2 Instance Ram": ("GiBy.h", 0.005), "Nvidia L4 GPU": ("h", 0.6)}
        for prefix, kind, part in (("", "OnDemand", 1.0), ("Spot Preemptible ", "Preemptible", 0.5)):
            for name, (unit, price) in parts.items():
                sku = deepcopy(example)
                is_spot_gpu = prefix and "GPU" in name
                sku["description"] = (
                    f"{name} attached to Spot Preemptible VMs running in Americas"
                    if is_spot_gpu
                    else f"{prefix}{name} running in Americas"
                )
                sku["category"]["usageType"] = kind
                sku["serviceRegions"] = ["us-central1"]
                expression = sku["pricingInfo"][0]["pricingExpression"]
                expression["usageUnit"] = unit
                nanos = round(price * part * factor * 1e9)
                money = {"currencyCode": "USD", "units": str(nanos // 10**9), "nanos": nanos % 10**9}
                expression["tieredRates"] = [{"unitPrice": money}]
                skus.append(sku)
    return {gcp.SKUS_URL: _json({"skus": skus, "nextPageToken": ""})}


def _json(content: Any) -> bytes:
    return dumps(content).encode()


LISTS = (
    ProviderList(provider="aws", region="us-east-1", rows=_MACHINES, spot_ratio=0.5, replies=_aws),
    ProviderList(provider="azure", region="westeurope", rows=_AZURE, spot_ratio=0.5, replies=_azure),
    ProviderList(provider="gcp", region="us-central1", rows=_GCP, spot_ratio=0.5, replies=_gcp),
    ProviderList(provider="lambda", region="global", rows=_CARDS, spot_ratio=None, replies=_lambda),
    ProviderList(provider="runpod", region="global", rows=_CARDS, spot_ratio=0.5, replies=_runpod),
    ProviderList(provider="vast-ai", region="global", rows=_CARDS, spot_ratio=None, replies=_vast),
)
