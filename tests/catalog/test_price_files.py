from datetime import date, timedelta

import pytest

from advisor.catalog.price_files import PriceRow, read_price_rows
from advisor.catalog.strict_yaml import parse_documents
from advisor.errors import ProfileError
from tests.says import assert_says

HEAD = """\
provider: aws
tier: hyperscaler
regions: {us-east-1: US}
sources:
  list: {date: 2026-07-20, from: the price list}
  advisor: {date: 2025-06-28, from: the advisor, how: on-demand less savings}
instances:
  g5.xlarge:
    machine: {vcpus: 4, memory_gib: 16, gpu: a10g}
    usd_per_hour:
"""


def rows_of(text: str) -> list[PriceRow]:
    return [row for document in parse_documents(text, label="aws.yaml") for row in read_price_rows(document)]


def row_of(line: str) -> PriceRow:
    (row,) = rows_of(f"{HEAD}      us-east-1: {line}\n")
    return row


def test_each_price_has_the_date_and_the_text_of_its_source() -> None:
    row = row_of("{on_demand: [1.006, list], spot: [0.4, advisor], interruption_percent: '>20', note: dear}")
    on_demand, spot = row.prices
    assert (on_demand.kind, on_demand.usd_per_hour, on_demand.date) == ("on_demand", 1.006, "2026-07-20")
    assert (spot.kind, spot.source, spot.date) == ("spot", "the advisor; on-demand less savings", "2025-06-28")
    assert (row.tier, row.geo, row.interruption, on_demand.note) == ("hyperscaler", "US", ">20 %", "dear")


def test_the_basis_of_a_price_is_that_of_its_source_or_file_or_of_the_reader() -> None:
    text = (
        "provider: aws\ndate: 2026-09-01\nsources: {{live: {{date: 2026-09-01, from: x, basis: median_live_offer}}}}\n"
        "instances: {{g5.xlarge: {{usd_per_hour: {{eu: {{on_demand: 2, spot: [1, live]}}}}}}}}\n{}"
    )
    for more, basis in (("", "own_rate"), ("price_basis: published", "published")):
        (document,) = parse_documents(text.format(more), label="aws.yaml")
        (row,) = read_price_rows(document, basis="own_rate")
        assert [price.basis for price in row.prices] == [basis, "median_live_offer"]


def test_flags_hold_for_the_prices_they_name() -> None:
    row = row_of("{on_demand: [1, list], spot: [0.4, list], commit_1y: [0.6, list], stale: [on_demand, commit_1y]}")
    assert [price.stale for price in row.prices] == [True, False, True]
    row = row_of("{on_demand: [1, list], spot: [0.4, list], suspect: [spot]}")
    assert [price.suspect for price in row.prices] == [False, True]


@pytest.mark.parametrize("share", ["'<5'", "5-10", "'>20'", "7", "0.5-99.9"])
def test_a_share_of_interrupted_instances_is_a_percentage_or_a_range(share: str) -> None:
    text = share.strip("'")
    assert row_of(f"{{spot: [1, list], interruption_percent: {share}}}").interruption == f"{text} %"


@pytest.mark.parametrize(
    "share", ["often", "5-150", "100", "'100'", "10-5", "5-5", "0", "-5", "1.2.3", "true", "''", "[5]"]
)
def test_a_share_of_interrupted_instances_that_is_none_is_refused_at_its_line(share: str) -> None:
    with pytest.raises(ProfileError, match=r"aws.yaml:11: .*interruption_percent: expected a percentage"):
        row_of(f"{{spot: [1, list], interruption_percent: {share}}}")


def test_a_commitment_dearer_than_on_demand_is_kept_as_suspect() -> None:
    row = row_of("{on_demand: [1, list], commit_1y: [1.2, list], commit_3y: [0.5, list]}")
    assert [(price.kind, price.suspect) for price in row.prices] == [
        ("on_demand", False),
        ("commit_1y", True),
        ("commit_3y", False),
    ]
    assert_says(row.prices[1].note, "commit_1y 1.2", "on-demand 1.0")


