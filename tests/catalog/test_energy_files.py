"""The power of devices and the intensity of grids: the shipped files, a user's own, and owned machines."""

from pathlib import Path

import pytest

from advisor.catalog.overlay import load_catalog
from advisor.cost.power import grid_of
from advisor.errors import ProfileError
from advisor.records.energy import CpuPowers, Grids
from advisor.records.price import Catalog
from tests.says import assert_says

BOX = """\
owned:
  gpu-box:
    machine: {vcpus: 32, memory_gib: 128, gpu: GPU, gpu_count: 2}
    electricity_usd_per_kwh: 0.30
    date: 2026-11-01
"""


def powers(shipped: Catalog) -> tuple[CpuPowers, Grids]:
    energy = shipped.billing.energy
    assert energy.gpu is not None
    assert energy.cpu is not None
    assert energy.grids is not None
    return energy.cpu, energy.grids


def test_four_in_five_offers_of_hyperscalers_have_watts_and_a_grid(shipped: Catalog) -> None:
    cpus, _ = powers(shipped)
    offers = [offer for offer in shipped.offers if offer.tier == "hyperscaler"]
    has_watts = [
        offer.gpu is None or shipped.gpus[offer.gpu].tdp_w is not None
        for offer in offers
        if cpus.of(offer.cpu).busy_w_per_core
    ]
    has_grid = [grid_of(shipped.billing.energy, offer) is not None for offer in offers]
    both = [watts and grid for watts, grid in zip(has_watts, has_grid, strict=True)]
    assert len(offers) > 1000
    assert sum(both) >= 0.8 * len(offers)


def test_a_region_without_a_figure_has_no_grid_rather_than_an_average(shipped: Catalog) -> None:
    _, grids = powers(shipped)
    others = [offer for offer in shipped.offers if offer.tier != "hyperscaler"]
    assert others
    assert all(grid_of(shipped.billing.energy, offer) is None for offer in others)
    assert not [key for key in grids.regions if key.count("/") != 1]


def test_every_grid_says_who_published_it_and_has_the_pue_of_its_provider(shipped: Catalog) -> None:
    _, grids = powers(shipped)
    assert len(grids.regions) == 94
    for key, grid in grids.regions.items():
        assert grid.source, key
        assert grid.pue is not None, key
        assert 1.05 <= grid.pue <= 1.3, key


def test_providers_at_one_place_share_one_figure(shipped: Catalog) -> None:
    _, grids = powers(shipped)
    # Virginia, the Netherlands and Tokyo, in grams by Google for 2024
    for expected, keys in (
        (323.05, ("aws/us-east-1", "azure/eastus", "azure/eastus2", "gcp/us-east4")),
        (208.81, ("azure/westeurope", "gcp/europe-west4")),
        (452.85, ("aws/ap-northeast-1", "azure/japaneast", "gcp/asia-northeast1")),
    ):
        assert {grids.regions[key].gco2_per_kwh for key in keys} == {expected}
        assert {grids.regions[key].year for key in keys} == {2024}


def test_the_suspicious_rows_of_cpus_are_left_out(shipped: Catalog) -> None:
    cpus, _ = powers(shipped)
    by_generation = {shipped.cpus[name].generation: power for name, power in cpus.cpus.items() if name in shipped.cpus}
    # The wrong row of EPYC 5th Gen has 18 W for a core of two threads; the derived one 2 x 1.3227.
    assert by_generation["Zen 5 Turin"].busy_w_per_core == pytest.approx(2.645, rel=1e-3)
    # Gravitons were copies of EPYC 2nd Gen, 3.386 W for a core; now as the Altra, with a wider interval.
    graviton, altra = by_generation["Neoverse V2"], by_generation["Neoverse N1"]
    assert graviton.busy_w_per_core == altra.busy_w_per_core == pytest.approx(1.706)
    assert graviton.log_spread > altra.log_spread


