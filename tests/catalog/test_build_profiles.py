"""The script that writes the shipped profiles, held to them where the data is at hand."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from advisor.catalog.overlay import shipped_profiles
from advisor.catalog.strict_yaml import parse_documents
from tests.says import assert_says

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared/data"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_profiles", ROOT / "scripts/build_profiles.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not DATA.is_dir(), reason="the data is not part of the project")
def test_the_shipped_files_are_what_the_script_writes_byte_for_byte(script: ModuleType, tmp_path: Path) -> None:
    script.write_profiles(DATA, out=tmp_path)
    written = {file.relative_to(tmp_path): file.read_bytes() for file in tmp_path.rglob("*.yaml")}
    shipped = {
        file.relative_to(shipped_profiles()): file.read_bytes()
        for folder in ("devices", "prices", "sparecores")
        for file in (shipped_profiles() / folder).rglob("*.yaml")
    }
    assert written.keys() == shipped.keys()
    assert [name for name in written if written[name] != shipped[name]] == []


@pytest.mark.parametrize(
    "value",
    ["yes", "010", "3:30", "2026-09-01", "a: b", "5-10", ">20", "no # comment", "{a}", 'say "hi"', "±15%", "", "- x"],
)
def test_every_text_it_writes_is_read_back_as_that_text(script: ModuleType, value: str) -> None:
    (document,) = parse_documents(f"key: {script.flow({value: [value]})}", label="text")
    assert document.values == {"key": {value: [value]}}


def test_the_older_of_two_dates_is_that_of_a_sum(script: ModuleType) -> None:
    sources = script.Sources()
    key = sources.key("gpu-pricing", date="2026-07-30 (N1) / 2026-06-23 (GPU table)", how="", price="spot")
    assert sources.by_key[key] == {"date": "2026-06-23", "from": "gpu-pricing"}


def test_two_sources_alike_but_for_the_kind_of_price_get_keys_of_their_own(script: ModuleType) -> None:
    sources = script.Sources()
    first = sources.key("gpu-pricing", date="2026-07-30", how="", price="on_demand")
    second = sources.key("gpu-pricing", date="2026-07-30", how="DERIVED", price="spot")
    assert (first, second) == ("gpu-pricing-2026-07-30", "gpu-pricing-spot-2026-07-30")
    assert sources.key("gpu-pricing", date="2026-07-30", how="", price="spot") == first


@pytest.mark.parametrize(
    ("clocks", "base", "expected"),
    [("3.6/3.4", "2.65", 3.4), ("3.1/2.5", "2.5", 3.1), ("2.8/2.7", "2.8", 2.8), ("", "2.2", None)],
)
def test_the_sustained_clock_is_the_lowest_one_above_the_base_clock(
    script: ModuleType, clocks: str, base: str, expected: float | None
) -> None:
    assert script.sustained_ghz({"all_core_turbo_ghz": clocks, "base_ghz": base}) == expected


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("Intel Core i9-10940X", ["i9-10940X"]),
        ("Intel Xeon Platinum 8380", ["Xeon 8380"]),
        ("Intel Xeon E5-2690 v4", ["E5-2690 v4"]),
        ("AMD Ryzen 9 5950X", ["Ryzen 5950X"]),
        ("AMD Ryzen Threadripper PRO 5995WX", ["Threadripper 5995WX"]),
        ("AMD EPYC 7742", []),  # only the vendor can be left out, and any name is found without it
        ("Ampere Altra (Azure)", []),
    ],
)
def test_the_short_name_of_a_cpu_is_its_number_with_its_family(
    script: ModuleType, model: str, expected: list[str]
) -> None:
    assert script.short_names(model) == expected


def test_the_core_of_a_cpu_is_that_of_its_microarchitecture(script: ModuleType) -> None:
    cores = [{"microarchitecture": name} for name in ("Zen 3", "Cascade Lake")]
    assert script.core_of({"microarchitecture": "Cascade Lake-X"}, cores) == cores[1]
    assert script.core_of({"microarchitecture": "Cascade/Ice Lake"}, cores) is None


def test_a_corrected_figure_says_what_it_replaces(script: ModuleType) -> None:
    row = {"name": "A16", "tdp_w": "250", "notes": "seen"}
    corrected = script.corrected(row)
    assert corrected["tdp_w"] == "62.5"
    assert_says(corrected["notes"], "seen", "250")
    other = {**row, "name": "A10"}
    assert script.corrected(other) == other


def test_a_repeated_type_in_a_region_becomes_a_type_of_its_own(script: ModuleType) -> None:
    rows = [{"instance_type": "a", "region": region} for region in ("eu", "us", "eu")]
    assert {name: len(group) for name, group in script.by_instance(rows).items()} == {"a": 2, "a #2": 1}
