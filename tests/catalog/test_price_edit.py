from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from advisor.catalog.price_edit import etags_of, listed_types, with_listing
from advisor.catalog.price_files import read_price_rows
from advisor.catalog.strict_yaml import parse_documents
from advisor.catalog.yaml_text import yaml_text
from advisor.records.price import ListedPrice, Listing, ListSource, PriceKind
from tests.says import assert_says

TODAY = "2026-11-21"
FILE: dict[str, Any] = {
    "provider": "aws",
    "tier": "hyperscaler",
    "sources": {"list": {"date": "2026-01-01", "from": "x"}, "idle": {"date": "2026-01-01", "from": "y"}},
    "instances": {
        "g5.xlarge": {
            "machine": {"vcpus": 4, "gpu": "a10g", "gpu_count": 1},
            "usd_per_hour": {
                "us": {"on_demand": [1.0, "list"], "spot": [0.4, "list"], "commit_1y": [0.7, "list"]},
                "eu": {"on_demand": [1.2, "list"], "note": "mind"},
            },
        },
        "p5.48xlarge": {
            "machine": {"gpu": "h100-sxm5-80gb", "gpu_count": 8},
            "usd_per_hour": {"us": {"on_demand": [98.32, "list"], "stale": ["on_demand"], "note": "STALE: cut"}},
        },
    },
}


def price(
    instance: str, usd: float, *, region: str = "us", kind: PriceKind = "on_demand", interruption: str | None = None
) -> ListedPrice:
    return ListedPrice(
        instance=instance, region=region, kind=kind, usd_per_hour=usd, source="api", interruption_percent=interruption
    )


def edited(*prices: ListedPrice, covered: set[tuple[str, str, PriceKind]] | None = None, **more: Any) -> dict[str, Any]:
    values = more.pop("values", FILE)
    source = ListSource(url="https://example.org", how="summed", etag='"v1"', basis="published")
    listing = Listing(sources={"api": source}, prices=prices, covered=frozenset(covered or set()), **more)
    return with_listing(values, listing, today=TODAY)


def lines(values: dict[str, Any], instance: str = "g5.xlarge") -> dict[str, Any]:
    found: dict[str, Any] = values["instances"][instance]["usd_per_hour"]
    return found


def test_a_listed_price_replaces_the_files_with_its_date_and_source() -> None:
    new = edited(price("g5.xlarge", 1.1), price("g5.xlarge", 0.5, kind="spot", interruption="5-10"))
    assert lines(new)["us"] == {
        "on_demand": [1.1, "api-2026-11-21"],
        "spot": [0.5, "api-2026-11-21"],
        "commit_1y": [0.7, "list"],
        "interruption_percent": "5-10",
    }
    assert new["sources"]["api-2026-11-21"] == {
        "date": TODAY, "from": "https://example.org", "how": "summed", "basis": "published", "etag": '"v1"',
    }  # fmt: skip
    assert etags_of(new) == {"https://example.org": '"v1"'}
    assert new["complete"] is True


def test_the_values_that_were_given_are_left_as_they_are() -> None:
    before = deepcopy(FILE)
    edited(price("g5.xlarge", 1.1), covered={("g5.xlarge", "us", "on_demand")})
    assert before == FILE


def test_a_source_that_no_price_has_any_more_goes() -> None:
    assert "idle" not in edited(price("g5.xlarge", 1.1))["sources"]


def test_a_new_price_is_not_stale_and_the_note_about_the_old_one_goes() -> None:
    assert lines(edited(price("p5.48xlarge", 55.04)), "p5.48xlarge")["us"] == {"on_demand": [55.04, "api-2026-11-21"]}


def test_a_note_on_something_else_stays() -> None:
    assert lines(edited(price("g5.xlarge", 1.3, region="eu")))["eu"]["note"] == "mind"


def test_a_price_of_a_machine_in_a_file_of_prices_per_gpu_is_divided() -> None:
    values = {**FILE, "price_per": "gpu"}
    # 55.04 for 8 GPUs: 6.88
    line = lines(edited(price("p5.48xlarge", 55.04), values=values), "p5.48xlarge")["us"]
    assert line["on_demand"] == [6.88, "api-2026-11-21"]


