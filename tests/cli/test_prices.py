"""`advise prices`, on the shipped prices and a user's folders of the test's own."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import platformdirs
import pytest

from advisor.answers import price_refresh
from advisor.catalog.overlay import load_catalog, starter_overlay
from advisor.catalog.strict_yaml import parse_documents
from advisor.catalog.terms import TERM_KEYS
from advisor.refresh.providers import api_keys, providers, vast
from scripts.write_flag_docs import PRICES, price_docs
from tests.cli.conftest import Result
from tests.refresh.conftest import Server, json_answer, server
from tests.says import assert_says

__all__ = ["server"]  # a fixture

Advise = Callable[..., Result]
TERMS = """\
discounts: [{provider: aws, family: g5, region: us-east-1, commitment: on_demand, percent: 50}]
exclude: {provider: [salad]}
exchange_rates: {EUR: {usd: 1.25, date: 2026-11-01}}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, filled_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(platformdirs, "user_config_path", lambda name: tmp_path / "config" / name)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: filled_cache / name)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def prices_in(text: str) -> list[float]:
    return [price["usd_per_hour"] for price in json.loads(text)["prices"]]


# list


def test_prices_are_listed_from_the_cheapest_with_their_dates(advise: Advise) -> None:
    text = advise("prices", "list", "--device", "t4", "--provider", "aws", "--top", "1").out
    assert re.search(r"^aws +g4dn.xlarge +us-east-1 +1x t4 +0\.526 +2026-07-20", text, flags=re.MULTILINE)
    assert "more (--top" in text
    every = prices_in(advise("prices", "list", "--device", "t4", "--provider", "aws", "-o", "json").out)
    assert every == sorted(every)
    assert len(every) > 10


def test_a_price_older_than_asked_is_marked_old_and_the_mark_is_explained(advise: Advise) -> None:
    asked = ("prices", "list", "--provider", "azure", "--top", "3")
    assert "OLD" in advise(*asked, "--max-price-age", "1").out.splitlines()[1]
    text = advise(*asked, "--max-price-age", "9999").out
    assert "OLD" not in text
    assert re.search(r"^OLD: .*--max-price-age", advise(*asked, "--max-price-age", "1").out, flags=re.MULTILINE)


def test_what_the_user_rules_out_is_not_listed(advise: Advise) -> None:
    assert "salad" in advise("prices", "list", "--provider", "salad", "--price", "spot").out
    Path("advisor.yaml").write_text(TERMS)
    result = advise("prices", "list", "--provider", "salad", "--price", "spot")
    assert (result.code, result.out) == (1, "")
    assert_says(result.err, "error:", "no price", "salad", "advisor.yaml:2: exclude.provider")


def test_a_region_that_leaves_out_a_list_without_regions_says_how_to_name_it(advise: Advise) -> None:
    assert_says(advise("prices", "list", "--provider", "lambda", "--region", "US").err, "no price", "--region global")
    assert "lambda" in advise("prices", "list", "--provider", "lambda", "--region", "US,global").out
    assert "global" not in advise("prices", "list", "--provider", "aws", "--tier", "neocloud").err


@pytest.mark.parametrize(
    ("flag", "name", "hint"),
    [("--provider", "awss", "aws"), ("--region", "us-eats-1", "us-east-1")],
)
def test_a_name_that_no_offer_has_is_an_error(advise: Advise, flag: str, name: str, hint: str) -> None:
    result = advise("prices", "list", flag, name)
    assert result.code == 2
    assert_says(result.err, "error:", flag, name, "hint:", hint)


# show


def test_every_region_and_kind_of_a_type_is_shown_with_its_source(advise: Advise) -> None:
    text = advise("prices", "show", "G5.xlarge").out
    assert text.startswith("aws g5.xlarge: 1x a10g, 4 vCPU, 16 GiB\n")
    rows = re.findall(r"^aws +(\S+) +(\S+) +([\d.]+) +(\S+) .*\[(\d+)\]$", text, flags=re.MULTILINE)
    assert {row[0] for row in rows} == {"us-east-1", "eu-west-1", "ap-northeast-1"}
    assert ("us-east-1", "on_demand", "1.006", "2026-07-20") in [row[:4] for row in rows]
    (number,) = (row[4] for row in rows if row[:2] == ("us-east-1", "on_demand"))
    assert f"[{number}]\n  aws/karpenter" in text or f"[{number}] aws/karpenter" in text