def test_a_bare_price_takes_the_date_of_the_head_and_the_file_as_its_source() -> None:
    (row,) = rows_of("provider: aws\ndate: 2026-09-01\ninstances: {g5.xlarge: {usd_per_hour: {us-east-1: {spot: 1}}}}")
    (price,) = row.prices
    assert (price.usd_per_hour, price.date, price.source) == (1.0, "2026-09-01", "aws.yaml")
    assert (row.machine, row.tier, row.geo) == (None, None, None)


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("{on_demand: [0, list]}", "on_demand: expected a number that is more than 0, found 0", "correct it"),
        ("{on_demand: [-1, list]}", "on_demand: expected a number that is more than 0, found -1", "correct it"),
        ("{on_demand: [.nan, list]}", "on_demand: expected a number that is more than 0, found nan", "correct it"),
        ("{on_demand: [.inf, list]}", "on_demand: expected a number that is more than 0, found inf", "correct it"),
        ("{on_demand: [nan, list]}", "on_demand: expected a number, found 'nan'", "for example"),
        ("{on_demand: [1, list], spot: [1.1, list]}", "spot: spot 1.1 is above on-demand 1.0", "remove the spot"),
        ("{on_demand: [1, lisst]}", "on_demand: no source 'lisst'", "did you mean list?"),
        ("{on_demand: [1]}", "on_demand: expected [dollars, source]", "write [0.93, my-source]"),
        ("{on_demand: 1}", "on_demand: this price has no date", "add `date: 2026-09-01`"),
        ("{ondemand: [1, list]}", "ondemand: unknown key", "did you mean on_demand?"),
        ("{note: nothing}", "no price in this line", "add one of on_demand"),
        ("{on_demand: [1, list], stale: [spot]}", "stale.0: 'spot' is not a price of this line", "on_demand"),
        ("{on_demand: [1, list], stale: true}", "stale: expected a list, found True", "[on_demand]"),
        ("{on_demand: [1, list], note: 5}", "note: expected text, found 5", "quotes"),
        ("1.006", "expected keys and values, found 1.006", "key: value"),
    ],
)
def test_a_price_that_cannot_be_right_is_refused_at_its_line(line: str, message: str, hint: str) -> None:
    with pytest.raises(ProfileError) as caught:
        row_of(line)
    where = "aws.yaml:11: instances.g5.xlarge.usd_per_hour.us-east-1"
    assert caught.value.message.removeprefix(where).lstrip(".: ").startswith(message)
    assert caught.value.message.startswith(where)
    assert hint in caught.value.hint


@pytest.mark.parametrize("when", ["2026-13-01", "2026-02-30", "20260901", "1.9.2026", "yesterday", "1999-01-01"])
def test_a_date_that_is_none_is_refused(when: str) -> None:
    with pytest.raises(ProfileError, match=r"aws.yaml:2: date: "):
        rows_of(f"provider: aws\ndate: {when}\ninstances: {{}}")


def test_a_date_in_the_far_future_is_refused() -> None:
    when = date.today() + timedelta(days=367)
    with pytest.raises(ProfileError, match=r"\bdate\b.*\bcloud price"):
        rows_of(f"provider: aws\ndate: {when}\ninstances: {{}}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("instances: {}", "aws.yaml:1: provider is missing"),
        ("provider: aws\ninstances: {}\ntire: neocloud", "aws.yaml:3: tire: unknown key"),
        ("provider: aws\ncomplete: 1\ninstances: {}", "aws.yaml:2: complete: expected true or false, found 1"),
        ("provider: aws\ntier: big\ninstances: {}", "aws.yaml:2: tier: expected one of hyperscaler"),
        ("provider: aws\nprice_per: hour\ninstances: {}", "aws.yaml:2: price_per: expected one of machine, gpu"),
        ("provider: aws\nsources: {a: {from: x}}\ninstances: {}", "aws.yaml:2: sources.a: date is missing"),
        (
            "provider: aws\ninstances: {x: {machine: {gpus: 1}, usd_per_hour: {}}}",
            "aws.yaml:2: instances.x.machine.gpus",
        ),
        (
            "provider: aws\ninstances: {x: {machine: {vcpus: 0}, usd_per_hour: {}}}",
            "aws.yaml:2: instances.x.machine.vc",
        ),
        ("provider: aws\ninstances: {x: 5}", "aws.yaml:2: instances.x: expected keys and values"),
        ("provider: aws\ninstances: {x: {machine: {}}}", "aws.yaml:2: instances.x.usd_per_hour: expected keys"),
        ("provider: aws", "aws.yaml:1: instances: expected keys and values"),
    ],
)
def test_a_head_or_machine_that_cannot_be_right_is_refused_at_its_line(text: str, message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        rows_of(text)
    assert caught.value.message.startswith(message)
    assert caught.value.hint
