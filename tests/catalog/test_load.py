import subprocess
import sys
from pathlib import Path

import pytest

from advisor.catalog.overlay import load_catalog
from advisor.errors import ProfileError, UsageError
from advisor.records.price import Catalog, Offer

PRICE = """\
provider: aws
date: 2026-09-01
instances:
  g5.xlarge:
    usd_per_hour:
      us-east-1: {{on_demand: {usd}}}
"""
GPU = """\
id: {id}
name: Toy
vendor: NVIDIA
generation: Ampere
sm_count: 10
boost_mhz: 1500
memory_gib: 16
memory_gb_per_s: 300
fp32_tflops: {tflops}
source: made up
"""


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def offer_of(catalog: Catalog, identifier: str) -> Offer:
    return next(offer for offer in catalog.offers if offer.id == identifier)


def usd_of(catalog: Catalog) -> float:
    return offer_of(catalog, "aws/us-east-1/g5.xlarge").prices[0].usd_per_hour


def test_of_a_row_in_every_layer_the_first_wins_flags_then_folder_then_user_then_ours(home: Path) -> None:
    work = home / "work"
    assert usd_of(load_catalog(cwd=work)) == 1.006  # profiles/prices/aws.yaml
    write(home / "config/advisor/profiles/prices/aws.yaml", PRICE.format(usd=0.5))
    assert usd_of(load_catalog(cwd=work)) == 0.5
    write(home / "config/advisor/advisor.yaml", PRICE.format(usd=0.4))
    assert usd_of(load_catalog(cwd=work)) == 0.4
    write(work / "advisor.yaml", PRICE.format(usd=0.3))
    assert usd_of(load_catalog(cwd=work)) == 0.3
    write(work / "folder/prices/aws.yaml", PRICE.format(usd=0.2))
    assert usd_of(load_catalog(cwd=work, profiles=work / "folder")) == 0.2
    prices = [write(work / "mine.yaml", PRICE.format(usd=0.1)), write(work / "other.yaml", PRICE.format(usd=0.15))]
    catalog = load_catalog(cwd=work, prices=prices, profiles=work / "folder")
    assert usd_of(catalog) == 0.1
    assert catalog.overlays == (
        str(work / "mine.yaml"),
        str(work / "other.yaml"),
        str(work / "folder"),
        str(work / "advisor.yaml"),
        str(home / "config/advisor/advisor.yaml"),
        str(home / "config/advisor/profiles"),
    )


def test_an_overlay_changes_its_row_and_nothing_else(home: Path) -> None:
    ours = load_catalog(cwd=home / "work")
    write(home / "work/advisor.yaml", PRICE.format(usd=0.3))
    theirs = load_catalog(cwd=home / "work")
    mine = offer_of(theirs, "aws/us-east-1/g5.xlarge")
    assert (mine.gpu, mine.vcpus, mine.tier, mine.geo) == ("a10g", 4, "hyperscaler", "US")
    assert [(price.kind, price.date) for price in mine.prices] == [("on_demand", "2026-09-01")]
    same = {offer for offer in theirs.offers if offer is not mine}
    assert same == {offer for offer in ours.offers if offer.id != mine.id}
    assert theirs.rejected == ours.rejected


def test_without_overlays_none_is_named(home: Path) -> None:
    assert load_catalog(cwd=home / "work").overlays == ()


def test_a_folder_adds_and_replaces_devices_by_id(home: Path) -> None:
    folder = home / "work/mine"
    write(folder / "devices/gpu/toy.yaml", GPU.format(id="toy", tflops=10))
    write(folder / "devices/gpu/t4.yaml", GPU.format(id="t4", tflops=20))
    catalog = load_catalog(cwd=home / "work", profiles=folder)
    assert catalog.gpus["toy"].fp32_flops_per_s == 10e12
    # What was measured on the shipped T4 is not joined to the user's.
    assert (catalog.gpus["t4"].fp32_flops_per_s, catalog.gpus["t4"].host_to_device_bytes_per_s) == (20e12, None)
    assert catalog.gpus["l4"] == load_catalog(cwd=home / "work").gpus["l4"]


def test_one_file_may_hold_several_providers_and_new_types(home: Path) -> None:
    text = PRICE.format(usd=0.3) + (
        "---\nprovider: mine\ntier: neocloud\ndate: 2026-09-01\nregions: {cellar: EU}\ninstances:\n"
        "  box: {machine: {vcpus: 8, gpu: rtx-4090}, usd_per_hour: {cellar: {on_demand: 0.05}}}\n"
    )
    write(home / "work/advisor.yaml", text)
    catalog = load_catalog(cwd=home / "work")
    assert usd_of(catalog) == 0.3
    box = offer_of(catalog, "mine/cellar/box")
    assert (box.gpu, box.gpu_count, box.geo, box.tier) == ("rtx-4090", 1, "EU", "neocloud")


def test_a_region_that_its_provider_does_not_have_is_refused_at_its_line(home: Path) -> None:
    text = PRICE.format(usd=1).replace("us-east-1", "us-est-1")
    write(home / "work/advisor.yaml", text)
    with pytest.raises(ProfileError) as caught:
        load_catalog(cwd=home / "work")
    assert caught.value.where.endswith("advisor.yaml:6: instances.g5.xlarge.usd_per_hour.us-est-1")
    assert "us-east-1" in caught.value.hint
    # Paris is no region of the shipped prices, but its grid is known; any other is new once the file says where it is.
    for own in (PRICE.format(usd=1).replace("us-east-1", "eu-west-3"), f"regions: {{us-est-1: US}}\n{text}"):
        write(home / "work/advisor.yaml", own)
        assert len(load_catalog(cwd=home / "work").offers) == len(load_catalog(cwd=home).offers) + 1


