"""Prices from a SkyPilot catalog on this disk, in the format of its own fetchers (sky/catalog/data_fetchers)."""

import os
import re
import socket
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import platformdirs
import pytest

from advisor.answers.price_refresh import AllRefreshed, refresh_from_skypilot
from advisor.catalog.overlay import shipped_profiles
from advisor.catalog.strict_yaml import read_documents
from advisor.errors import NetworkError, UsageError
from advisor.launch.engines import skypilot as engine
from advisor.records.price import Listing, Wanted
from advisor.refresh import skypilot
from tests.cli.conftest import Result, advise  # noqa: F401, a fixture
from tests.refresh.wanted import listed, wanted

TODAY = date(2026, 11, 21)
FETCHED = date(2026, 11, 20)
AWS = """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch
g6.xlarge,L4,1.0,4.0,16.0,"{'Gpus': [{'Name': 'L4', 'Count': 1}]}",0.81,0.33,us-east-1,use1-az1,x86_64
g6.xlarge,L4,1.0,4.0,16.0,"{'Gpus': [{'Name': 'L4', 'Count': 1}]}",0.81,0.31,us-east-1,use1-az4,x86_64
g6.xlarge,L4,1.0,4.0,16.0,,0.9,,sa-east-1,sae1-az1,x86_64
c7g.large,,,2.0,4.0,,0.0723,,us-east-1,use1-az1,arm64
zz9.large,,,2.0,4.0,,0.5,0.1,us-east-1,use1-az1,x86_64
"""
GCP = """\
InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Price,SpotPrice,Region,AvailabilityZone
n1-standard-4,4.0,15.0,,,,0.19,0.04,us-central1,us-central1-a
g2-standard-24,24.0,96.0,,,,0.99,0.4,us-central1,us-central1-a
a3-highgpu-8g,208.0,1872.0,,,,10.0,3.0,us-central1,us-central1-a
,,,T4,1.0,,0.35,0.14,us-central1,us-central1-a
,,,T4,4.0,,1.4,0.56,us-central1,us-central1-a
,,,L4,2.0,,1.12,0.45,us-central1,us-central1-a
,,,H100,8.0,,78.0,30.0,us-central1,us-central1-a
"""
LAMBDA = """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice
gpu_1x_a10,A10,1.0,30.0,200.0,0.79,us-east-1,"{'Gpus': [{'Name': 'A10', 'MemoryInfo': {'SizeInMiB': 24576}}]}",
gpu_1x_a10,A10,1.0,30.0,200.0,0.79,us-west-2,"{'Gpus': [{'Name': 'A10', 'MemoryInfo': {'SizeInMiB': 24576}}]}",
gpu_8x_a100_80gb_sxm4,A100-80GB,8.0,240.0,1800.0,14.32,us-east-1,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 81920}}]}",
gpu_1x_h100_pcie,H100,1.0,26.0,200.0,0.0,us-east-1,,
"""


@pytest.fixture
def sky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an empty catalog in an empty home, in which this program also writes its files."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SKY_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(platformdirs, "user_config_path", lambda name: tmp_path / "config" / name)
    (folder := tmp_path / ".sky/catalogs/v8").mkdir(parents=True)
    return folder


def put(sky: Path, cloud: str, text: str, *, fetched: date = FETCHED) -> Path:
    file, digest = sky / cloud / "vms.csv", sky / ".meta" / cloud / "vms.csv.md5"
    for one, content in ((file, text), (digest, "0" * 32)):
        one.parent.mkdir(parents=True, exist_ok=True)
        one.write_text(content)
    at = time.mktime(fetched.timetuple())
    os.utime(digest, (at, at))
    return file


def listing_of(sky: Path, asked: Wanted) -> Listing:
    (catalog,) = skypilot.catalogs()
    return skypilot.listing(catalog, asked)


def usd_of(found: Listing) -> dict[tuple[str, str], float]:
    return {(one.instance, one.kind): one.usd_per_hour for one in found.prices}


