from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.catalog.overlay import load_catalog
from advisor.catalog.strict_yaml import parse_documents
from advisor.catalog.terms import Terms, apply_terms, hidden_discounts, is_of_family, is_terms, joined_terms, read_terms
from advisor.errors import ProfileError
from advisor.records.price import Catalog, ExchangeRate, Offer, Price
from tests.says import assert_says


def price(kind: str = "on_demand", usd_per_hour: float = 2.0, **changes: str) -> Price:
    values = {"date": "2026-01-01", "source": "the list"} | changes
    return Price(kind=kind, usd_per_hour=usd_per_hour, **values)  # type: ignore[arg-type]


def offer(instance: str, *prices: Price, provider: str = "aws", region: str = "us-east-1", geo: str = "US") -> Offer:
    return Offer(
        id=f"{provider}/{region}/{instance}",
        provider=provider,
        tier="hyperscaler",
        region=region,
        geo=geo,
        instance=instance,
        vcpus=4,
        threads_per_core=2,
        memory_bytes=16e9,
        cpu="xeon",
        gpu=None,
        gpu_count=0,
        prices=prices or (price(), price("spot", 1.0)),
    )


G5 = offer("g5.xlarge")
G5G = offer("g5g.xlarge")
G5_EU = offer("g5.xlarge", region="eu-west-1", geo="EU")
N1 = offer("n1-standard-4", provider="gcp", region="us-central1")
OFFERS = (G5, G5G, G5_EU, N1)


def terms_of(*texts: str) -> Terms:
    documents = [document for text in texts for document in parse_documents(text, label="advisor.yaml")]
    return joined_terms([read_terms(document) for document in documents])


def applied(*texts: str) -> dict[str, Offer]:
    return {one.id: one for one in apply_terms(terms_of(*texts), OFFERS, rejected=())}


def usd(one: Offer) -> list[float]:
    return [price.usd_per_hour for price in one.prices]


# Discounts and markup


def test_a_discount_is_in_percent_of_what_its_scope_names_and_the_source_says_so() -> None:
    after = applied("discounts: [{provider: aws, family: g5, region: US, percent: 12}]")
    # 2.00 less 12 % is 1.76, 1.00 less 12 % is 0.88
    assert usd(after[G5.id]) == pytest.approx([1.76, 0.88])
    assert after[G5.id].prices[0].source == "the list; less 12 % (advisor.yaml:1: discounts.0)"
    assert after[G5.id].prices[0].adjustment == "less 12 %"
    assert [after[one.id] for one in (G5G, G5_EU, N1)] == [G5G, G5_EU, N1]


def test_a_discount_may_be_on_one_kind_of_price() -> None:
    after = applied("discounts: [{commitment: spot, percent: 50}]")
    assert all(usd(one) == [2.0, 0.5] for one in after.values())


def test_of_the_discounts_that_fit_a_price_the_first_counts_and_they_do_not_add_up() -> None:
    rules = "discounts: [{family: g5, commitment: spot, percent: 10}, {provider: aws, percent: 20}, {percent: 50}]"
    after = applied(rules)
    # on-demand: 20 % off 2.00 is 1.60; spot: 10 % off 1.00 is 0.90
    assert usd(after[G5.id]) == pytest.approx([1.6, 0.9])
    assert usd(after[G5G.id]) == pytest.approx([1.6, 0.8])
    assert usd(after[N1.id]) == [1.0, 0.5]


@pytest.mark.parametrize(
    ("rules", "hidden"),
    [
        ("[{provider: aws, percent: 10}, {provider: aws, family: g5, percent: 20}]", [1]),
        ("[{provider: aws, family: g5, percent: 20}, {provider: aws, percent: 10}]", []),
        ("[{commitment: spot, percent: 10}, {percent: 20}, {commitment: spot, family: g5, percent: 30}]", [2]),
        ("[{region: EU, percent: 1}, {region: US, percent: 2}, {family: g5, percent: 3}]", [2]),  # both parts of it
        ("[{percent: 1}, {family: g6, percent: 2}]", []),  # matches nothing, which is another mistake
    ],
)
def test_a_discount_whose_prices_all_match_earlier_lines_has_no_effect(rules: str, hidden: list[int]) -> None:
    found = list(hidden_discounts(terms_of(f"discounts: {rules}"), OFFERS))
    assert [text.split(" has ")[0] for text in found] == [f"advisor.yaml:1: discounts.{index}" for index in hidden]


