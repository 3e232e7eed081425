from typing import Any

from advisor.records.price import ExchangeRate, Offer, Price, PriceChange, PricedOffer
from advisor.report.content import View
from advisor.report.prices import (
    instance_prices_content,
    price_changes_content,
    price_list_content,
    render_changes_json,
    render_prices_json,
)
from advisor.report.terminal import to_text
from tests.cost.toys import offer, price
from tests.says import assert_says

WIDE = View(width=120)
EURO = ExchangeRate(currency="EUR", usd=1.25, date="2026-11-01")


def row(usd: float = 2.0, *, marks: tuple[Any, ...] = (), kind: str = "on_demand", **changes: Any) -> PricedOffer:
    paid = price(usd, kind=kind)
    return PricedOffer(offer=offer(prices=(paid,), **changes), price=paid, marks=marks)


def test_a_list_has_one_line_for_each_price_up_to_the_top() -> None:
    text = to_text(price_list_content([row(0.5), row(2.0, region="eu-1")], rate=None, top=1), WIDE)
    assert text.splitlines()[:2] == [
        "provider  instance  region  device   $/h  date        marks",
        "acme      m1        us-1    xeon    0.50  2026-01-01",
    ]
    assert_says(text.splitlines()[2], "1 more", "--top 2")


def test_marks_are_explained_below_where_there_are_any() -> None:
    text = to_text(price_list_content([row(marks=("STALE", "OLD"))], rate=None, top=10), WIDE)
    assert "2026-01-01  STALE OLD" in text
    old, stale = text.splitlines()[-2:]
    assert_says(old, "OLD", "--max-price-age")
    assert_says(stale, "STALE", "--drop-prices none")


def test_prices_are_converted_with_the_rate_that_is_named() -> None:
    # 2 dollars / 1.25 = 1.6 euros
    text = to_text(price_list_content([row(2.0)], rate=EURO, top=10), WIDE)
    assert "EUR/h" in text.splitlines()[0]
    assert "  1.60  " in text.splitlines()[1]
    assert_says(text.splitlines()[-1], "1.25 dollars per EUR", "2026-11-01")


def test_a_type_is_described_once_and_each_source_listed_once() -> None:
    rows = [row(1.0), row(0.4, kind="spot"), row(1.2, region="eu-1", excluded="advisor.yaml:1: only.region")]
    text = to_text(instance_prices_content(rows, rate=None), WIDE)
    assert text.startswith("acme m1: xeon, 8 vCPU, 29.8 GiB\n\n")  # 32e9 / 2^30 = 29.8
    assert text.count("[1]") == 3  # two prices and the list
    assert "  [1] by hand\n  [2] by hand; advisor.yaml:1: only.region\n" in text
    assert "EXCLUDED" in text


def change(identifier: str, before: float | None, after: float | None, *, date: str = "2026-01-01") -> PriceChange:
    old, new = (None if usd is None else price(usd) for usd in (before, after))
    if new is not None:
        new = Price(kind="on_demand", usd_per_hour=new.usd_per_hour, date=date, source="by hand")
    return PriceChange(offer_id=identifier, kind="on_demand", before=old, after=new)


def test_the_largest_changes_come_first_and_those_of_dates_alone_are_counted() -> None:
    changes = [
        change("a", 1.0, 1.1),
        change("b", 1.0, 0.5),
        change("c", None, 3.0),
        change("d", 2.0, None),
        change("e", 1.0, 1.0, date="2026-11-01"),
    ]
    counts, _, *table = to_text(price_changes_content(changes, rate=None, top=10), WIDE).splitlines()
    assert_says(counts, "4 prices", "1")
    assert table == [
        "offer  kind       before  after  change",
        "b      on_demand    1.00   0.50  -50.0%",
        "a      on_demand    1.00   1.10  +10.0%",
        "c      on_demand       -   3.00     new",
        "d      on_demand    2.00      -    gone",
    ]


def test_each_line_of_the_users_says_how_many_offers_it_rules_out() -> None:
    offers: list[Offer] = [offer("a", excluded="x"), offer("b", excluded="x"), offer("c", excluded="y"), offer("d")]
    text = to_text(price_changes_content((), rate=None, top=10, offers=offers), WIDE)
    assert text.splitlines()[1:] == ["2 offers: x", "1 offers: y"]


def test_json_holds_every_field_in_base_units() -> None:
    import json

    (first,) = json.loads(render_prices_json([row(2.0, marks=("OLD",))]))["prices"]
    assert (first["id"], first["usd_per_hour"], first["marks"]) == ("acme/us-1/m1", 2.0, ["OLD"])
    (only,) = json.loads(render_changes_json([change("a", None, 3.0)]))["changes"]
    assert (only["id"], only["before"], only["after"]["usd_per_hour"]) == ("a", None, 3.0)