def test_types_have_their_price_and_the_spot_price_of_the_cheapest_zone(sky: Path) -> None:
    put(sky, "aws", AWS)
    types = (listed("g6.xlarge", gpu="l4", gpu_count=1), listed("c7g.large"), listed("m7i.large"))
    found = listing_of(sky, wanted(*types, regions=("us-east-1",)))
    assert usd_of(found) == {
        ("g6.xlarge", "on_demand"): 0.81,
        ("g6.xlarge", "spot"): 0.31,
        ("c7g.large", "on_demand"): 0.0723,  # no spot price is known
    }
    # m7i.large is not in this selection of types, which does not say that it is not sold.
    assert ("m7i.large", "us-east-1", "on_demand") not in found.covered


def test_a_machine_of_google_is_the_sum_of_itself_and_its_gpus(sky: Path) -> None:
    put(sky, "gcp", GCP)
    types = (
        listed("n1-standard-4"),
        listed("n1-standard-4+nvidia-tesla-t4", gpu="t4", gpu_count=1),
        listed("g2-standard-24", gpu="l4", gpu_count=2),
        listed("g2-standard-24+four", gpu="l4", gpu_count=4),  # four of them have no row
        listed("a3-highgpu-8g", gpu="h100-sxm5-80gb", gpu_count=8),  # has disks beside
    )
    found = usd_of(listing_of(sky, wanted(*types, regions=("us-central1",))))
    assert found == {
        ("n1-standard-4", "on_demand"): 0.19,
        ("n1-standard-4", "spot"): 0.04,
        ("n1-standard-4+nvidia-tesla-t4", "on_demand"): 0.54,
        ("n1-standard-4+nvidia-tesla-t4", "spot"): 0.18,
        ("g2-standard-24", "on_demand"): 2.11,
        ("g2-standard-24", "spot"): 0.85,
    }


def test_googles_gpus_have_the_names_that_tasks_are_launched_with() -> None:
    assert skypilot.GOOGLES_GPUS.items() <= engine.GPU_NAMES.items()


def test_types_of_lambda_are_known_by_gpu_count_and_vcpus(sky: Path) -> None:
    put(sky, "lambda", LAMBDA)
    known = {("a10", 24.0): "a10", ("a100 80gb sxm4", 80.0): "a100-sxm4-80gb", ("h100 pcie", None): "h100-pcie-80gb"}
    types = (
        listed("NVIDIA A10", gpu="a10", gpu_count=1, vcpus=30),
        listed("NVIDIA A10 big", gpu="a10", gpu_count=1, vcpus=60),
        listed("8x A100", gpu="a100-sxm4-80gb", gpu_count=8, vcpus=None),
        listed("H100", gpu="h100-pcie-80gb", gpu_count=1, vcpus=26),  # 0 dollars: no price is known
    )
    asked = wanted(*types, gpu_id=lambda name, memory_gib: known.get((name, memory_gib)))
    assert usd_of(listing_of(sky, asked)) == {("NVIDIA A10", "on_demand"): 0.79, ("8x A100", "on_demand"): 14.32}


def refreshed() -> AllRefreshed:
    return refresh_from_skypilot(today=TODAY)


def test_the_price_file_gets_them_dated_when_they_were_fetched(sky: Path, tmp_path: Path) -> None:
    put(sky, "aws", AWS)
    found = refreshed()
    assert (list(found.done), dict(found.failed), dict(found.by_hand)) == (["aws"], {}, {})
    file = tmp_path / "config/advisor/profiles/prices/aws.yaml"
    (document,) = read_documents(file)
    line = document.values["instances"]["g6.xlarge"]["usd_per_hour"]["us-east-1"]
    assert (line["on_demand"], line["spot"]) == ([0.81, "skypilot-2026-11-20"], [0.31, "skypilot-2026-11-20"])
    assert document.values["sources"]["skypilot-2026-11-20"]["date"] == "2026-11-20"
    assert "zz9.large" not in document.values["instances"]
    changed = {change.offer_id for change in found.done["aws"].changes}
    assert "aws/us-east-1/g6.xlarge" in changed
    assert not any("sa-east-1" in offer for offer in changed)  # not a region of ours
    (ours,) = read_documents(shipped_profiles() / "prices/aws.yaml")
    assert document.values["instances"].keys() == ours.values["instances"].keys()  # nothing is dropped
    assert refreshed().done["aws"].changes == ()