def test_what_a_whole_list_no_longer_has_is_dropped_and_the_row_with_its_on_demand_price() -> None:
    covered: set[tuple[str, str, PriceKind]] = {
        ("g5.xlarge", "us", "on_demand"),
        ("g5.xlarge", "us", "commit_1y"),
        ("p5.48xlarge", "us", "on_demand"),
    }
    new = edited(price("g5.xlarge", 1.0), covered=covered)
    # No commitment any more; the spot list is not whole; the other region was not asked about; p5 is not sold.
    assert lines(new) == {
        "us": {"on_demand": [1.0, "api-2026-11-21"], "spot": [0.4, "list"]},
        "eu": {"on_demand": [1.2, "list"], "note": "mind"},
    }
    assert list(new["instances"]) == ["g5.xlarge"]


def test_a_region_that_sells_a_known_type_now_is_added() -> None:
    new = edited(price("p5.48xlarge", 60.0, region="eu"))
    assert lines(new, "p5.48xlarge")["eu"] == {"on_demand": [60.0, "api-2026-11-21"]}


def test_a_type_that_the_file_does_not_describe_is_not_added() -> None:
    assert list(edited(price("x9.large", 1.0), price("g5.xlarge", 1.0))["instances"]) == ["g5.xlarge", "p5.48xlarge"]


def test_trap_5_a_spot_price_above_on_demand_is_left_out_with_a_note() -> None:
    line = lines(edited(price("g5.xlarge", 1.5, kind="spot")))["us"]
    assert "spot" not in line
    assert_says(line["note"], "spot 1.5", "on-demand")


def test_prices_with_the_date_of_the_file_are_replaced_like_others() -> None:
    bare: dict[str, Any] = {
        "provider": "aws",
        "date": "2026-01-01",
        "instances": {"g5.xlarge": {"usd_per_hour": {"us": {"on_demand": 0.93, "spot": 0.4, "commit_1y": 0.7}}}},
    }
    new = edited(price("g5.xlarge", 3.0), values=bare)
    assert lines(new)["us"] == {
        "on_demand": [3.0, "api-2026-11-21"],
        "spot": 0.4,
        "commit_1y": 0.7,
        "suspect": ["on_demand"],
        "trusted": {"on_demand": 0.93},  # 3.0 is more than 3 x 0.93
        "note": "on_demand was 0.93: a change by more than 3 times",
    }
    assert (new["date"], set(new["sources"])) == ("2026-01-01", {"api-2026-11-21"})
    cheap = lines(edited(price("g5.xlarge", 0.35), values=bare))["us"]
    assert (cheap["on_demand"], "spot" in cheap) == ([0.35, "api-2026-11-21"], False)
    # Nothing is listed anew: an unchanged list dates the prices that name it alone.
    assert lines(edited(values=bare, unchanged=("https://example.org",))) == lines(bare)


def test_a_change_by_more_than_three_times_is_marked_and_not_believed() -> None:
    # A price for each of 8 GPUs in place of the machine's: 55.04 / 8 = 6.88
    file = deepcopy(FILE)
    file["instances"]["p5.48xlarge"]["usd_per_hour"]["us"] = {"on_demand": [55.04, "list"]}
    line = lines(edited(price("p5.48xlarge", 6.88), values=file), "p5.48xlarge")["us"]
    assert_says(line.pop("note"), "on_demand", "55.04", "3 times")
    assert line == {
        "on_demand": [6.88, "api-2026-11-21"],
        "suspect": ["on_demand"],
        "trusted": {"on_demand": 55.04},
    }
    # A cut by 1.8, as AWS's of 2025, is believed, and so is any change of a price that was known to be wrong.
    assert "suspect" not in lines(edited(price("p5.48xlarge", 30.0), values=file), "p5.48xlarge")["us"]
    assert "suspect" not in lines(edited(price("p5.48xlarge", 6.88)), "p5.48xlarge")["us"]