def test_a_mistake_in_an_overlay_is_refused_at_its_line(home: Path) -> None:
    file = write(home / "work/advisor.yaml", PRICE.format(usd=0))
    with pytest.raises(ProfileError) as caught:
        load_catalog(cwd=home / "work")
    assert caught.value.where == f"{file}:6: instances.g5.xlarge.usd_per_hour.us-east-1.on_demand"
    write(home / "work/advisor.yaml", PRICE.format(usd=1).replace("g5.xlarge", "g5.xlrage"))
    with pytest.raises(ProfileError, match=r"advisor.yaml:4: instances.g5.xlrage: aws has no type") as caught:
        load_catalog(cwd=home / "work")
    assert caught.value.hint.startswith("did you mean g5.xlarge?")


def test_a_row_that_two_documents_of_a_file_have_is_refused_at_its_line(home: Path) -> None:
    first, second = PRICE.format(usd=0.61), PRICE.format(usd=0.51)
    file = write(home / "two.yaml", f"{first}---\n{second}")
    with pytest.raises(ProfileError, match=r"first at .*two\.yaml:6") as caught:
        load_catalog(prices=[file])
    assert "two.yaml:13: " in caught.value.where
    # Another region is another row.
    write(file, f"{first}---\n{second.replace('us-east-1', 'us-west-2')}")
    assert usd_of(load_catalog(prices=[file])) == 0.61


def test_a_flag_that_names_no_file_or_folder_is_refused(home: Path) -> None:
    with pytest.raises(UsageError, match=r"--profiles .*absent: folder does not exist"):
        load_catalog(cwd=home / "work", profiles=home / "absent")
    with pytest.raises(UsageError, match=r"--prices .*absent.yaml: file does not exist"):
        load_catalog(cwd=home / "work", prices=[home / "absent.yaml"])


def test_an_overlay_that_links_to_nothing_is_refused_and_not_passed_over(home: Path) -> None:
    (home / "work/advisor.yaml").symlink_to(home / "work/gone.yaml")
    with pytest.raises(ProfileError, match=r"advisor.yaml: a link to .*gone.yaml"):
        load_catalog(cwd=home / "work")


def test_a_folder_without_profiles_is_refused_instead_of_changing_nothing(home: Path) -> None:
    write(home / "work/folder/toy.yaml", GPU.format(id="toy", tflops=10))
    with pytest.raises(UsageError, match="no profiles in this folder") as caught:
        load_catalog(cwd=home / "work", profiles=home / "work/folder")
    assert "devices/gpu" in caught.value.hint


def test_a_file_that_cannot_be_read_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(home / "work/advisor.yaml", PRICE.format(usd=0.3))

    def forbidden(path: Path) -> bytes:
        if path == file:
            raise PermissionError(13, "Permission denied")
        return path.read_bytes()

    monkeypatch.setattr("advisor.catalog.cache.read_regular_file", forbidden)
    with pytest.raises(ProfileError, match=r"advisor.yaml: Permission denied"):
        load_catalog(cwd=home / "work")


def test_a_second_load_gives_the_same_catalog_from_the_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_catalog(cwd=home / "work")
    monkeypatch.setattr("advisor.catalog.parse.parse_catalog", lambda in_force: pytest.fail("parsed again"))
    assert load_catalog(cwd=home / "work") == first


def test_a_catalog_with_an_owned_machine_on_free_electricity_is_cached(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = "{vcpus: 8, memory_gib: 16, gpu: l4}"
    free = f"owned: {{box: {{machine: {machine}, electricity_usd_per_kwh: 0, date: 2026-11-01}}}}"
    write(home / "work/advisor.yaml", free)
    first = load_catalog(cwd=home / "work")
    assert offer_of(first, "own/own/box").prices[0].usd_per_hour == 0
    assert first.doubts == ()
    monkeypatch.setattr("advisor.catalog.parse.parse_catalog", lambda in_force: pytest.fail("parsed again"))
    assert load_catalog(cwd=home / "work") == first


def test_a_cached_file_of_list_prices_is_not_taken_for_own_rates_or_the_reverse(home: Path) -> None:
    work = home / "work"
    write(work / "advisor.yaml", "discounts: [{provider: aws, percent: 20}]")
    file = write(work / "folder/prices/aws.yaml", PRICE.format(usd=0.5))
    for _ in range(2):
        assert usd_of(load_catalog(cwd=work, profiles=work / "folder")) == pytest.approx(0.4)  # 20 % off a list price
        assert usd_of(load_catalog(cwd=work, prices=[file])) == 0.5


def test_a_change_of_any_file_is_seen(home: Path) -> None:
    write(home / "work/advisor.yaml", PRICE.format(usd=0.3))
    assert usd_of(load_catalog(cwd=home / "work")) == 0.3
    write(home / "work/advisor.yaml", PRICE.format(usd=0.2))
    assert usd_of(load_catalog(cwd=home / "work")) == 0.2


def test_a_cached_catalog_is_loaded_without_the_yaml_parser_pydantic_numpy_or_torch(tmp_path: Path) -> None:
    code = (
        "import pathlib, platformdirs, sys\n"
        "from advisor.catalog.overlay import load_catalog\n"
        f"platformdirs.user_cache_path = platformdirs.user_config_path = lambda name: pathlib.Path({str(tmp_path)!r})\n"
        f"load_catalog(cwd=pathlib.Path({str(tmp_path)!r}))\n"
        "print(*sorted({'yaml', 'pydantic', 'numpy', 'torch', 'advisor.catalog.parse'} & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", code]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2))
    assert first.stdout.split() == ["advisor.catalog.parse", "yaml"]
    assert second.stdout.split() == []