def test_newer_prices_stay(sky: Path, tmp_path: Path) -> None:
    put(sky, "aws", AWS, fetched=date(2010, 1, 1))
    (problem,) = refreshed().done["aws"].problems
    assert "newer" in problem
    assert not (tmp_path / "config").exists()


def test_a_time_that_a_failed_fetch_has_set_is_not_the_catalogs(sky: Path) -> None:
    file = put(sky, "aws", AWS)  # written now, fetched before
    (catalog,) = skypilot.catalogs()
    assert catalog.fetched == FETCHED
    (sky / ".meta/aws/vms.csv.md5").unlink()  # a catalog of the user's own
    at = time.mktime(date(2026, 3, 2).timetuple())
    os.utime(file, (at, at))
    (catalog,) = skypilot.catalogs()
    assert catalog.fetched == date(2026, 3, 2)


def test_the_newest_version_is_read(sky: Path) -> None:
    put(sky.parent / "v10", "aws", AWS)
    put(sky.parent / "v9", "aws", AWS)
    put(sky, "gcp", GCP)
    (sky.parent / "v11").mkdir()
    (sky.parent / "view").mkdir()
    (catalog,) = skypilot.catalogs()
    assert catalog.file == sky.parent / "v10/aws/vms.csv"


def test_without_a_catalog_it_says_how_to_get_one(sky: Path) -> None:
    with pytest.raises(UsageError, match=r"no catalog of SkyPilot") as caught:
        skypilot.catalogs()
    assert "sky" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("InstanceType,Price\ng6.xlarge,1\n", "no column AcceleratorCount, AcceleratorName"),
        ("", "no column"),
        (AWS.replace("0.81", "n/a").replace("0.0723", "-1"), "no price of any known type"),
        (AWS.replace("0.81", "81").replace("0.0723", "7.23"), "jumped|cannot be right"),
        ("\0" + AWS, "no column|line contains NUL"),
        (AWS + 'g6.xlarge,"' + "x" * 200_000, "field larger"),
    ],
)
def test_a_catalog_that_cannot_be_right_changes_nothing(sky: Path, tmp_path: Path, text: str, problem: str) -> None:
    put(sky, "aws", text.replace(",0.31,", ",,").replace(",0.33,", ",,") if "n/a" in text else text)
    error = refreshed().failed["aws"]
    assert isinstance(error, NetworkError)
    assert re.search(problem, error.message), error.message
    assert not (tmp_path / "config").exists()


def test_one_cloud_that_fails_does_not_stop_the_others(
    sky: Path,
    tmp_path: Path,
    advise: Callable[..., Result],  # noqa: F811
) -> None:
    put(sky, "aws", AWS)
    put(sky, "azure", "no,columns\n")
    result = advise("prices", "refresh", "skypilot", "--dry-run")
    assert result.code == 5
    assert "aws/us-east-1/g6.xlarge" in result.out
    assert "aws: nothing was written" in result.err
    assert "azure: not refreshed" in result.err
    assert "advisor.yaml" not in result.err
    assert not (tmp_path / "config").exists()
    assert advise("prices", "refresh", "skypilot", "-o", "mine.yaml").code == 2


def test_no_network_is_used(sky: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(sky, "aws", AWS)
    monkeypatch.setattr(socket, "socket", None)
    assert list(refreshed().done) == ["aws"]