def test_a_discount_of_another_file_may_come_before_all_of_ones_own() -> None:
    terms = terms_of("discounts: [{percent: 25}]", "discounts: [{percent: 50}]")
    assert list(hidden_discounts(terms, OFFERS)) == []


def test_the_discounts_of_the_first_file_come_first() -> None:
    assert usd(applied("discounts: [{percent: 25}]", "discounts: [{percent: 50}]")[G5.id]) == [1.5, 0.75]


def test_a_markup_comes_on_top_of_what_the_discount_leaves() -> None:
    after = applied("discounts: [{family: g5, percent: 10}]\nmarkup_percent: 5", "markup_percent: 50")
    # 2.00 x 0.90 x 1.05 = 1.89; without the discount 2.00 x 1.05 = 2.10
    assert usd(after[G5.id])[0] == pytest.approx(1.89)
    assert usd(after[N1.id])[0] == pytest.approx(2.1)
    assert after[G5.id].prices[0].source.endswith("; plus 5 % (advisor.yaml:2: markup_percent)")
    assert after[G5.id].prices[0].adjustment == "less 10 % plus 5 %"


def test_a_rate_of_the_users_own_is_what_is_paid() -> None:
    own = offer("g5.xlarge", price(basis="own_rate"))
    terms = terms_of("discounts: [{percent: 10}]\nmarkup_percent: 5")
    assert apply_terms(terms, [own], rejected=()) == [own]


@pytest.mark.parametrize(
    ("family", "instance", "fits"),
    [
        ("g5", "g5.xlarge", True),
        ("g5", "g5g.xlarge", False),
        ("g2-standard", "g2-standard-4", True),
        ("nvidia h100", "NVIDIA H100 SXM 80GB SXM", True),
        ("Standard_ND*", "Standard_ND96asr_v4", True),
        ("Standard_ND", "Standard_ND96asr_v4", False),
        ("g5.xlarge", "g5.xlarge", True),
    ],
)
def test_a_family_is_the_start_of_a_name_up_to_a_separator_or_a_pattern(family: str, instance: str, fits: bool) -> None:
    assert is_of_family(instance, family) == fits


SCOPES = st.fixed_dictionaries(
    {},
    optional={
        "provider": st.sampled_from(["aws", "gcp"]),
        "region": st.sampled_from(["US", "EU", "us-east-1", "us-central1"]),
        "family": st.sampled_from(["g5", "g5g", "n1", "*"]),
        "commitment": st.sampled_from(["on_demand", "spot"]),
    },
)


@given(scope=SCOPES, percent=st.floats(0.1, 99.0))
def test_an_edit_changes_only_the_rows_and_prices_it_names(scope: dict[str, str], percent: float) -> None:
    line = ", ".join(f'{key}: "{value}"' for key, value in scope.items()) + (", " if scope else "")
    after = applied(f"discounts: [{{{line}percent: {percent!r}}}]")
    for before in OFFERS:
        is_named = (
            scope.get("provider", before.provider) == before.provider
            and scope.get("region", before.region) in (before.region, before.geo)
            and ("family" not in scope or is_of_family(before.instance, scope["family"]))
        )
        for was, now in zip(before.prices, after[before.id].prices, strict=True):
            if is_named and scope.get("commitment", was.kind) == was.kind:
                assert now.usd_per_hour < was.usd_per_hour
            else:
                assert now == was
        if not is_named:
            assert after[before.id] == before


# Exclusions


def test_what_fits_one_of_the_excluded_names_is_out_and_says_which_line_did_it() -> None:
    after = applied("exclude: {family: [g5g], region: EU}")
    assert {one.instance: one.excluded for one in after.values() if one.excluded} == {
        "g5g.xlarge": "advisor.yaml:1: exclude.family excludes it",
        "g5.xlarge": "advisor.yaml:1: exclude.region excludes it",
    }
    assert [one.id for one in after.values() if one.excluded] == [G5G.id, G5_EU.id]


