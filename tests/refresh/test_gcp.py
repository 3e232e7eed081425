from typing import Any

import pytest
from pydantic import TypeAdapter

from advisor.errors import UsageError
from advisor.refresh.providers import gcp
from advisor.refresh.providers.gcp import Part, Sku, parse_skus
from tests.refresh.conftest import Server, Waits, json_answer, sample
from tests.refresh.wanted import listed, wanted
from tests.says import assert_says

A2 = listed("a2-highgpu-1g", vcpus=12, memory_bytes=85 * 2**30, gpu="a100-sxm4-40gb", gpu_count=1)


def sku(description: str, usd: float, **changes: Any) -> dict[str, Any]:
    units, nanos = int(usd), round((usd - int(usd)) * 1e9)
    money = {"currencyCode": changes.get("currency", "USD"), "units": str(units), "nanos": nanos}
    unit = "GiBy.h" if " Ram " in description else "h"
    return {
        "description": description,
        "category": {"usageType": changes.get("usage", "OnDemand")},
        "serviceRegions": changes.get("regions", ["us-central1"]),
        "pricingInfo": [{"pricingExpression": {"usageUnit": unit, "tieredRates": [{"unitPrice": money}]}}],
    }


def parts(*skus: dict[str, Any]) -> tuple[dict[Part, float], list[str]]:
    return parse_skus(TypeAdapter(list[Sku]).validate_python(list(skus)))


@pytest.fixture
def keyed(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("GOOGLE_API_KEY", "s3cr3t")
    monkeypatch.setattr(gcp, "SKUS_URL", server.answer("/skus", json_answer({"skus": []})))
    return server


def test_a_machine_is_the_sum_of_its_cores_memory_and_gpus(keyed: Server, waits: Waits) -> None:
    answer = sample("gcp_billing_catalog_skus_opencost.json") | {"nextPageToken": ""}
    keyed.answer("/skus", json_answer(answer))
    types = (A2, listed("e2-standard-4"), listed("a2-ultragpu-1g", gpu="a100-sxm4-40gb", gpu_count=1))
    with waits.client() as client:
        listing = gcp.fetch(client, wanted(*types, regions=("us-central1", "europe-west4")))
    # 12 x 0.031611 + 85 x 0.004237 + 2.933908 = 0.379332 + 0.360145 + 2.933908; not in Europe, which no SKU names;
    # e2 is priced in rupiah, and a2-ultragpu has local disks.
    (price,) = listing.prices
    assert (price.instance, price.region, price.kind) == ("a2-highgpu-1g", "us-central1", "on_demand")
    assert price.usd_per_hour == 3.673385
    (rupiah,) = (problem for problem in listing.problems if problem.startswith("E2 Instance Core running in Americas"))
    assert_says(rupiah, "IDR")
    assert len(listing.problems) == 4
    assert keyed.asked[0].headers["X-Goog-Api-Key"] == "s3cr3t"
    assert keyed.asked[0].query == {"currencyCode": ["USD"], "pageSize": ["5000"]}


def test_trap_4_a_row_that_the_price_file_does_not_have_is_not_made_up_from_parts(keyed: Server, waits: Waits) -> None:
    everywhere = ["us-central1", "asia-northeast1"]
    skus = [
        sku("N2 Instance Core running in Americas", 0.03, regions=everywhere),
        sku("N2 Instance Ram running in Americas", 0.004, regions=everywhere),
    ]
    keyed.answer("/skus", json_answer({"skus": skus}))
    asked = wanted(
        listed("n2-standard-4"), regions=tuple(everywhere), rows=frozenset({("n2-standard-4", "us-central1")})
    )
    with waits.client() as client:
        listing = gcp.fetch(client, asked)
    # 4 x 0.03 + 16 x 0.004 = 0.184
    assert [(one.region, one.usd_per_hour) for one in listing.prices] == [("us-central1", 0.184)]
    assert listing.covered == {("n2-standard-4", "us-central1", kind) for kind in ("on_demand", "spot")}


def test_a_machine_whose_parts_the_catalog_does_not_name_is_not_missed_in_it(keyed: Server, waits: Waits) -> None:
    types = (listed("a2-ultragpu-1g", gpu="a100-sxm4-80gb"), listed("g4-standard-48", gpu="rtx-pro-6000"), A2)
    with waits.client() as client:
        listing = gcp.fetch(client, wanted(*types, regions=("us-central1",)))
    assert {instance for instance, _, _ in listing.covered} == {"a2-highgpu-1g"}


@pytest.mark.parametrize(
    ("description", "usage", "name", "kind"),
    [
        ("N2D AMD Instance Ram running in Zurich", "OnDemand", "n2d Ram", "on_demand"),
        ("N1 Predefined Instance Core running in Americas", "OnDemand", "n1 Core", "on_demand"),
        ("C4A Arm Instance Core running in Paris", "OnDemand", "c4a Core", "on_demand"),
        ("Spot Preemptible C3 Instance Core running in Iowa", "Preemptible", "c3 Core", "spot"),
        ("Nvidia L4 GPU running in Americas", "OnDemand", "l4", "on_demand"),
        ("Nvidia Tesla A100 80GB GPU running in Americas", "OnDemand", "a100-sxm4-80gb", "on_demand"),
        ("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Tokyo", "Preemptible", "t4", "spot"),
    ],
)
def test_the_parts_of_machines_are_known_by_their_descriptions(
    description: str, usage: str, name: str, kind: Any
) -> None:
    found, problems = parts(sku(description, 0.5, usage=usage))
    assert found == {Part(name=name, region="us-central1", kind=kind): 0.5}
    assert problems == []


@pytest.mark.parametrize(
    "description",
    [
        "N2 Custom Instance Core running in Americas",
        "N2 Sole Tenancy Instance Core running in Americas",
        "Commitment v1: N2 Cpu in Americas for 1 Year",
        "Storage PD Capacity in Tokyo",
        "Nvidia H900 GPU running in Americas",
    ],
)
def test_what_is_no_part_of_a_plain_machine_is_passed_over(description: str) -> None:
    assert parts(sku(description, 0.5)) == ({}, [])


def test_a_part_with_two_prices_has_none() -> None:
    found, problems = parts(
        sku("N2 Instance Core running in Americas", 0.03), sku("N2 Instance Core running in Iowa", 0.04)
    )
    assert found == {}
    (problem,) = problems
    assert_says(problem, "us-central1 n2 Core", "on_demand", "0.03", "0.04")


def test_pages_are_followed_by_their_token(keyed: Server, waits: Waits) -> None:
    core = sku("N2 Instance Core running in Americas", 0.03)
    ram = sku("N2 Instance Ram running in Americas", 0.004)
    keyed.answer("/skus", json_answer({"skus": [core], "nextPageToken": "two"}), json_answer({"skus": [ram]}))
    with waits.client() as client:
        listing = gcp.fetch(client, wanted(listed("n2-standard-4"), regions=("us-central1",)))
    assert len(listing.prices) == 1
    assert keyed.asked[1].query["pageToken"] == ["two"]


def test_without_a_key_nothing_is_asked(server: Server, waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    with waits.client() as client, pytest.raises(UsageError, match="GOOGLE_API_KEY is not set"):
        gcp.fetch(client, wanted(A2))
    assert server.asked == []
