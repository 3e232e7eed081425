"""From a provider's list to its price file, against a local server; a failure leaves the old file."""

import json
import os
import subprocess
import sys
from datetime import date
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import platformdirs
import pytest

from advisor.answers import price_refresh
from advisor.answers.price_refresh import Refreshed, refresh_prices
from advisor.catalog.overlay import load_catalog, shipped_profiles
from advisor.catalog.strict_yaml import read_documents
from advisor.errors import AdvisorError, NetworkError, ProfileError, UsageError
from advisor.refresh import providers
from advisor.refresh.providers import aws, azure, vast
from tests.refresh.aws_csv import lines, row, spot_js
from tests.refresh.conftest import Answer, Server, Waits, json_answer, sample, server, waits
from tests.refresh.lists import KEYS, LISTS, ProviderList, client_of, small_layer
from tests.says import assert_says

__all__ = ["server", "waits"]  # fixtures

TODAY = date(2026, 11, 21)
D8S, F8S = "Standard_D8s_v5", "Standard_F8s_v2"
FILE = f"""\
provider: azure
tier: hyperscaler
date: 2026-01-01
regions: {{westeurope: EU}}
sources:
  list: {{date: 2026-01-01, from: an older list}}
instances:
  {D8S}:
    machine: {{vcpus: 8, memory_gib: 32}}
    usd_per_hour:
      westeurope: {{on_demand: [0.5, list], spot: [0.1, list]}}
  {F8S}:
    machine: {{vcpus: 8, memory_gib: 16}}
    usd_per_hour:
      westeurope: {{on_demand: [0.388, list]}}
"""


def meter(name: str, usd: float, **changes: Any) -> dict[str, Any]:
    values = {
        "currencyCode": "USD",
        "armRegionName": "westeurope",
        "armSkuName": name,
        "productName": "Virtual Machines Series",
        "skuName": name,
        "meterName": name,
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "retailPrice": usd,
    }
    return values | changes


def page(*items: dict[str, Any]) -> Answer:
    return json_answer({"Items": list(items), "NextPageLink": None})


