from pathlib import Path

import pytest

from advisor.catalog.overlay import load_catalog
from advisor.errors import ProfileError
from advisor.records.billing import Extras


def test_trap_9_the_shipped_rules_are_those_of_the_providers_and_say_where_they_are_from() -> None:
    catalog = load_catalog()
    billing, providers = catalog.billing, {offer.provider for offer in catalog.offers}

    assert set(billing.rules) <= providers
    assert {"aws", "azure", "gcp", "lambda", "runpod", "vast-ai"} <= set(billing.rules)
    assert (billing.rules["aws"].increment_s, billing.rules["aws"].minimum_s) == (1, 60)
    assert (billing.rules["gcp"].increment_s, billing.rules["gcp"].minimum_s) == (1, 60)
    assert billing.rules["lambda"].increment_s == 60
    assert (billing.rules["runpod"].increment_s, billing.rules["vast-ai"].increment_s) == (1, 1)
    for rule in billing.rules.values():
        assert rule.basis == "general_knowledge" or "https://" in rule.source


def test_the_shipped_start_up_times_are_those_that_were_measured() -> None:
    start_ups = load_catalog().billing.start_ups

    assert (start_ups["aws"].boot_script_median_s, start_ups["aws"].sample_count) == (31.5, 70)
    assert "lambda" not in start_ups


def test_a_folder_of_ones_own_wins_provider_by_provider(tmp_path: Path) -> None:
    (tmp_path / "billing.yaml").write_text(
        "aws: {increment_s: 3600, basis: general_knowledge, source: our reseller}\n"
        "acme: {increment_s: 60, basis: published, source: 'https://acme.example'}\n"
    )
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices/acme.yaml").write_text(
        "provider: acme\ntier: neocloud\ndate: 2026-11-01\nregions: {here: EU}\ninstances:\n"
        "  box:\n    machine: {vcpus: 8, memory_gib: 64, gpu: l4, gpu_count: 1}\n"
        "    usd_per_hour: {here: {on_demand: 1}}\n"
    )

    ours, own = load_catalog().billing, load_catalog(profiles=tmp_path).billing

    assert own.rules["aws"].increment_s == 3600
    assert own.rules["acme"].increment_s == 60
    assert own.rules["gcp"] == ours.rules["gcp"]
    assert own.start_ups == ours.start_ups


def test_extra_costs_of_ones_own_win_provider_by_provider(tmp_path: Path) -> None:
    (tmp_path / "extra_costs.yaml").write_text(
        "disks: {aws: {size_gib: 50, usd_per_month: 0, date: 2026-11-01, source: ours}}\n"
        "gpu_packages: {download_bytes: 1e9, pull_bytes_per_s: 1e8, date: 2026-11-01, source: ours}\n"
    )

    ours, own = load_catalog().billing.extra_costs, load_catalog(profiles=tmp_path).billing.extra_costs

    assert (own.disks["aws"].usd_per_month, own.disks["aws"].size_bytes) == (0.0, 50 * 2**30)
    assert own.disks["azure"] == ours.disks["azure"]
    assert own.egress == ours.egress
    assert own.gpu_packages is not None
    assert own.gpu_packages.download_bytes == 1e9


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("aws: {increment_s: -1, basis: published, source: x}", "expected a number that is more than 0"),
        ("aws: {increment_s: 1, basis: rumour, source: x}", "expected one of published, general_knowledge"),
        ("aws: {increments: 1, basis: published, source: x}", "unknown key"),
    ],
)
def test_a_rule_that_cannot_be_right_is_refused_at_its_line(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "billing.yaml").write_text(f"{line}\n")

    with pytest.raises(ProfileError, match=message) as caught:
        load_catalog(profiles=tmp_path)
    assert "billing.yaml:1: aws" in caught.value.where


@pytest.mark.parametrize(
    ("file", "text", "where"),
    [
        ("billing.yaml", "awss: {increment_s: 3600, basis: published, source: x}\n", "billing.yaml:1: awss"),
        (
            "extra_costs.yaml",
            "egress:\n  AWS: {usd_per_tb: 9, free_gib: 0, date: 2026-11-01, source: x}\n",
            "extra_costs.yaml:2: egress.AWS",
        ),
        ("price_sources.yaml", "awss: {page: 'https://acme.example'}\n", "price_sources.yaml:1: awss"),
    ],
)
def test_an_entry_of_a_provider_without_offers_is_refused_at_its_line(
    tmp_path: Path, file: str, text: str, where: str
) -> None:
    (tmp_path / file).write_text(text)

    with pytest.raises(ProfileError, match="no offer has provider") as caught:
        load_catalog(profiles=tmp_path)
    assert where in caught.value.where
    assert "aws" in caught.value.hint


def test_an_overlay_adds_storage_egress_and_tax_the_first_file_wins(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("extras: {storage_usd_per_month: 20, tax_percent: 0}\n")
    second.write_text("extras: {egress_usd: 5}\n")

    assert load_catalog().billing.extras == Extras()
    assert load_catalog(prices=[first, second]).billing.extras == Extras(storage_usd_per_month=20.0, tax_percent=0.0)


def test_an_extra_that_is_unknown_or_below_0_is_refused(tmp_path: Path) -> None:
    overlay = tmp_path / "mine.yaml"
    for line, message in (("{taxes: 19}", "unknown key"), ("{tax_percent: -1}", "0 or more, found -1")):
        overlay.write_text(f"extras: {line}\n")
        with pytest.raises(ProfileError, match=message):
            load_catalog(prices=[overlay])
