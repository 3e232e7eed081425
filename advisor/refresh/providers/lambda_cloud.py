"""Fetches Lambda's instance types, priced in cents per machine, the same in every region."""

from typing import Annotated, Any

from pydantic import AliasPath, BaseModel, Field, FiniteFloat

from advisor.records.price import ListedPrice, Listing, ListSource, Wanted
from advisor.refresh.client import Client, Request, key_from_environment
from advisor.refresh.match import covered_prices, rows_of_gpu, rows_with_gpu

PROVIDER = "lambda"
LISTS = "instance types"
KINDS = "on-demand"
TYPES_URL = "https://cloud.lambda.ai/api/v1/instance-types"
KEY_VARIABLE = "LAMBDA_API_KEY"


def _at(*path: str) -> Any:
    """Return the place of a value in the API's entry of an instance type."""
    return Field(validation_alias=AliasPath("instance_type", *path))


class _Type(BaseModel):
    name: Annotated[str, _at("name")]
    gpu_description: Annotated[str, _at("gpu_description")]
    price_cents_per_hour: Annotated[FiniteFloat, _at("price_cents_per_hour")]
    vcpus: Annotated[int, _at("specs", "vcpus")]
    gpus: Annotated[int, _at("specs", "gpus")]


class _Types(BaseModel):
    data: dict[str, _Type]


def fetch(client: Client, wanted: Wanted) -> Listing:
    """Fetch on-demand prices; an API type matches a row with the same GPU, GPU count and vCPUs."""
    headers = {"Authorization": f"Bearer {key_from_environment(KEY_VARIABLE)}"}
    answer = client.json(Request(url=TYPES_URL, key_headers=headers), _Types)
    prices = []
    problems = []
    for item in answer.data.values():
        rows = [
            (instance, region)
            for instance, region in rows_of_gpu(item.gpu_description, wanted)
            if wanted.types[instance].gpu_count == item.gpus and wanted.types[instance].vcpus in (None, item.vcpus)
        ]
        if not rows:
            problems.append(f"{item.name} ({item.gpu_description}): not in the price file")
        elif item.price_cents_per_hour <= 0:
            problems.append(f"{item.name}: {item.price_cents_per_hour:g} cents per hour")
        else:
            usd = item.price_cents_per_hour / 100
            prices += [
                ListedPrice(instance=instance, region=region, kind="on_demand", usd_per_hour=usd, source="api")
                for instance, region in rows
            ]
    return Listing(
        sources={"api": ListSource(url=TYPES_URL)},
        prices=tuple(prices),
        covered=covered_prices(rows_with_gpu(wanted), "on_demand"),
        problems=tuple(problems),
    )
