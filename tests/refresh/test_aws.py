from dataclasses import replace

import pytest

from advisor.errors import NetworkError
from advisor.refresh.providers import aws
from advisor.refresh.providers.aws import parse_spot_js
from tests.refresh.aws_csv import lines, m5_large_rows, pricing_page_rows, row, spot_js
from tests.refresh.conftest import Answer, Server, Waits, json_answer, sample
from tests.refresh.wanted import listed, wanted
from tests.says import assert_says

BULK = "/offers/v1.0/aws/AmazonEC2/current/{}/index.csv"


def bulk_body(*rows: dict[str, str]) -> bytes:
    return "".join(lines(rows)).encode()


@pytest.fixture
def origin(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(aws, "BULK_ORIGIN", server.url)
    monkeypatch.setattr(aws, "SPOT_PRICE_URL", server.answer("/spot.js", Answer(spot_js({}))))
    advisor = json_answer(sample("aws_spot_advisor_trimmed.json"))
    monkeypatch.setattr(aws, "SPOT_ADVISOR_URL", server.answer("/advisor.json", advisor))
    return server


def test_on_demand_prices_are_those_of_the_pricing_page() -> None:
    found = aws.parse_bulk_csv(lines(pricing_page_rows()), instances=["g5.xlarge", "g6.xlarge", "p5.48xlarge"])
    assert found.date == "2026-11-20"
    assert found.usd_per_hour == {
        ("p5.48xlarge", "on_demand"): 98.32,
        ("g5.xlarge", "on_demand"): 1.006,
        ("g6.xlarge", "on_demand"): 0.8048,
    }


def test_of_the_reserved_terms_the_standard_ones_without_upfront_payment_are_commitments() -> None:
    # m5.large: 0.096 on demand; standard, no upfront: 0.060 for one year, 0.041 for three; the others cost a sum first
    # or can be converted.
    found = aws.parse_bulk_csv(lines(m5_large_rows()), instances=["m5.large"])
    assert found.usd_per_hour == {
        ("m5.large", "on_demand"): 0.096,
        ("m5.large", "commit_1y"): 0.06,
        ("m5.large", "commit_3y"): 0.041,
    }
    assert found.problems == ()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("Operating_System", "Windows"),
        ("Operating_System", "RHEL"),
        ("Tenancy", "Dedicated"),
        ("Pre_Installed_S_W", "SQL Web"),
        ("CapacityStatus", "UnusedCapacityReservation"),
        ("CapacityStatus", "AllocatedCapacityReservation"),
        ("MarketOption", "CapacityBlock"),
        ("Location_Type", "AWS Local Zone"),
        ("License_Model", "Bring your own license"),
        ("Currency", "CNY"),
        ("Unit", "Quantity"),
        ("TermType", "Unknown"),
    ],
)
def test_a_row_of_anything_but_a_plain_linux_machine_is_passed_over(column: str, value: str) -> None:
    other = row("g5.xlarge", "9.0", **{column: value})
    found = aws.parse_bulk_csv(lines([other, row("g5.xlarge", "1.006")]), instances=["g5.xlarge"])
    assert found.usd_per_hour == {("g5.xlarge", "on_demand"): 1.006}


def test_a_price_of_0_and_a_second_price_are_named_and_not_taken() -> None:
    rows = [
        row("a.large", "0.0000000000"),
        row("b.large", "0.5"),
        row("b.large", "0.6"),
        row("b.large", "0.5"),
        row("c.large", "N/A"),
    ]
    found = aws.parse_bulk_csv(lines(rows), instances=["a.large", "b.large", "c.large"])
    assert found.usd_per_hour == {("b.large", "on_demand"): 0.5}
    free, twice, none = found.problems
    assert_says(free, "a.large", "on_demand", "'0.0000000000'")
    assert_says(twice, "b.large", "on_demand", "0.5", "0.6")
    assert_says(none, "c.large", "on_demand", "'N/A'")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (["<html>\n"], "has no header"),
        ([], "has no header"),
        (['"SKU","TermType"\n'], "has no PricePerUnit, Instance Type, Unit, Tenancy"),
        (list(lines([]))[5:], "has no publication date"),
    ],
)
def test_a_list_of_another_shape_is_refused(text: list[str], problem: str) -> None:
    with pytest.raises(NetworkError, match=problem):
        aws.parse_bulk_csv(text, instances=["g5.xlarge"])


def test_a_list_that_ends_within_a_row_was_cut_short() -> None:
    text = "".join(lines([row("g5.xlarge", "1.006"), row("g6.xlarge", "0.8048")]))
    with pytest.raises(NetworkError, match="truncated"):
        aws.parse_bulk_csv(text[:-100].splitlines(keepends=True), instances=["g5.xlarge"])


@pytest.mark.parametrize(
    ("damage", "problem"),
    [(("Hrs", "H" * 200_000), "is not CSV"), (('"2026-11-20T21:03:11Z"', ""), "no publication date")],
)
def test_a_list_that_is_not_as_it_should_be_is_refused(damage: tuple[str, str], problem: str) -> None:
    text = "".join(lines([row("g5.xlarge", "1.006")])).replace(*damage)
    with pytest.raises(NetworkError, match=problem):
        aws.parse_bulk_csv(text.splitlines(keepends=True), instances=["g5.xlarge"])