def test_a_users_own_grids_come_first(home: Path) -> None:
    folder = home / "work/mine"
    (folder / "energy").mkdir(parents=True)
    own = 'log_spread: 0.1\nregions:\n  lambda/us-1: {gco2_per_kwh: 300, place: "x", source: "mine"}\n'
    (folder / "energy/grid.yaml").write_text(own)
    energy = load_catalog(cwd=home / "work", profiles=folder).billing.energy
    assert energy.grids is not None
    assert energy.grids.regions["lambda/us-1"].gco2_per_kwh == 300
    assert "aws/us-east-1" in energy.grids.regions


def test_a_figure_out_of_range_is_refused_at_its_line(home: Path) -> None:
    folder = home / "work/mine"
    (folder / "energy").mkdir(parents=True)
    own = 'log_spread: 0.1\nregions:\n  lambda/us-1: {gco2_per_kwh: 0.3, place: "x", source: "mine"}\n'
    (folder / "energy/grid.yaml").write_text(own)
    with pytest.raises(ProfileError, match=r"grid\.yaml:3: .*gco2_per_kwh"):
        load_catalog(cwd=home / "work", profiles=folder)


def test_an_owned_machine_without_its_own_watts_costs_those_at_full_load(home: Path) -> None:
    (home / "work/advisor.yaml").write_text(BOX.replace("GPU", "rtx-4090"))
    catalog = load_catalog(cwd=home / "work")
    energy = catalog.billing.energy
    assert energy.gpu is not None
    assert energy.cpu is not None
    (box,) = (one for one in catalog.offers if one.provider == "own")
    # 2 x 450 W x the largest share of it, and 16 cores of a CPU that is not known
    watts = 900 * energy.gpu.most_ratio + 16 * energy.cpu.cpus["*"].busy_w_per_core
    assert box.prices[0].usd_per_hour == box.running_usd_per_hour == pytest.approx(watts / 1000 * 0.30)
    assert box.electricity_usd_per_kwh == 0.30


def test_an_owned_machine_whose_power_nobody_knows_needs_its_own_watts(home: Path) -> None:
    (home / "work/advisor.yaml").write_text(BOX.replace("GPU", "gh200-96gb"))
    with pytest.raises(
        ProfileError, match=r"advisor\.yaml:3: owned\.gpu-box\.machine\.gpu: the power of gh200-96gb is not known"
    ):
        load_catalog(cwd=home / "work")


def test_an_owned_machine_without_vcpus_or_its_own_watts_says_which_key_is_missing(home: Path) -> None:
    bare = BOX.replace("vcpus: 32, memory_gib: 128, gpu: GPU", "gpu: rtx-4090")
    (home / "work/advisor.yaml").write_text(bare)
    with pytest.raises(ProfileError, match=r"advisor\.yaml:3: owned\.gpu-box\.machine: vcpus is missing") as caught:
        load_catalog(cwd=home / "work")
    assert_says(caught.value.hint, "vcpus: 16", "power_w: 550")
    (home / "work/advisor.yaml").write_text(f"{bare}    power_w: 550\n")
    assert load_catalog(cwd=home / "work").offers


def test_a_vcpu_of_an_owned_arm_machine_is_a_core(home: Path) -> None:
    machine = "{vcpus: 32, memory_gib: 128, cpu: aws-graviton3}"
    (home / "work/advisor.yaml").write_text(
        BOX.replace("{vcpus: 32, memory_gib: 128, gpu: GPU, gpu_count: 2}", machine)
    )
    catalog = load_catalog(cwd=home / "work")
    cpus, _ = powers(catalog)
    (box,) = (one for one in catalog.offers if one.provider == "own")
    # 32 cores, not 16 with two threads each
    assert box.running_usd_per_hour == pytest.approx(32 * cpus.cpus["aws-graviton3"].busy_w_per_core / 1000 * 0.30)