@pytest.fixture
def prices(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    answer = page(meter(D8S, 0.46), meter(D8S, 0.09, skuName=f"{D8S} Spot"), meter(F8S, 0.388))
    monkeypatch.setattr(azure, "RETAIL_URL", server.answer("/prices", answer))
    return server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "azure.yaml"
    path.write_text(FILE)
    return path


def refresh(file: Path, waits: Waits, **more: Any) -> Refreshed:
    return refresh_prices("azure", file=file, today=TODAY, make_client=waits.client, **more)


def test_the_file_gets_the_prices_of_today_and_the_answer_says_what_changed(
    prices: Server, file: Path, waits: Waits
) -> None:
    refreshed = refresh(file, waits)
    (document,) = read_documents(file)
    assert document.values["instances"][D8S]["usd_per_hour"] == {
        "westeurope": {"on_demand": [0.46, "retail-2026-11-21"], "spot": [0.09, "retail-2026-11-21"]}
    }
    assert document.values["sources"] == {"retail-2026-11-21": {"date": "2026-11-21", "from": azure.RETAIL_URL}}
    assert file.read_text().startswith("# Prices of azure, US dollars.")
    changes = {(change.offer_id, change.kind): change for change in refreshed.changes}
    change = changes[f"azure/westeurope/{D8S}", "on_demand"]
    assert change.before is not None
    assert change.after is not None
    assert (change.before.usd_per_hour, change.after.usd_per_hour, change.after.date) == (0.5, 0.46, "2026-11-21")
    assert [path.name for path in file.parent.iterdir()] == ["azure.yaml"]  # no part is left behind


def test_a_second_refresh_with_the_same_list_writes_the_same_file(prices: Server, file: Path, waits: Waits) -> None:
    refresh(file, waits)
    first = file.read_text()
    assert refresh(file, waits).changes == ()
    assert file.read_text() == first


def test_a_dry_run_writes_nothing(prices: Server, file: Path, waits: Waits) -> None:
    assert refresh(file, waits, is_dry_run=True).changes
    assert file.read_text() == FILE


BROKEN: dict[str, tuple[list[Answer], str]] = {
    "truncated": ([Answer(page(meter(D8S, 0.46)).body, claimed_length=10**6)], "RemoteProtocolError"),
    "too many requests": ([Answer(status=429)], "HTTP 429"),
    "server error": ([Answer(status=500)], "HTTP 500"),
    "not JSON": ([Answer(b"<html></html>")], "not JSON"),
    "wrong type": ([page(meter(D8S, "0.46"), meter(F8S, None))], r"Items\.1\.retailPrice"),  # type: ignore[arg-type]
    "no known type": ([page(meter("Standard_Z", 1.0))], "no price of any known type"),
    "half of a list": ([page(meter(D8S, 0.4, skuName=f"{D8S} Spot"))], "has 0 of 2 known rows"),
    "a year's total": ([page(meter(D8S, 4029.6), meter(F8S, 3398.9))], "2 prices cannot be right|cannot be right"),
    "nothing": ([page()], "no price of any known type"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_failed_or_half_refresh_leaves_the_old_file(prices: Server, file: Path, waits: Waits, case: str) -> None:
    answers, problem = BROKEN[case]
    prices.answer("/prices", *answers)
    if case == "a year's total":  # not a jump from a price that is known to be right
        file.write_text(FILE.replace("0.5, list], spot: [0.1, list]", "2000, list]").replace("0.388", "2000"))
    before = file.read_text()
    with pytest.raises(NetworkError, match=problem):
        refresh(file, waits)
    assert file.read_text() == before
    assert [path.name for path in file.parent.iterdir()] == ["azure.yaml"]


def test_a_redirect_loop_and_endless_pages_leave_the_old_file(prices: Server, file: Path, waits: Waits) -> None:
    prices.answer("/prices", Answer(status=302, headers={"Location": "/prices"}))
    with pytest.raises(NetworkError, match="too many redirects"):
        refresh(file, waits)
    again = {"Items": [meter(D8S, 0.46)], "NextPageLink": f"{prices.url}/again"}
    prices.answer("/prices", json_answer(again))
    prices.answer("/again", json_answer(again))
    with pytest.raises(NetworkError, match="pages do not end"):
        refresh(file, waits)
    assert file.read_text() == FILE


def test_a_spot_price_above_on_demand_is_left_out_and_not_refused(prices: Server, file: Path, waits: Waits) -> None:
    prices.answer("/prices", page(meter(D8S, 0.46), meter(D8S, 0.9, skuName=f"{D8S} Spot"), meter(F8S, 0.388)))
    refresh(file, waits)
    line = read_documents(file)[0].values["instances"][D8S]["usd_per_hour"]["westeurope"]
    assert line["on_demand"] == [0.46, "retail-2026-11-21"]
    assert line.keys() == {"on_demand", "note"}
    assert_says(line["note"], "spot 0.9", "on-demand")


def test_a_file_that_cannot_be_replaced_stays(
    prices: Server, file: Path, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(UsageError, match="No space left on device"):
        refresh(file, waits)
    assert file.read_text() == FILE
    assert [path.name for path in file.parent.iterdir()] == ["azure.yaml"]


# Which file


def test_without_a_name_the_file_in_the_config_folder_is_begun_from_ours_and_wins_over_it(
    server: Server, waits: Waits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platformdirs, "user_config_path", lambda name: tmp_path / name)
    (ours,) = read_documents(shipped_profiles() / "prices/vast-ai.yaml")
    usd_of = {
        entry["machine"]["gpu"]: entry["usd_per_hour"]["global"]["on_demand"][0]
        for entry in ours.values["instances"].values()
        if "gpu" in entry["machine"]
    }
    gpus = load_catalog().gpus
    offers = [
        {"gpu_name": gpu, "gpu_ram": gpus[gpu].memory_bytes / 2**20, "num_gpus": 1, "dph_total": usd}
        for gpu, middle in (usd_of | {"rtx-4090": 0.35}).items()
        for usd in (0.9 * middle, middle, 2 * middle)
    ]
    monkeypatch.setattr(vast, "OFFERS_URL", server.answer("/bundles/", json_answer({"offers": offers})))
    refreshed = refresh_prices("vast-ai", today=TODAY, make_client=waits.client)
    assert refreshed.file == tmp_path / "advisor/profiles/prices/vast-ai.yaml"
    (document,) = read_documents(refreshed.file)
    assert document.values["instances"].keys() == ours.values["instances"].keys()
    assert document.values["instances"]["RTX 4090 24GB PCIe"]["usd_per_hour"]["global"]["on_demand"][0] == 0.35
    assert "vast-ai/global/RTX 4090 24GB PCIe" in [change.offer_id for change in refreshed.changes]
    # The next refresh reads what this one wrote.
    assert refresh_prices("vast-ai", today=TODAY, make_client=waits.client).changes == ()


def test_a_file_of_the_users_own_in_the_config_folder_is_not_taken_for_a_list(
    waits: Waits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platformdirs, "user_config_path", lambda name: tmp_path / name)
    own = tmp_path / "advisor/profiles/prices/azure.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(FILE)
    with pytest.raises(ProfileError, match=r"azure\.yaml.* refresh "):
        refresh_prices("azure", today=TODAY, make_client=waits.client)


@pytest.mark.parametrize(
    ("provider", "text", "error", "message"),
    [
        ("aws", FILE, ProfileError, "expected one document with the prices of aws"),
        ("azure", f"{FILE}---\n{FILE}", ProfileError, "expected one document"),
        ("azure", FILE.replace("0.388", "0"), ProfileError, "expected a number that is more than 0"),
    ],
)
def test_a_file_that_is_wrong_before_is_refused(
    file: Path, waits: Waits, provider: str, text: str, error: type[AdvisorError], message: str
) -> None:
    file.write_text(text)
    with pytest.raises(error, match=message):
        refresh_prices(provider, file=file, today=TODAY, make_client=waits.client)


def test_every_provider_that_can_be_fetched_has_a_price_file_of_ours_to_begin_from() -> None:
    modules = [import_module(f"{providers.__name__}.{one.name}") for one in iter_modules(providers.__path__)]
    assert {module.PROVIDER for module in modules} == {"aws", "azure", "gcp", "lambda", "runpod", "vast-ai"}
    for module in modules:
        assert (shipped_profiles() / f"prices/{module.PROVIDER}.yaml").is_file()


def test_a_provider_that_cannot_be_fetched_is_refused_before_anything_is_read(tmp_path: Path, waits: Waits) -> None:
    with pytest.raises(UsageError, match="'asure' cannot be fetched"):
        refresh_prices("asure", file=tmp_path / "x.yaml", today=TODAY, make_client=waits.client)


# Every provider's list


@pytest.fixture(params=LISTS, ids=[one.provider for one in LISTS])
def provider_list(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ProviderList:
    monkeypatch.setattr(price_refresh, "shipped_layer", small_layer)
    for key in KEYS:
        monkeypatch.setenv(key, "s3cr3t")
    one: ProviderList = request.param
    return one


def refreshed_lines(one: ProviderList, file: Path, usd: dict[str, float]) -> dict[str, Any]:
    """The lines of the file after a refresh from a list with these prices."""
    refresh_prices(one.provider, file=file, today=TODAY, make_client=lambda: client_of(one.replies(usd)))
    (document,) = read_documents(file)
    return {name: entry["usd_per_hour"][one.region] for name, entry in document.values["instances"].items()}


@pytest.fixture
def its_file(provider_list: ProviderList, tmp_path: Path) -> Path:
    file = tmp_path / f"{provider_list.provider}.yaml"
    file.write_text(provider_list.file())
    return file


def test_a_list_with_the_prices_of_the_file_changes_their_dates_alone(
    provider_list: ProviderList, its_file: Path
) -> None:
    before = provider_list.usd()
    lines = refreshed_lines(provider_list, its_file, before)
    assert {name: line["on_demand"][0] for name, line in lines.items()} == pytest.approx(before)
    assert not any({"suspect", "trusted", "note"} & line.keys() for line in lines.values())


def test_a_list_of_one_type_is_refused_whole(provider_list: ProviderList, its_file: Path) -> None:
    usd = provider_list.usd()
    (first, *_) = usd
    replies = provider_list.replies({first: usd[first]})
    if provider_list.provider == "gcp":  # its list is of parts: those of the machine without its GPU
        replies = {url: body.replace(b"Nvidia L4", b"Nvidia L400") for url, body in replies.items()}
    with pytest.raises(NetworkError, match="nown"):
        refresh_prices(provider_list.provider, file=its_file, today=TODAY, make_client=lambda: client_of(replies))
    assert its_file.read_text() == provider_list.file()


def test_a_row_that_the_list_no_longer_has_is_dropped(provider_list: ProviderList, its_file: Path) -> None:
    if provider_list.provider == "gcp":
        pytest.skip("its list has parts, each of which several machines are made of")
    usd = provider_list.usd()
    gone = usd.popitem()[0]
    assert refreshed_lines(provider_list, its_file, usd).keys() == usd.keys() - {gone}


@pytest.mark.parametrize("factor", [1000.0, 0.001])
def test_a_list_in_another_unit_is_refused_whole(provider_list: ProviderList, its_file: Path, factor: float) -> None:
    usd = {name: price * factor for name, price in provider_list.usd().items()}
    with pytest.raises(NetworkError):
        refreshed_lines(provider_list, its_file, usd)
    assert its_file.read_text() == provider_list.file()


def test_a_jump_is_not_believed_however_often_the_list_repeats_it(provider_list: ProviderList, its_file: Path) -> None:
    if provider_list.provider == "gcp":
        pytest.skip("a jump of one part is a jump of every machine that has it")
    usd = provider_list.usd()
    name = list(usd)[-1]
    first, second = (refreshed_lines(provider_list, its_file, usd | {name: 5 * usd[name]})[name] for _ in range(2))
    assert first == second
    assert "on_demand" in second["suspect"]
    assert second["trusted"]["on_demand"] == pytest.approx(usd[name])
    back = refreshed_lines(provider_list, its_file, usd)[name]
    assert not {"suspect", "trusted", "note"} & back.keys()


# AWS, whose lists are long and say when they have not changed

AWS = """\
provider: aws
tier: hyperscaler
regions: {us-east-1: US}
sources: {list: {date: 2026-01-01, from: an older list}}
instances:
  g5.xlarge:
    machine: {vcpus: 4, memory_gib: 16, gpu: a10g}
    usd_per_hour:
      us-east-1: {on_demand: [1.1, list]}
"""


@pytest.fixture
def aws_lists(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(aws, "BULK_ORIGIN", server.url)
    monkeypatch.setattr(aws, "SPOT_PRICE_URL", server.answer("/spot.js", Answer(spot_js({}))))
    advisor = json_answer(sample("aws_spot_advisor_trimmed.json"))
    monkeypatch.setattr(aws, "SPOT_ADVISOR_URL", server.answer("/advisor.json", advisor))
    return server


def test_a_list_that_has_not_changed_is_not_read_again_and_its_prices_are_of_today(
    aws_lists: Server, tmp_path: Path, waits: Waits
) -> None:
    path = "/offers/v1.0/aws/AmazonEC2/current/us-east-1/index.csv"
    body = "".join(lines([row("g5.xlarge", "1.006")])).encode()
    aws_lists.answer(path, Answer(body, headers={"ETag": '"v7"'}))
    file = tmp_path / "aws.yaml"
    file.write_text(AWS)
    for day in (TODAY, date(2026, 12, 1)):
        refresh_prices("aws", file=file, today=day, make_client=waits.client)
        line = read_documents(file)[0].values["instances"]["g5.xlarge"]["usd_per_hour"]["us-east-1"]
        assert line["on_demand"] == [1.006, f"bulk-us-east-1-{day}"]
    asked = [one.headers.get("If-None-Match") for one in aws_lists.asked if one.path == path]
    assert asked == [None, '"v7"']


_READ_LIST = """
import re, sys
from datetime import date
from pathlib import Path
from advisor.answers.price_refresh import refresh_prices
from advisor.refresh.providers import aws
origin, file = sys.argv[1:]
aws.BULK_ORIGIN, aws.SPOT_PRICE_URL, aws.SPOT_ADVISOR_URL = origin, f"{origin}/spot.js", f"{origin}/advisor.json"
refresh_prices("aws", file=Path(file), today=date(2026, 11, 21))
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""
_LIST_BYTES = 300 * 10**6
_MOST_KIB = 150 * 10**6 / 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says how much memory a process has used")
def test_a_list_of_300_mb_is_read_within_150_mb(aws_lists: Server, tmp_path: Path) -> None:
    head = "".join(lines([row("g5.xlarge", "1.006")])).encode()
    others = "".join([*lines(row(f"x{index}.large", "2.5", Tenancy="Dedicated") for index in range(5000))][6:]).encode()
    count = _LIST_BYTES // len(others) + 1
    body = (chunk for part in range(count + 1) for chunk in [others if part else head])
    aws_lists.answer("/offers/v1.0/aws/AmazonEC2/current/us-east-1/index.csv", Answer(body))
    file = tmp_path / "aws.yaml"
    file.write_text(AWS)
    done = subprocess.run(
        [sys.executable, "-c", _READ_LIST, aws_lists.url, str(file)],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < _MOST_KIB
    assert json.dumps(read_documents(file)[0].values["instances"]["g5.xlarge"]).count("1.006") == 1