def test_an_offer_is_shown_by_its_id(advise: Advise) -> None:
    out = advise("prices", "show", "aws/us-east-1/g5.xlarge", "-o", "json").out
    assert {price["id"] for price in json.loads(out)["prices"]} == {"aws/us-east-1/g5.xlarge"}


def test_a_discounted_price_says_what_it_is_less(advise: Advise) -> None:
    Path("advisor.yaml").write_text(TERMS)
    shown = json.loads(advise("prices", "show", "aws/us-east-1/g5.xlarge", "-o", "json").out)["prices"]
    prices = {price["kind"]: price for price in shown}
    assert prices["on_demand"]["usd_per_hour"] == pytest.approx(0.503)  # half of 1.006
    assert "less 50 % (" in prices["on_demand"]["source"]
    assert "less" not in prices["commit_1y"]["source"]


def test_prices_are_shown_in_the_currency_asked_for_with_its_rate(advise: Advise) -> None:
    Path("advisor.yaml").write_text(TERMS)
    text = advise("prices", "show", "aws/eu-west-1/g5.xlarge", "--currency", "eur").out
    # 1.123 / 1.25 = 0.8984
    assert re.search(r"eu-west-1 +on_demand +0\.8984 ", text)
    assert "EUR/h" in text
    assert_says(text, "1.25 dollars per EUR", "2026-11-01")


def test_a_currency_without_a_rate_is_an_error_that_says_where_it_belongs(advise: Advise) -> None:
    result = advise("prices", "show", "g5.xlarge", "--currency", "GBP")
    assert result.code == 2
    assert_says(result.err, "error:", "--currency GBP", "hint:", "`exchange_rates")


@pytest.mark.parametrize(("name", "close"), [("g5.xlrage", "g5.xlarge"), ("inf2.xlrage", "inf2.xlarge")])
def test_a_type_that_nobody_rents_names_those_that_are_close(advise: Advise, name: str, close: str) -> None:
    result = advise("prices", "show", name)
    assert result.code == 2
    assert_says(result.err, f"error: no provider rents '{name}'", "hint:", close)


def test_the_prices_of_a_type_that_cannot_be_predicted_are_shown_with_the_reason(advise: Advise) -> None:
    # profiles/prices/aws.yaml, inf1.xlarge: on demand, spot and two commitments in each of three regions
    text = advise("prices", "show", "inf1.xlarge").out
    assert_says(text, "aws inf1.xlarge", "'inferentia'", "0.228")
    shown = json.loads(advise("prices", "show", "inf1.xlarge", "-o", "json").out)["prices"]
    usd = {price["region"]: price["usd_per_hour"] for price in shown if price["kind"] == "on_demand"}
    assert usd["us-east-1"] == 0.228
    assert {price["device"] for price in shown} == {None}
    assert all("'inferentia'" in price["unpredicted"] for price in shown)
    rented = json.loads(advise("prices", "show", "g5.xlarge", "-o", "json").out)["prices"]
    assert {price["unpredicted"] for price in rented} == {None}


# validate


def test_a_file_of_prices_and_terms_is_valid_and_says_what_it_does(advise: Advise) -> None:
    Path("mine.yaml").write_text(TERMS)
    # g5 has eight sizes in us-east-1; profiles/prices/salad.yaml holds what Salad rents.
    salad = json.loads(advise("prices", "list", "--provider", "salad", "--price", "spot", "-o", "json").out)["prices"]
    validated = advise("prices", "validate", "mine.yaml")
    assert validated.code == 0
    assert_says(validated.out, "mine.yaml", "valid", "1 document", "8 prices", f"{len(salad)} offers")


@pytest.mark.parametrize(
    ("file", "holds"),
    [
        ("devices/gpu/l4.yaml", "GPU: L4"),
        ("devices/cpu/amd-epyc-7543.yaml", "CPU: AMD EPYC 7543"),
        ("efficiency/gpu-any-any.yaml", "efficiency: * *"),
        ("engines/vllm.yaml", "engine: vllm"),
    ],
)
def test_any_file_of_the_profiles_can_be_checked(advise: Advise, file: str, holds: str) -> None:
    from advisor.catalog.overlay import shipped_profiles

    assert advise("prices", "validate", str(shipped_profiles() / file)).out.endswith(f" is valid: {holds}\n")