def test_a_suspect_price_is_compared_with_the_last_trusted_one_however_often_the_list_repeats_it() -> None:
    once = edited(price("g5.xlarge", 5.0), price("g5.xlarge", 0.5, kind="spot"))
    again = edited(price("g5.xlarge", 5.0), price("g5.xlarge", 0.5, kind="spot"), values=once)
    assert again == once
    assert lines(again)["us"]["suspect"] == ["on_demand"]
    assert lines(again)["us"]["trusted"] == {"on_demand": 1.0}
    # 1.0 x 3 is as far as a price may go; 14.0 is within three times of 5.0, which nobody trusted.
    assert lines(edited(price("g5.xlarge", 14.0), values=again))["us"]["trusted"] == {"on_demand": 1.0}
    back = lines(edited(price("g5.xlarge", 3.0), values=again))["us"]
    assert back["on_demand"] == [3.0, "api-2026-11-21"]
    assert not back.keys() & {"suspect", "trusted", "note"}


def test_a_suspect_price_without_a_trusted_one_stays_so_until_the_list_says_another() -> None:
    file = deepcopy(FILE)
    file["instances"]["g5.xlarge"]["usd_per_hour"]["us"] |= {"suspect": ["on_demand"], "note": "twice its family's"}
    same = lines(edited(price("g5.xlarge", 1.0), values=file))["us"]
    assert (same["on_demand"], same["suspect"]) == ([1.0, "api-2026-11-21"], ["on_demand"])
    assert "suspect" not in lines(edited(price("g5.xlarge", 0.5), values=file))["us"]


def test_a_row_that_is_sold_no_longer_takes_its_trusted_price_along() -> None:
    file = deepcopy(FILE)
    file["instances"]["g5.xlarge"]["usd_per_hour"]["us"] |= {"suspect": ["spot"], "trusted": {"spot": 0.1}}
    new = edited(price("g5.xlarge", 1.0), values=file, covered={("g5.xlarge", "us", "spot")})
    assert lines(new)["us"].keys() == {"on_demand", "commit_1y"}


def test_a_list_that_is_as_it_was_has_the_date_of_today() -> None:
    before = edited(price("g5.xlarge", 1.1))
    after = with_listing(
        before,
        Listing(sources={}, prices=(), covered=frozenset(), unchanged=("https://example.org",)),
        today="2026-12-01",
    )
    assert lines(after)["us"]["on_demand"] == [1.1, "api-2026-12-01"]
    assert after["sources"]["api-2026-12-01"] == {**before["sources"]["api-2026-11-21"], "date": "2026-12-01"}
    assert "api-2026-11-21" not in after["sources"]
    assert lines(after)["us"]["spot"] == [0.4, "list"]


def test_what_a_file_says_of_its_types() -> None:
    (document,) = parse_documents(yaml_text(FILE), label="aws.yaml")
    types = listed_types(list(read_price_rows(document)), gpu_ids={"a10g": "a10g"})
    assert (types["g5.xlarge"].vcpus, types["g5.xlarge"].gpu, types["g5.xlarge"].tier) == (4, "a10g", "hyperscaler")
    assert (types["p5.48xlarge"].gpu, types["p5.48xlarge"].gpu_count) == (None, 8)


@given(
    st.lists(
        st.builds(
            price,
            st.sampled_from(["g5.xlarge", "p5.48xlarge", "x9.large"]),
            st.floats(0.01, 200.0),
            region=st.sampled_from(["us", "eu"]),
            kind=st.sampled_from(["on_demand", "spot", "commit_3y"]),
        ),
        max_size=6,
    )
)
def test_a_listing_changes_only_the_rows_it_names_and_leaves_a_file_that_reads(prices: list[ListedPrice]) -> None:
    prices = list({(one.instance, one.region, one.kind): one for one in prices}.values())
    new = edited(*prices)
    named = {(one.instance, one.region) for one in prices}
    for instance, entry in FILE["instances"].items():
        for region, line in entry["usd_per_hour"].items():
            if (instance, region) not in named:
                assert lines(new, instance)[region] == line
    (document,) = parse_documents(yaml_text(new), label="aws.yaml")
    assert document.values == new
    assert list(read_price_rows(document))  # no price of it is refused
