from typing import Any

import pytest
from pydantic import TypeAdapter

from advisor.errors import NetworkError
from advisor.refresh.providers import azure
from advisor.refresh.providers.azure import Item, parse_items
from tests.refresh.conftest import Answer, Server, Waits, json_answer, sample
from tests.refresh.wanted import listed, wanted
from tests.says import assert_says

D8 = "Standard_D8_v4"


def item(**changes: Any) -> dict[str, Any]:
    values = {
        "currencyCode": "USD",
        "armRegionName": "westeurope",
        "armSkuName": D8,
        "productName": "Virtual Machines Dv4 Series",
        "skuName": "D8 v4",
        "meterName": "D8 v4",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "retailPrice": 0.46,
    }
    return values | changes


def parsed(*items: dict[str, Any]) -> tuple[dict[str, float], list[str]]:
    prices, problems = parse_items(TypeAdapter(list[Item]).validate_python(list(items)), region="westeurope")
    return {f"{one.instance} {one.kind}": one.usd_per_hour for one in prices}, problems


def test_a_reservation_gives_the_total_of_its_term_though_its_unit_is_the_hour() -> None:
    items = sample("azure_retail_prices_D8_v4_westeurope_2022.json")["Items"]
    assert {one["unitOfMeasure"] for one in items} == {"1 Hour"}
    # 2,377 $ / 8,760 h = 0.271347; 4,594 $ / 26,280 h = 0.174810
    assert parsed(*items) == (
        {f"{D8} on_demand": 0.46, f"{D8} commit_1y": 0.271347, f"{D8} commit_3y": 0.17481},
        [],
    )


def test_windows_and_low_priority_share_the_name_of_a_machine_and_are_left_out() -> None:
    kept = sample("azure_retail_items_westeurope_radar_trimmed_2026-08-20.json").values()
    items = [
        item(
            # As the API writes it: Standard_F8s_v2 for "F8s v2 Spot".
            armSkuName="Standard_" + one["meterName"].split(" Spot")[0].split(" Low")[0].replace(" ", "_"),
            **{key: one[key] for key in ("productName", "skuName", "meterName", "retailPrice")},
            savingsPlan=[{"term": "1 Year", "retailPrice": one["savingsPlanPrice"]}]
            if "savingsPlanPrice" in one
            else [],
        )
        for one in kept
    ]
    assert len(items) == 18
    assert parsed(*items) == (
        {
            "Standard_D8s_v5 on_demand": 0.46,
            "Standard_D8s_v5 commit_1y": 0.3496,
            "Standard_D8s_v5 spot": 0.085008,
            "Standard_F8s_v2 on_demand": 0.388,
            "Standard_F8s_v2 commit_1y": 0.2873916,
            "Standard_F8s_v2 spot": 0.071702,
            "Standard_NC4as_T4_v3 on_demand": 0.658,
            "Standard_NC4as_T4_v3 commit_1y": 0.4819192,
            "Standard_NC4as_T4_v3 spot": 0.457113,
        },
        [],
    )


def test_trap_1_cloud_services_share_the_name_of_a_machine_at_twice_its_price() -> None:
    name = "Standard_D16as_v5"
    services = item(armSkuName=name, productName="Virtual Machines Dasv5 Series Cloud Services", retailPrice=1.568)
    machine = item(armSkuName=name, productName="Virtual Machines Dasv5 Series", retailPrice=0.832)
    for items in ((services, machine), (machine, services)):
        assert parsed(*items) == ({f"{name} on_demand": 0.832}, [])


def test_a_savings_plan_wins_over_a_reservation_whichever_comes_first() -> None:
    plan = item(savingsPlan=[{"term": "1 Year", "retailPrice": 0.35}])
    reservation = item(type="Reservation", reservationTerm="1 Year", retailPrice=2377.0)
    for items in ((plan, reservation), (reservation, plan)):
        assert parsed(*items) == ({f"{D8} on_demand": 0.46, f"{D8} commit_1y": 0.35}, [])


@pytest.mark.parametrize(
    "changes",
    [
        {"currencyCode": "EUR"},
        {"armRegionName": "eastus"},
        {"unitOfMeasure": "1/Day"},
        {"type": "DevTestConsumption"},
        {"productName": "Dv4 Series Dedicated Host"},
        {"type": "Reservation", "reservationTerm": "5 Years"},
    ],
)
def test_a_meter_of_anything_else_is_passed_over(changes: dict[str, str]) -> None:
    assert parsed(item(**changes)) == ({}, [])


def test_a_price_of_0_and_a_second_price_are_named_and_not_taken() -> None:
    assert parsed(item(retailPrice=0.0)) == ({}, [f"westeurope {D8}: on_demand of 0"])
    prices, problems = parsed(item(), item(retailPrice=0.5))
    assert prices == {f"{D8} on_demand": 0.46}
    (problem,) = problems
    assert_says(problem, f"westeurope {D8}", "on_demand", "0.46", "0.5")


def test_every_page_of_every_region_is_read(server: Server, waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    first = {"Items": [item()], "NextPageLink": f"{server.url}/next?skip=1000"}
    monkeypatch.setattr(azure, "RETAIL_URL", server.answer("/prices", json_answer(first)))
    spot = item(armRegionName="westeurope", skuName="D8 v4 Spot", retailPrice=0.1)
    server.answer("/next", json_answer({"Items": [spot, item(armSkuName="Standard_Z")], "NextPageLink": None}))
    with waits.client() as client:
        listing = azure.fetch(client, wanted(listed(D8), regions=("westeurope",)))
    assert [(one.kind, one.usd_per_hour) for one in listing.prices] == [("on_demand", 0.46), ("spot", 0.1)]
    assert server.asked[0].query == {
        "api-version": ["2023-01-01-preview"],
        "$filter": ["serviceName eq 'Virtual Machines' and armRegionName eq 'westeurope'"],
    }
    assert server.asked[1].query == {"skip": ["1000"]}
    assert (D8, "westeurope", "on_demand") in listing.covered


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (json_answer({"Items": [item(retailPrice="dear")], "NextPageLink": None}), "Items.0.retailPrice"),
        (json_answer({"Items": None, "NextPageLink": None}), "Items: input should be a valid list"),
        (Answer(b'{"Items": ['), "not JSON"),
    ],
)
def test_a_page_of_another_shape_is_refused(
    server: Server, waits: Waits, monkeypatch: pytest.MonkeyPatch, answer: Answer, problem: str
) -> None:
    monkeypatch.setattr(azure, "RETAIL_URL", server.answer("/prices", answer))
    with waits.client() as client, pytest.raises(NetworkError, match=problem):
        azure.fetch(client, wanted(listed(D8), regions=("westeurope",)))