def test_what_does_not_fit_all_that_is_allowed_is_out() -> None:
    after = applied("only: {region: [US], provider: [aws]}")
    assert [one.id for one in after.values() if one.excluded is None] == [G5.id, G5G.id]
    assert after[N1.id].excluded == "advisor.yaml:1: only.provider does not include it"


def test_the_first_file_that_has_a_key_counts() -> None:
    after = applied("exclude: {provider: gcp}", "exclude: {provider: aws}")
    assert [one.id for one in after.values() if one.excluded] == [N1.id]


# Owned hardware

BOX = """\
owned:
  gpu-box:
    machine: {vcpus: 32, memory_gib: 128, gpu: rtx-4090, gpu_count: 1}
    purchase_usd: 3504
    lifetime_years: 4
    power_w: 500
    electricity_usd_per_kwh: 0.30
    used_percent: 40
    date: 2026-11-01
    region: EU
"""


PURCHASE = ("purchase_usd", "lifetime_years", "used_percent")


def loaded(home: Path, text: str) -> Catalog:
    (home / "work/advisor.yaml").write_text(text)
    return load_catalog(cwd=home / "work")


def test_an_hour_of_owned_hardware_costs_its_share_of_the_purchase_and_its_electricity(home: Path) -> None:
    (box,) = (one for one in loaded(home, BOX).offers if one.provider == "own")
    # 4 years x 8,760 h x 40 % = 14,016 h of use; 3,504 / 14,016 = 0.25 $/h; 0.5 kW x 0.30 = 0.15 $/h
    assert (box.id, box.tier, box.geo, box.gpu) == ("own/own/gpu-box", "owned", "EU", "rtx-4090")
    assert usd(box) == pytest.approx([0.40])
    assert (box.purchase_usd, box.running_usd_per_hour, box.used_ratio) == (3504, pytest.approx(0.15), 0.4)
    assert (box.prices[0].kind, box.prices[0].basis, box.prices[0].date) == ("owned", "own_hardware", "2026-11-01")
    assert_says(box.prices[0].source, "$3,504", "4 years", "40 %", "500 W", "$0.3/kWh")


def test_an_hour_of_a_machine_that_is_paid_costs_its_electricity(home: Path) -> None:
    paid = "\n".join(line for line in BOX.splitlines() if line.split(":")[0].strip() not in PURCHASE)
    (box,) = (one for one in loaded(home, paid).offers if one.provider == "own")
    assert usd(box) == pytest.approx([0.15])
    assert (box.purchase_usd, box.running_usd_per_hour) == (None, pytest.approx(0.15))


def test_discounts_and_exclusions_are_not_about_owned_hardware(home: Path) -> None:
    catalog = loaded(home, f"discounts: [{{percent: 50}}]\nonly: {{provider: [aws]}}\n{BOX}")
    (box,) = (one for one in catalog.offers if one.provider == "own")
    assert usd(box) == pytest.approx([0.40])
    assert box.excluded is None


# In the catalog


def test_terms_and_prices_stand_in_documents_of_one_file(home: Path) -> None:
    catalog = loaded(
        home,
        "discounts: [{provider: aws, family: g5, percent: 50}]\n"
        "exchange_rates: {EUR: {usd: 1.16, date: 2026-11-01}}\n---\n"
        "provider: aws\ndate: 2026-11-01\n"
        "instances: {g5.xlarge: {usd_per_hour: {us-east-1: {on_demand: 0.93}}}}\n",
    )
    usd_by_id = {one.id: usd(one)[0] for one in catalog.offers}
    assert usd_by_id["aws/us-east-1/g5.xlarge"] == 0.93  # a rate of one's own is not discounted
    assert usd_by_id["aws/us-east-1/g5.2xlarge"] == pytest.approx(1.212 / 2)  # profiles/prices/aws.yaml: 1.212
    assert catalog.exchange_rates == (ExchangeRate(currency="EUR", usd=1.16, date="2026-11-01"),)


