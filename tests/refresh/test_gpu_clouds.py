"""Lambda, RunPod and Vast.ai, whose rows are found by their GPU."""

import json
from typing import Any

import pytest

from advisor.errors import NetworkError, UsageError
from advisor.refresh.providers import lambda_cloud, provider_module, runpod, vast
from tests.refresh.conftest import Server, Waits, json_answer, sample
from tests.refresh.wanted import listed, wanted
from tests.says import assert_says

ONE = listed("one", vcpus=30, gpu="rtx-4090", gpu_count=1)
EIGHT = listed("eight", vcpus=124, gpu="example-gpu-40gb-sxm4", gpu_count=8)


def usd_of(listing: Any) -> dict[tuple[str, str], float]:
    return {(one.instance, one.kind): one.usd_per_hour for one in listing.prices}


def known(name: str, memory_gib: float | None) -> str:
    """Words with hyphens between, without brackets."""
    return "-".join(name.lower().replace("(", "").replace(")", "").replace(" gb", "gb").split())


# Lambda


@pytest.fixture
def lambda_types(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("LAMBDA_API_KEY", "s3cr3t")
    answer = json_answer(sample("lambda_instance_types_openapi_example.json"))
    monkeypatch.setattr(lambda_cloud, "TYPES_URL", server.answer("/types", answer))
    return server


def test_cents_of_a_lambda_machine_are_dollars_of_all_its_gpus(lambda_types: Server, waits: Waits) -> None:
    with waits.client() as client:
        listing = lambda_cloud.fetch(client, wanted(ONE, EIGHT, gpu_id=known))
    # 1,592 cents for the machine with eight
    assert usd_of(listing) == {("eight", "on_demand"): 15.92}
    assert lambda_types.asked[0].headers["Authorization"] == "Bearer s3cr3t"


@pytest.mark.parametrize("changes", [{"gpu_count": 1}, {"vcpus": 30}, {"gpu": "other"}])
def test_a_lambda_machine_of_another_size_is_not_taken_for_it(
    lambda_types: Server, waits: Waits, changes: dict[str, Any]
) -> None:
    values = {"vcpus": 124, "gpu": "example-gpu-40gb-sxm4", "gpu_count": 8} | changes
    with waits.client() as client:
        listing = lambda_cloud.fetch(client, wanted(listed("eight", **values), gpu_id=known))
    assert listing.prices == ()
    (problem,) = listing.problems
    assert_says(problem, "gpu_8x_example", "Example GPU (40 GB SXM4)")


def test_a_lambda_price_of_nothing_is_refused(lambda_types: Server, waits: Waits) -> None:
    answer = sample("lambda_instance_types_openapi_example.json")
    answer["data"]["gpu_8x_example"]["instance_type"]["price_cents_per_hour"] = 0
    lambda_types.answer("/types", json_answer(answer))
    with waits.client() as client:
        listing = lambda_cloud.fetch(client, wanted(EIGHT, gpu_id=known))
    assert (listing.prices, listing.problems) == ((), ("gpu_8x_example: 0 cents per hour",))


# RunPod


def runpod_answer(**prices: Any) -> dict[str, Any]:
    return {"data": {"gpuTypes": [{"id": "RTX 4090", **prices}]}}


@pytest.fixture
def runpod_types(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    answer = runpod_answer(securePrice=0.69, communityPrice=0.34, secureSpotPrice=0.35, communitySpotPrice=None)
    monkeypatch.setattr(runpod, "GRAPHQL_URL", server.answer("/graphql", json_answer(answer)))
    return server


def test_runpods_own_machines_and_its_communitys_have_prices_of_their_own(runpod_types: Server, waits: Waits) -> None:
    two = listed("two", gpu="rtx-4090", gpu_count=2)
    community = listed("community", gpu="rtx-4090", gpu_count=1, tier="marketplace")
    with waits.client() as client:
        listing = runpod.fetch(client, wanted(two, community, gpu_id=known))
    # For each GPU: two of 0.69 are 1.38, of 0.35 are 0.70; the community has no spot price now.
    assert usd_of(listing) == pytest.approx(
        {("two", "on_demand"): 1.38, ("two", "spot"): 0.7, ("community", "on_demand"): 0.34}
    )
    assert json.loads(runpod_types.asked[0].body)["query"].startswith("{ gpuTypes { id memoryInGb securePrice")


def test_a_runpod_price_of_0_is_no_price(runpod_types: Server, waits: Waits) -> None:
    runpod_types.answer("/graphql", json_answer(runpod_answer(securePrice=0)))
    with waits.client() as client:
        assert runpod.fetch(client, wanted(ONE, gpu_id=known)).prices == ()


def test_an_error_of_graphql_is_an_answer_of_another_shape(runpod_types: Server, waits: Waits) -> None:
    runpod_types.answer("/graphql", json_answer({"errors": [{"message": "no"}], "data": None}))
    with waits.client() as client, pytest.raises(NetworkError, match=r"graphql: data: input should be"):
        runpod.fetch(client, wanted(ONE, gpu_id=known))


# Vast.ai


def vast_listing(server: Server, waits: Waits, monkeypatch: pytest.MonkeyPatch, *offers: tuple[str, int, float]) -> Any:
    rows = [{"gpu_name": name, "gpu_ram": 24564.0, "num_gpus": count, "dph_total": usd} for name, count, usd in offers]
    monkeypatch.setattr(vast, "OFFERS_URL", server.answer("/bundles/", json_answer({"offers": rows})))
    with waits.client() as client:
        return vast.fetch(client, wanted(ONE, gpu_id=known))


def test_the_price_of_vast_is_the_median_offer_for_a_gpu_and_not_the_cheapest(
    server: Server, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    offers = [("RTX 4090", 1, 0.10), ("RTX 4090", 2, 0.80), ("RTX 4090", 4, 1.40), ("RTX 4090", 1, 0.0)]
    listing = vast_listing(server, waits, monkeypatch, *offers)
    # For each GPU 0.10, 0.40 and 0.35, of which the middle is 0.35; nothing is given away.
    assert usd_of(listing) == {("one", "on_demand"): 0.35}
    assert listing.sources["offers"].basis == "median_live_offer"
    assert json.loads(server.asked[0].query["q"][0])["rentable"] == {"eq": True}


def test_a_median_of_two_offers_is_none(server: Server, waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = vast_listing(server, waits, monkeypatch, ("RTX 4090", 1, 0.10), ("RTX 4090", 1, 0.40), ("T4", 1, 0.1))
    assert listing.prices == ()
    (problem,) = listing.problems
    assert_says(problem, "RTX 4090", "2", "3")


def test_cards_of_one_name_and_two_memories_are_two(
    server: Server, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"gpu_name": "A100 SXM4", "gpu_ram": ram, "num_gpus": 1, "dph_total": usd}
        for ram, usd in [(40960.0, 0.5)] * 3 + [(81920.0, 1.1)] * 3
    ]
    monkeypatch.setattr(vast, "OFFERS_URL", server.answer("/bundles/", json_answer({"offers": rows})))
    types = [listed(f"a100-{size}", gpu=f"a100-{size}", gpu_count=1) for size in (40, 80)]
    with waits.client() as client:
        asked = wanted(*types, gpu_id=lambda name, memory_gib: f"a100-{memory_gib}")
        assert usd_of(vast.fetch(client, asked)) == {("a100-40", "on_demand"): 0.5, ("a100-80", "on_demand"): 1.1}


# All


@pytest.mark.parametrize(
    ("provider", "hint"),
    [("asure", "did you mean azure?"), ("modal", "use one of aws, azure, gcp, lambda, runpod, vast-ai")],
)
def test_a_provider_without_a_list_is_named_with_those_that_have_one(provider: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"'{provider}' cannot be fetched") as caught:
        provider_module(provider)
    assert caught.value.hint == hint