def test_spot_js_is_read_by_the_names_that_it_has_for_regions() -> None:
    prices = {
        ("us-east", "m5.large"): "0.0423",
        ("eu-central-1", "m5.large"): "0.05",
        ("apac-tokyo", "x1.large"): "N/A*",
    }
    assert parse_spot_js(spot_js(prices).decode(), where="spot.js") == {
        ("m5.large", "us-east-1"): 0.0423,
        ("m5.large", "eu-central-1"): 0.05,
    }


def test_a_spot_js_without_its_call_is_no_list() -> None:
    with pytest.raises(NetworkError, match="the answer is not JSON"):
        parse_spot_js("<html></html>", where="spot.js")


def test_each_region_has_its_list_and_spot_prices_come_from_spot_js_or_from_the_savings(
    origin: Server, waits: Waits
) -> None:
    body = bulk_body(row("g5.xlarge", "1.006"), row("g6.xlarge", "0.8048"))
    origin.answer(BULK.format("us-east-1"), Answer(body, headers={"ETag": '"v7"'}))
    origin.answer(BULK.format("eu-west-1"), Answer(bulk_body(row("g5.xlarge", "1.123"))))
    origin.answer("/spot.js", Answer(spot_js({("us-east", "g6.xlarge"): "0.35"})))
    with waits.client() as client:
        asked = wanted(listed("g5.xlarge"), listed("g6.xlarge"), regions=("us-east-1", "eu-west-1"))
        listing = aws.fetch(client, asked)
    prices = {(one.instance, one.region, one.kind): one for one in listing.prices}
    # The advisor's savings: g5.xlarge 59 % in us-east-1 and 56 % in eu-west-1: 1.006 x 0.41 = 0.41246,
    # 1.123 x 0.44 = 0.49412
    assert {key: one.usd_per_hour for key, one in prices.items()} == {
        ("g5.xlarge", "us-east-1", "on_demand"): 1.006,
        ("g6.xlarge", "us-east-1", "on_demand"): 0.8048,
        ("g5.xlarge", "eu-west-1", "on_demand"): 1.123,
        ("g6.xlarge", "us-east-1", "spot"): 0.35,
        ("g5.xlarge", "us-east-1", "spot"): 0.4125,
        ("g5.xlarge", "eu-west-1", "spot"): 0.4941,
    }
    assert prices["g6.xlarge", "us-east-1", "spot"].source == "spot"
    assert listing.sources[prices["g5.xlarge", "us-east-1", "spot"].source].how.startswith("DERIVED")
    # Ranges 4 and 2 of the advisor
    assert prices["g5.xlarge", "us-east-1", "spot"].interruption_percent == ">20"
    assert prices["g5.xlarge", "eu-west-1", "spot"].interruption_percent == "10-15"
    assert listing.sources["bulk-us-east-1"].etag == '"v7"'
    assert listing.sources["bulk-us-east-1"].how == "published 2026-11-20"
    assert ("g6.xlarge", "eu-west-1", "commit_3y") in listing.covered
    assert ("g6.xlarge", "eu-west-1", "spot") not in listing.covered


def test_a_list_that_has_not_changed_is_said_to_be_so(origin: Server, waits: Waits) -> None:
    url = origin.answer(BULK.format("us-east-1"), Answer(b"", headers={"ETag": '"v7"'}))
    with waits.client() as client:
        asked = wanted(listed("g5.xlarge"), regions=("us-east-1",), etags={url: '"v7"'})
        listing = aws.fetch(client, asked)
    assert listing.unchanged == (url,)
    assert (listing.prices, listing.covered) == ((), frozenset())


def test_a_spot_price_is_derived_anew_where_the_list_has_not_changed(origin: Server, waits: Waits) -> None:
    url = origin.answer(BULK.format("us-east-1"), Answer(b"", headers={"ETag": '"v7"'}))
    with waits.client() as client:
        asked = wanted(listed("g5.xlarge"), regions=("us-east-1",), etags={url: '"v7"'})
        listing = aws.fetch(client, replace(asked, usd_on_demand={("g5.xlarge", "us-east-1"): 1.006}))
    # The advisor's saving is 59 %: 1.006 x 0.41 = 0.41246.
    assert [(one.kind, one.usd_per_hour) for one in listing.prices] == [("spot", 0.4125)]


def test_a_list_that_was_cut_short_is_read_again(origin: Server, waits: Waits) -> None:
    body = bulk_body(row("g5.xlarge", "1.006"))
    cut = Answer(body[:-100], claimed_length=len(body))
    origin.answer(BULK.format("us-east-1"), cut, Answer(body))
    with waits.client() as client:
        listing = aws.fetch(client, wanted(listed("g5.xlarge"), regions=("us-east-1",)))
    assert [one.usd_per_hour for one in listing.prices if one.kind == "on_demand"] == [1.006]
    assert waits.seconds == [1.0]