def test_a_price_list_of_the_users_own_says_so_and_is_discounted(home: Path) -> None:
    catalog = loaded(
        home,
        "markup_percent: 10\n---\nprovider: aws\nprice_basis: list\ndate: 2026-11-01\n"
        "instances: {g5.xlarge: {usd_per_hour: {us-east-1: {on_demand: 2}}}}\n",
    )
    assert {one.id: usd(one)[0] for one in catalog.offers}["aws/us-east-1/g5.xlarge"] == pytest.approx(2.2)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("discounts: {percent: 1}", "1: discounts: expected a list", "lines"),
        ("discounts:\n  - {provider: aws}", "2: discounts.0: percent is missing", "12 % off"),
        ("discounts:\n  - {percent: 100}", "2: discounts.0.percent: expected less than 100, found 100", "12"),
        ("discounts:\n  - {percent: -5}", "2: discounts.0.percent: expected a number that is more than 0", "correct"),
        ("discounts:\n  - {percent: 5, instance: g5}", "2: discounts.0.instance: unknown key", "use one of"),
        ("discounts:\n  - {percent: 5, commitment: spto}", "2: discounts.0.commitment: expected one of on_d", "use"),
        ("discounts:\n  - {percent: 5, provider: asw}", "2: discounts.0.provider: no offer has provider", "aws?"),
        (
            "discounts:\n  - {percent: 5, region: eu}\n  - {percent: 5, region: mars}",
            "3: discounts.1.region",
            "use one of",
        ),
        ("exclude: {family: [g55]}", "1: exclude.family: no instance matches 'g55'", "Standard_ND*"),
        ("only: {family: 5}", "1: only.family: expected text, found 5", "quotes"),
        ("markup_percent: true", "1: markup_percent: expected a number", "for example"),
        ("markup_percent: 1\nmarkdown: 1", "2: markdown: unknown key", "markup_percent"),
        ("discount: [{percent: 5}]", "1: discount: unknown key", "did you mean discounts?"),
        ("instnces: {}", "1: instnces: unknown key", "did you mean instances?"),
        ("provider: aws\nmarkup_percent: 1", "1: provider: prices and terms in one document", "three hyphens"),
        ("exchange_rates: {EUR: {usd: 1.1}}", "1: exchange_rates.EUR: date is missing", "2026-11-01"),
        ("exchange_rates: {EUR: 1.1}", "1: exchange_rates.EUR: expected keys and values", "{usd: 1.16, date:"),
        ("exchange_rates: {euro: {usd: 1, date: 2026-11-01}}", "1: exchange_rates.euro: 'euro' is not", "EUR"),
        ("exchange_rates: {EUR: {usd: 0, date: 2026-11-01}}", "1: exchange_rates.EUR.usd: expected a number", "corr"),
        (
            BOX.replace("    electricity_usd_per_kwh: 0.30\n", ""),
            "2: owned.gpu-box: electricity_usd_per_kwh is missing",
            "prices init",
        ),
        (
            BOX.replace("purchase_usd: 3504", "purchase_usd: 0"),
            "4: owned.gpu-box.purchase_usd: expected more",
            "leave purchase_usd",
        ),
        (BOX.replace("    used_percent: 40\n", ""), "4: owned.gpu-box.purchase_usd: used_percent missing", "leave"),
        (
            BOX.replace("percent: 40", "percent: 140"),
            "8: owned.gpu-box.used_percent: expected at most 100",
            "percentage",
        ),
        (
            BOX.replace("{vcpus: 32, memory_gib: 128, gpu: rtx-4090, gpu_count: 1}", "{cpu: amd-epyc-9654}"),
            "3: owned.gpu-box.machine: vcpus, memory_gib missing",
            "memory_gib",
        ),
        (BOX.replace("rtx-4090", "rtx-4091"), "3: owned.gpu-box.machine.gpu: no profile describes", "rtx-4090?"),
        (BOX.replace("2026-11-01", "soon"), "9: owned.gpu-box.date: expected a date", "2026-09-01"),
    ],
)
def test_terms_that_cannot_be_right_are_refused_at_their_line(home: Path, text: str, message: str, hint: str) -> None:
    with pytest.raises(ProfileError) as caught:
        loaded(home, text)
    assert caught.value.message.removeprefix(f"{home}/work/advisor.yaml:").startswith(message)
    assert hint in caught.value.hint


def test_a_document_is_terms_by_its_keys() -> None:
    (terms, prices) = parse_documents("only: {region: [EU]}\n---\nprovider: aws\ninstances: {}", label="x")
    assert (is_terms(terms), is_terms(prices)) == (True, False)