def test_the_first_mistake_is_named_by_file_line_and_key(advise: Advise) -> None:
    Path("mine.yaml").write_text("markup_percent: 3\ndiscounts:\n  - {provider: aws, percnt: 5}\n")
    result = advise("prices", "validate", "mine.yaml")
    assert (result.code, result.out) == (2, "")
    assert_says(result.err, "error: mine.yaml:3: discounts.0.percnt:", "hint:", "did you mean percent?")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "error: mine.yaml: no such file"),
        ("- a\n", "error: mine.yaml:1: expected keys and values"),
        (
            "id: x\nsm_count: 5\nboost_mhz: 1\nname: X\n---\nprovider: aws\ninstances: {}\n",
            "error: mine.yaml:1: one file has both",
        ),
        ("id: x\nname: X\nsm_count: 5\nboost_mhz: 1000\n", "error: mine.yaml:1: vendor is missing"),
    ],
)
def test_what_is_no_file_of_the_catalog_is_refused(advise: Advise, text: str | None, message: str) -> None:
    if text is not None:
        Path("mine.yaml").write_text(text)
    result = advise("prices", "validate", "mine.yaml")
    assert result.code == 2
    assert result.err.startswith(message)


# init


def test_a_new_overlay_changes_nothing_until_it_is_edited(advise: Advise) -> None:
    assert advise("prices", "init").out == starter_overlay()
    assert advise("prices", "init", "-o", "advisor.yaml") == Result(0, "", "")
    assert Path("advisor.yaml").read_text() == starter_overlay()
    validated = advise("prices", "validate", "advisor.yaml")
    assert validated.code == 0
    assert_says(validated.out, "advisor.yaml", "valid", "empty")
    assert "0 prices changed" in advise("prices", "diff").out


def test_a_file_that_is_there_is_not_overwritten(advise: Advise) -> None:
    Path("advisor.yaml").write_text("mine")
    result = advise("prices", "init", "-o", "advisor.yaml")
    assert (result.code, Path("advisor.yaml").read_text()) == (2, "mine")
    assert_says(result.err, "error:", "-o advisor.yaml")


def test_every_line_that_is_commented_out_in_it_can_be_used(advise: Advise) -> None:
    text = re.sub(r"^#(?=\S|  )", "", starter_overlay(), flags=re.MULTILINE)
    documents = parse_documents(text, label="starter")
    assert [sorted(document.values) for document in documents] == [
        sorted(TERM_KEYS),
        ["date", "instances", "provider"],
        ["date", "instances", "provider", "regions", "tier"],
    ]
    Path("advisor.yaml").write_text(text)
    assert_says(advise("prices", "validate", "advisor.yaml").out, "advisor.yaml", "valid", "3 documents")


# diff


def test_what_an_overlay_changes_is_shown_in_percent_and_what_it_rules_out_counted(advise: Advise) -> None:
    Path("advisor.yaml").write_text(TERMS)
    text = advise("prices", "diff").out
    assert re.search(r"^aws/us-east-1/g5.xlarge +on_demand +1\.006 +0\.503 +-50\.0%$", text, flags=re.MULTILINE)
    assert re.search(r" \d+ offers: \S*advisor.yaml:2: exclude.provider ", " ".join(text.split()))
    changes = json.loads(advise("prices", "diff", "-o", "json").out)["changes"]
    assert {change["kind"] for change in changes} == {"on_demand"}
    assert all(change["id"].startswith("aws/us-east-1/g5.") for change in changes)


def test_a_rate_of_ones_own_that_leaves_kinds_out_shows_them_as_gone(advise: Advise) -> None:
    Path("mine.yaml").write_text(
        "provider: aws\ndate: 2026-11-01\ninstances: {g5.xlarge: {usd_per_hour: {us-east-1: {spot: 0.3}}}}\n"
    )
    text = advise("prices", "diff", "--prices", "mine.yaml").out
    assert re.search(r"g5.xlarge +spot +- +0\.30 +new$", text, flags=re.MULTILINE)
    assert re.search(r"g5.xlarge +on_demand +1\.006 +- +gone$", text, flags=re.MULTILINE)


# refresh


@pytest.fixture
def offers(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Every type of the shipped list at its price of today, three hosts each, but the RTX 4090 at others."""
    catalog = load_catalog()
    rows = []
    for offer in (one for one in catalog.offers if one.provider == "vast-ai" and one.gpu):
        gpu, usd = catalog.gpus[offer.gpu], offer.prices[0].usd_per_hour
        offered = (0.3, 0.35, 0.5) if gpu.id == "rtx-4090" else (usd, usd, usd)
        rows += [
            {"gpu_name": gpu.name, "gpu_ram": gpu.memory_bytes / 2**20, "num_gpus": offer.gpu_count, "dph_total": usd}
            for usd in offered
        ]
    monkeypatch.setattr(vast, "OFFERS_URL", server.answer("/bundles/", json_answer({"offers": rows})))
    return server


def test_a_dry_run_shows_what_would_change_and_writes_nothing(advise: Advise, offers: Server, home: Path) -> None:
    result = advise("prices", "refresh", "vast-ai", "--dry-run")
    assert result.code == 0
    assert re.search(r"^vast-ai/global/RTX 4090 24GB PCIe +on_demand +[\d.]+ +0\.35 ", result.out, flags=re.MULTILINE)
    assert result.err == "nothing was written\n"
    assert not (home / "config").exists()


def test_refreshed_prices_are_in_force(advise: Advise, offers: Server, home: Path) -> None:
    result = advise("prices", "refresh", "vast-ai")
    file = home / "config/advisor/profiles/prices/vast-ai.yaml"
    assert (result.code, result.err) == (0, f"wrote {file}\n")
    shown = json.loads(advise("prices", "show", "vast-ai/global/RTX 4090 24GB PCIe", "-o", "json").out)["prices"]
    (price,) = (price for price in shown if price["kind"] == "on_demand")
    assert (price["usd_per_hour"], price["basis"], price["marks"]) == (0.35, "median_live_offer", [])
    assert advise("prices", "validate", str(file)).code == 0


def test_a_list_that_cannot_be_had_ends_with_5(advise: Advise, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vast, "OFFERS_URL", f"{server.url}/gone")
    result = advise("prices", "refresh", "vast-ai")
    assert (result.code, result.out) == (5, "")
    assert_says(result.err, "error:", f"{server.url}/gone", "HTTP 404", "hint:")


def test_all_that_can_be_fetched_is_refreshed_and_the_pages_of_the_others_are_named(
    advise: Advise, offers: Server, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_vast() -> tuple[str, ...]:
        return ("lambda", "vast-ai")

    monkeypatch.setattr(price_refresh, "providers", only_vast)
    monkeypatch.delenv("LAMBDA_API_KEY", raising=False)
    result = advise("prices", "refresh")
    assert result.code == 0
    assert (home / "config/advisor/profiles/prices/vast-ai.yaml").is_file()
    assert_says(result.err, "vast-ai: wrote", "lambda: not refreshed", "LAMBDA_API_KEY")
    assert "genesis-cloud https://www.genesiscloud.com/pricing" in result.err


def test_a_list_that_cannot_be_had_does_not_stop_the_others(
    advise: Advise, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vast, "OFFERS_URL", f"{server.url}/gone")
    monkeypatch.setattr(price_refresh, "providers", lambda: ("vast-ai",))
    result = advise("prices", "refresh")
    assert result.code == 5
    assert_says(result.err, "vast-ai: not refreshed", "HTTP 404", "verda https://verda.com/products")


def test_every_provider_can_be_refreshed_or_has_a_page_to_look_at() -> None:
    catalog = load_catalog()
    sources = catalog.price_sources
    assert set(sources) >= {offer.provider for offer in catalog.offers}
    fetched = {provider for provider, source in sources.items() if source.refresh == "command"}
    assert fetched == set(providers())


# The command itself


def test_the_page_on_prices_shows_commands_that_answer(advise: Advise) -> None:
    page = (Path(__file__).parents[2] / "docs/prices.md").read_text()
    commands = re.findall(r"^\$ advise (.*)$", page, flags=re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert advise(*shlex.split(command)).code == 0, command


def test_the_page_on_prices_and_the_help_name_every_provider_that_can_be_refreshed_and_its_key(advise: Advise) -> None:
    page = PRICES.read_text(encoding="utf-8")
    assert page == price_docs(page), "run `make docs`"
    said = advise("prices", "refresh", "--help").out
    for provider in providers():
        assert f"| {provider} |" in page
        assert provider in said
    assert all(key in said for key in api_keys().values())


def test_listing_prices_imports_neither_torch_nor_the_network() -> None:
    code = (
        "import sys; from advisor.cli.main import run; run(['prices', 'list', '--top', '1']);"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'httpx'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_without_a_command_the_help_is_named(advise: Advise) -> None:
    result = advise("prices")
    assert (result.code, result.out) == (2, "")
    assert_says(result.err, "error:", "missing", "hint:", "advise prices --help")


@pytest.mark.parametrize("command", ["list", "show", "validate", "init", "diff", "refresh"])
def test_every_command_has_a_help_with_examples(advise: Advise, command: str) -> None:
    result = advise("prices", command, "--help")
    assert (result.code, result.err) == (0, "")
    assert f"Examples:\n    advise prices {command}" in result.out
    assert command in advise("prices", "--help").out
