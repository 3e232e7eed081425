import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.catalog.overlay import load_catalog
from advisor.errors import UsageError
from advisor.predict.capability import (
    cpu_device,
    cpu_memory_bytes_per_s,
    fleet_of,
    fp32_flops_per_cycle,
    gpu_device,
    sustained_clock_hz,
    whole_cpu_device,
)
from advisor.records.device import Cpu, Device, Gpu, MeasuredBandwidth
from advisor.records.price import Offer


def a_gpu(**changes: object) -> Gpu:
    values = {
        "id": "t4",
        "name": "Tesla T4",
        "vendor": "NVIDIA",
        "generation": "Turing",
        "sm_count": 40,
        "boost_hz": 1.59e9,
        "memory_bytes": 16e9,
        "memory_bytes_per_s": 320e9,
        "fp32_flops_per_s": 8e12,
        "source": "by hand",
    }
    return Gpu(**(values | changes))  # type: ignore[arg-type]


def a_cpu(**changes: object) -> Cpu:
    values = {
        "id": "xeon",
        "name": "Xeon",
        "vendor": "Intel",
        "generation": "Ice Lake-SP",
        "isa": ("avx2", "avx512f"),
        "sustained_hz": 3e9,
        "cores_per_socket": 32,
        "threads_per_core": 2,
        "memory_bytes_per_s": 200e9,
        "l3_bytes": 64e6,
        "source": "by hand",
    }
    return Cpu(**(values | changes))  # type: ignore[arg-type]


def an_offer(**changes: object) -> Offer:
    values = {
        "id": "acme/here/m8",
        "provider": "acme",
        "tier": "hyperscaler",
        "region": "here",
        "geo": "US",
        "instance": "m8",
        "vcpus": 8,
        "threads_per_core": 2,
        "memory_bytes": 32e9,
        "cpu": "xeon",
        "gpu": None,
        "gpu_count": 0,
        "prices": (),
    }
    return Offer(**(values | changes))  # type: ignore[arg-type]


def rented(cpu: Cpu, offer: Offer) -> Device | None:
    """The instance's device."""
    return next(iter(fleet_of([offer], gpus={}, cpus={"xeon": cpu}).devices), None)


def test_a_vcpu_is_half_a_core_where_a_core_runs_two_threads() -> None:
    device = rented(a_cpu(), an_offer())
    assert device is not None
    assert device.core_count == 4  # 8 vCPU / 2
    assert device.peak_flops_per_s["fp32"] == pytest.approx(
        4 * 0.7 * 3e9 * 64
    )  # cores x AVX-512's clock x FLOP per cycle
    assert device.peak_flops_per_s["fp64"] == pytest.approx(4 * 0.7 * 3e9 * 32)


def test_an_intel_that_computes_at_256_bits_keeps_its_clock() -> None:
    """Rocket Lake has the instructions, and is in no table of those with 512-bit units."""
    device = rented(a_cpu(generation="Rocket Lake", isa=("avx2", "avx512f")), an_offer())
    assert device is not None
    assert device.peak_flops_per_s["fp32"] == pytest.approx(4 * 3e9 * 32)


def test_an_amd_keeps_its_clock_at_512_bits() -> None:
    device = rented(a_cpu(vendor="AMD", generation="Zen 5 Turin"), an_offer())
    assert device is not None
    assert device.peak_flops_per_s["vector"] == pytest.approx(4 * 3e9 * 64)


@pytest.mark.parametrize(
    ("changes", "ratio"),
    [
        ({"vendor": "AMD", "generation": "Zen 5 Turin"}, 0.5),
        ({"vendor": "AMD", "generation": "Zen 4 Genoa"}, 1.0),
        ({}, 1.0),
    ],
)
def test_products_in_fp32_use_half_the_vector_of_an_amd_with_512_bits(changes: dict[str, Any], ratio: float) -> None:
    device = rented(a_cpu(**changes), an_offer())
    assert device is not None
    assert device.peak_flops_per_s["fp32"] == pytest.approx(ratio * device.peak_flops_per_s["vector"])


def test_a_vcpu_is_a_core_where_threads_are_off() -> None:
    device = rented(a_cpu(), an_offer(threads_per_core=1))
    assert device is not None
    assert device.core_count == 8


@pytest.mark.parametrize(("clock_hz", "ratio"), [(4e9, 1.0), (2e9, 2.0)])
def test_a_slower_core_takes_longer_for_the_same_code(clock_hz: float, ratio: float) -> None:
    device = rented(a_cpu(sustained_hz=clock_hz), an_offer())

    assert device is not None
    assert device.host_time_ratio == ratio


def test_a_gpus_host_takes_longer_the_slower_its_clock() -> None:
    known = gpu_device(a_gpu(), host=a_cpu(sustained_hz=3.2e9))
    assert (known.host_cpu, known.host_time_ratio) == ("xeon", 1.25)  # 4 / 3.2 GHz
    for host in (None, a_cpu(sustained_hz=None, base_hz=None)):
        unknown = gpu_device(a_gpu(), host=host)
        assert (unknown.host_cpu, unknown.host_time_ratio) == (None, 1.0)


def test_one_gpu_behind_two_hosts_is_two_devices() -> None:
    offers = [an_offer(gpu="t4", gpu_count=1, cpu=cpu) for cpu in ("xeon", None, "xeon")]
    fleet = fleet_of(offers, gpus={"t4": a_gpu()}, cpus={"xeon": a_cpu()})
    assert fleet.device_index.tolist() == [0, 1, 0]
    assert [device.host_cpu for device in fleet.devices] == ["xeon", None]


def test_a_peak_rests_on_the_base_clock_where_no_other_is_known() -> None:
    device = rented(a_cpu(sustained_hz=None, base_hz=2e9), an_offer())
    assert device is not None
    assert device.peak_flops_per_s["fp32"] == pytest.approx(4 * 0.7 * 1.29 * 2e9 * 64)


@pytest.mark.parametrize(
    ("clocks", "sustained"),
    [
        ({"sustained_hz": 3e9, "base_hz": 2e9, "boost_hz": 4e9}, 3e9),  # as published
        ({"base_hz": 2e9, "boost_hz": 4e9}, 3.26e9),  # 2 + 0.63 x (4 - 2)
        ({"base_hz": 2e9}, 2.58e9),  # 1.29 x 2
        ({"base_hz": 2e9, "isa": ("asimd", "sve")}, 2e9),
        ({"boost_hz": 4e9}, None),
        ({}, None),
    ],
)
def test_a_clock_that_nobody_published_is_estimated_from_those_that_are(
    clocks: dict[str, Any], sustained: float | None
) -> None:
    assert sustained_clock_hz(a_cpu(**({"sustained_hz": None} | clocks))) == pytest.approx(sustained)


def test_the_shipped_cpus_lie_where_the_estimate_says_at_their_median() -> None:
    cpus = [cpu for cpu in load_catalog().cpus.values() if cpu.sustained_hz and cpu.base_hz and cpu.boost_hz]
    shares = [
        (cpu.sustained_hz - cpu.base_hz) / (cpu.boost_hz - cpu.base_hz)
        for cpu in cpus
        if cpu.sustained_hz and cpu.base_hz and cpu.boost_hz and cpu.boost_hz > cpu.base_hz
    ]
    estimated = sustained_clock_hz(a_cpu(sustained_hz=None, base_hz=1.0, boost_hz=2.0))
    assert estimated == pytest.approx(1 + median(shares), abs=0.02)


def test_the_shipped_x86_cpus_run_at_that_much_of_their_base_clock_at_their_median() -> None:
    cpus = [cpu for cpu in load_catalog().cpus.values() if "asimd" not in cpu.isa]
    ratios = [cpu.sustained_hz / cpu.base_hz for cpu in cpus if cpu.sustained_hz and cpu.base_hz]

    assert sustained_clock_hz(a_cpu(sustained_hz=None, base_hz=1.0)) == pytest.approx(median(ratios), abs=0.02)


def test_a_cpus_cache_gives_16_bytes_per_cycle_to_every_core() -> None:
    device = rented(a_cpu(l2_bytes_per_core=2e6), an_offer())
    assert device is not None
    assert device.cache_bytes == 64e6 * 4 / 32 + 4 * 2e6  # 4 of 32 cores
    assert device.cache_bytes_per_s == 16 * 4 * 3e9


def test_measured_figures_of_its_own_go_with_the_device() -> None:
    own = {"sustained_compute_ratio": 0.9, "sustained_memory_ratio": 0.8}
    for device in (gpu_device(a_gpu(**own)), rented(a_cpu(**own), an_offer())):
        assert device is not None
        assert (device.sustained_compute_ratio, device.sustained_memory_ratio) == (0.9, 0.8)
    assert gpu_device(a_gpu()).sustained_compute_ratio == 1.0


def test_a_gpu_is_limited_by_its_power_and_its_kind_of_memory() -> None:
    # 8 TFLOPS at Turing's 18.6 pJ per FLOP would draw 148.8 W.
    device = gpu_device(a_gpu(compute_capability="7.5", tdp_w=74.4, memory_type="GDDR6"))
    assert device.power_ratio == {"fp32": pytest.approx(0.5)}
    assert device.streaming_ratio == 0.80
    assert not device.exceeds_rated_clock
    assert gpu_device(a_gpu(name="GeForce RTX 3090")).exceeds_rated_clock


@pytest.mark.parametrize(
    ("generation", "flops"),
    [("Zen 2 Rome", 32), ("Zen 4 Genoa-X", 32), ("Zen 5 Turin", 64), ("Neoverse N1", 16), ("Neoverse V2", 32)],
)
def test_the_generation_sets_the_simd_width(generation: str, flops: float) -> None:
    assert fp32_flops_per_cycle(a_cpu(generation=generation)) == flops


def test_an_unknown_generation_is_taken_for_the_narrowest_core_with_its_instructions() -> None:
    assert fp32_flops_per_cycle(a_cpu(generation="Lake of Tomorrow", isa=("avx2", "avx512f"))) == 32
    assert fp32_flops_per_cycle(a_cpu(generation="Core of Tomorrow", isa=("asimd",))) == 16
    assert fp32_flops_per_cycle(a_cpu(generation="", isa=())) == 8


@pytest.mark.parametrize(
    ("isa", "flops_per_cycle"),
    [(("avx2", "amx_bf16", "avx512_bf16"), 1024), (("avx2", "avx512_bf16"), 128), (("avx2", "bf16"), None)],
)
def test_an_x86_cpu_has_bf16_only_with_amx_or_avx512_bf16(isa: tuple[str, ...], flops_per_cycle: float | None) -> None:
    device = rented(a_cpu(isa=isa), an_offer())
    assert device is not None
    # cores x AVX-512's clock x FLOP per cycle, with AVX512-BF16 2 x 64
    expected = None if flops_per_cycle is None else pytest.approx(4 * 0.7 * 3e9 * flops_per_cycle)
    assert device.peak_flops_per_s.get("bf16") == expected
    assert device.has_matrix_unit == ("amx_bf16" in isa)


def test_avx512_lowers_the_clock_less_from_sapphire_rapids_on() -> None:
    earlier, later = (rented(a_cpu(isa=isa), an_offer()) for isa in (("avx512f",), ("avx512f", "avx512_fp16")))
    assert earlier is not None
    assert later is not None
    assert later.peak_flops_per_s["fp32"] / earlier.peak_flops_per_s["fp32"] == pytest.approx(0.92 / 0.7)
    assert later.host_time_ratio == earlier.host_time_ratio  # that of loops over single elements, too


def test_arm_cores_whose_features_have_bf16_multiply_in_it_at_twice_the_rate_of_fp32() -> None:
    graviton4 = a_cpu(vendor="AWS", generation="Neoverse V2", isa=("asimd", "sve", "bf16"))
    device, older = (rented(one, an_offer()) for one in (graviton4, replace(graviton4, isa=("asimd", "sve"))))
    assert device is not None
    assert older is not None
    # 4 cores at 3 GHz; 4 pipes of 128 bit do 32 FLOP in fp32
    assert device.peak_flops_per_s["bf16"] == pytest.approx(4 * 3e9 * 2 * 32)
    assert "bf16" not in older.peak_flops_per_s


def test_a_cpu_instance_of_unknown_size_or_clock_is_no_device() -> None:
    assert rented(a_cpu(), an_offer(vcpus=None)) is None
    assert rented(a_cpu(), an_offer(memory_bytes=None)) is None
    assert rented(a_cpu(sustained_hz=None), an_offer()) is None


def test_bandwidth_measured_on_the_instance_wins() -> None:
    device = rented(a_cpu(), an_offer(measured_read_bytes_per_s=55e9))
    assert device is not None
    assert device.memory_bytes_per_s == 55e9


def test_bandwidth_between_two_measured_sizes_follows_their_power_law() -> None:
    cpu = a_cpu(measured_read_bytes_per_s_8_vcpu=50e9, measured_read_bytes_per_s_largest=200e9, largest_vcpu_count=128)
    # 16 times the vCPUs give 4 times the bandwidth, so the exponent is 1/2: 32 vCPU = 4 x 8 give 2 x 50 GB/s.
    assert cpu_memory_bytes_per_s(cpu, cores=16) == pytest.approx(100e9)
    # 128 vCPUs are two sockets of 32 cores, so 256 have twice as much; on one socket they have no more.
    assert cpu_memory_bytes_per_s(cpu, cores=128) == pytest.approx(400e9)
    assert cpu_memory_bytes_per_s(replace(cpu, cores_per_socket=128), cores=128) == pytest.approx(200e9)
    assert cpu_memory_bytes_per_s(cpu, cores=1) == pytest.approx(50e9 * 2 / 8)  # a core has a limit of its own
    # A core of AMD draws as much as 8 vCPUs do, which share one link between their die and the memory.
    assert cpu_memory_bytes_per_s(replace(cpu, vendor="AMD"), cores=1) == pytest.approx(50e9)


def bandwidths(*sizes: tuple[float, float]) -> tuple[MeasuredBandwidth, ...]:
    return tuple(MeasuredBandwidth(cores=cores, read_bytes_per_s=rate) for cores, rate in sizes)


def test_bandwidth_is_interpolated_between_the_measured_instances_of_a_cpu() -> None:
    cpu = a_cpu(
        measured=bandwidths((1, 20e9), (4, 40e9), (16, 90e9), (32, 60e9)),
        measured_read_bytes_per_s_8_vcpu=1e9,  # also of 4 cores
        measured_read_bytes_per_s_largest=320e9,
        largest_vcpu_count=256,
    )
    # Fourfold cores give twice the bandwidth: 2 of 1 to 4 cores have 20 x sqrt(2) GB/s.
    assert cpu_memory_bytes_per_s(cpu, cores=2) == pytest.approx(20e9 * math.sqrt(2))
    assert cpu_memory_bytes_per_s(cpu, cores=4) == pytest.approx(40e9)
    assert cpu_memory_bytes_per_s(cpu, cores=0.5) == pytest.approx(10e9)
    assert cpu_memory_bytes_per_s(cpu, cores=32) == pytest.approx(90e9)  # no larger size is slower
    assert cpu_memory_bytes_per_s(cpu, cores=128) == pytest.approx(320e9)


def test_threads_per_core_that_differ_between_instances_leave_only_their_own_bandwidth() -> None:
    cpu = a_cpu(
        threads_per_core=None,
        measured=bandwidths((4, 40e9), (16, 160e9)),
        measured_read_bytes_per_s_8_vcpu=40e9,  # of 4 or of 8 cores
    )
    assert cpu_memory_bytes_per_s(cpu, cores=8) == pytest.approx(80e9)


def test_shipped_instances_of_amd_have_no_less_bandwidth_than_a_measured_one_of_the_same_cpu_and_size() -> None:
    # c4d-standard-2, c4d-highcpu-2 and c4d-highmem-8 measure 45.6, 48.5 and 50.7 GB/s.
    catalog = load_catalog()
    found = {
        offer.instance: fleet_of([offer], gpus=catalog.gpus, cpus=catalog.cpus).devices[0].memory_bytes_per_s
        for offer in catalog.offers
        if offer.instance in ("c4d-standard-2", "c4d-highmem-2", "c4d-highcpu-4", "c4d-standard-8")
    }
    assert found["c4d-highmem-2"] == pytest.approx((45.6e9 + 48.5e9) / 2)
    assert found["c4d-standard-2"] <= found["c4d-highcpu-4"] <= found["c4d-standard-8"] == pytest.approx(50.7e9)


def test_bandwidth_without_measurements_is_more_than_the_share_of_the_socket() -> None:
    # 0.8 of 200 GB/s for all cores; 8 of 32 get 0.25 ^ 0.6 = 0.4353 of that.
    assert cpu_memory_bytes_per_s(a_cpu(), cores=8) == pytest.approx(69.64e9, rel=1e-3)
    assert cpu_memory_bytes_per_s(a_cpu(), cores=32) == pytest.approx(160e9)


def test_sockets_add_up_their_bandwidth_and_caches() -> None:
    # 96 vCPUs are 48 cores: three quarters of two sockets, of 160 GB/s and 64 MB each; 1 MB of L2 a core.
    device = cpu_device(a_cpu(l2_bytes_per_core=1e6), vcpus=96, memory_bytes=1e12)
    assert device is not None
    assert device.memory_bytes_per_s == pytest.approx(2 * 160e9 * 0.75**0.6)
    assert device.node_bytes_per_s == pytest.approx(160e9 * 0.75**0.6)
    assert (device.numa_nodes, device.cache_bytes) == (2, pytest.approx(1.5 * 64e6 + 48e6))


@given(
    st.integers(1, 256),
    st.integers(1, 256),
    st.sampled_from(["AMD", "Intel"]),
    st.dictionaries(st.integers(1, 32), st.floats(1e9, 1e11), max_size=4),
)
def test_more_cores_never_have_less_bandwidth(first: int, second: int, vendor: str, sizes: Mapping[int, float]) -> None:
    fewer, more = sorted((first, second))
    cpu = a_cpu(vendor=vendor, measured=bandwidths(*sorted(sizes.items())))
    assert cpu_memory_bytes_per_s(cpu, cores=fewer) <= cpu_memory_bytes_per_s(cpu, cores=more) * (1 + 1e-12)


def test_a_gpu_has_the_units_its_profile_names_and_the_narrow_ones_of_its_generation() -> None:
    peaks = gpu_device(a_gpu(fp16_tensor_flops_per_s=65e12, fp64_flops_per_s=0.25e12)).peak_flops_per_s
    assert peaks == {"vector": 8e12, "fp32": 8e12, "fp64": 0.25e12, "fp16": 65e12, "int8": 130e12}
    assert "int8" not in gpu_device(a_gpu()).peak_flops_per_s  # as a GTX 1660, which has no tensor cores


def test_narrow_units_of_shipped_devices_have_the_rates_of_their_data_sheets() -> None:
    # Dense TOPS: A100 624, L40S 733, L40 362, H100 SXM 1,979, RTX 4090 660 in int8 and 330 in fp8, B200 4,500 and
    # 9,000, MI300X 2,615. AMX multiplies 2,048 pairs of bytes a cycle, AVX-512 VNNI 4 x 16 x 2, SMMLA twice as many as
    # BFMMLA.
    catalog = load_catalog()
    for name, unit, tops in (
        ("a100-sxm4-80gb", "int8", 624),
        ("l40s", "fp8", 733),
        ("l40", "int8", 362),
        ("h100-sxm5-80gb", "fp8", 1979),
        ("rtx-4090", "int8", 660),
        ("rtx-4090", "fp8", 330),
        ("b200", "fp8", 4500),
        ("b200", "fp4", 9000),
        ("mi300x", "fp8", 2615),
    ):
        assert gpu_device(catalog.gpus[name]).peak_flops_per_s[unit] == pytest.approx(tops * 1e12, rel=0.01), name
    for name, wide, ratio in (
        ("intel-xeon-platinum-8573c", "bf16", 2),
        ("intel-xeon-platinum-8370c", "vector", 4),
        ("azure-cobalt-100", "bf16", 2),
        ("ampere-altra", "vector", 4),
    ):
        peaks = whole_cpu_device(catalog.cpus[name], cores=1).peak_flops_per_s
        assert peaks["int8"] == pytest.approx(ratio * peaks[wide]), name
    for name in ("amd-epyc-7763", "intel-xeon-gold-6148"):  # AVX2, and AVX-512 without VNNI
        assert "int8" not in whole_cpu_device(catalog.cpus[name], cores=1).peak_flops_per_s, name


def test_a_token_fp16_rate_is_no_unit_but_packed_halves_are() -> None:
    assert "fp16" not in gpu_device(a_gpu(fp16_flops_per_s=8e12 / 64)).peak_flops_per_s  # Tesla P4
    assert gpu_device(a_gpu(fp16_flops_per_s=16e12)).peak_flops_per_s["fp16"] == 16e12  # Tesla P100


def test_a_copy_runs_at_the_instances_rate_then_the_profiles_then_a_share_of_pcie() -> None:
    gpu = a_gpu(host_to_device_bytes_per_s=12e9, pcie_bytes_per_s=16e9)
    assert gpu_device(gpu, host_to_device_bytes_per_s=6.3e9).host_to_device_bytes_per_s == 6.3e9
    assert gpu_device(gpu).host_to_device_bytes_per_s == 12e9
    assert gpu_device(a_gpu(pcie_bytes_per_s=10e9)).host_to_device_bytes_per_s == 0.43 * 10e9
    # PCIe 5.0, as on an H200.
    assert gpu_device(a_gpu(pcie_bytes_per_s=63e9)).host_to_device_bytes_per_s == 0.88 * 63e9


def test_offers_of_one_device_share_it() -> None:
    offers = [
        an_offer(id="a"),
        an_offer(id="b", region="there"),
        an_offer(id="c", vcpus=16),
        an_offer(id="d", gpu="t4", gpu_count=1),
        an_offer(id="e", gpu="t4", gpu_count=1, region="there", memory_bytes=None),
        an_offer(id="f", gpu="t4", gpu_count=1, vcpus=64),  # more of them load its data
    ]
    fleet = fleet_of(offers, gpus={"t4": a_gpu()}, cpus={"xeon": a_cpu()})
    assert fleet.device_index.tolist() == [0, 0, 1, 2, 2, 3]
    assert [(device.kind, device.vcpu_count) for device in fleet.devices] == [
        ("cpu", 8), ("cpu", 16), ("gpu", 8), ("gpu", 64),
    ]  # fmt: skip


def test_an_offer_without_a_device_says_why() -> None:
    offers = [an_offer(gpu="b1000", gpu_count=1), an_offer(memory_bytes=None), an_offer(cpu="riddle")]
    fleet = fleet_of(offers, gpus={}, cpus={"xeon": a_cpu()})
    assert fleet.device_index.tolist() == [-1, -1, -1]
    assert "b1000" in fleet.problems[0]
    assert "memory" in fleet.problems[1]
    assert "riddle" in fleet.problems[2]


def test_machines_with_more_gpus_are_devices_of_their_own() -> None:
    gpu = a_gpu(compute_capability="8.0", nvlink_bytes_per_s=600e9, nvlink_reach="machine")
    one, eight = an_offer(gpu="t4", gpu_count=1), an_offer(gpu="t4", gpu_count=8, network_bytes_per_s=5e10)
    found = fleet_of([one, eight, eight], gpus={"t4": gpu}, cpus={})
    assert found.device_index.tolist() == [0, 1, 1]
    alone, among = found.devices
    assert (alone.gpu_count, alone.nvlink_bytes_per_s, alone.network_bytes_per_s) == (1, None, None)
    # Half of both directions, and 0.8 of that.
    assert (among.gpu_count, among.network_bytes_per_s) == (8, 5e10)
    assert among.nvlink_bytes_per_s == pytest.approx(240e9)


# A CPU by itself


def test_a_cpu_by_itself_has_all_its_cores_bandwidth_and_cache() -> None:
    device = whole_cpu_device(a_cpu(), cores=None)
    # Reads by all cores reach 0.8 of the rated 200 GB/s.
    assert (device.core_count, device.memory_bytes_per_s, device.cache_bytes) == (32, pytest.approx(160e9), 64e6)


def test_a_part_of_it_has_its_share() -> None:
    # 8 of 32 cores, with two threads each: a quarter of the cache, and 0.25 ^ 0.6 = 0.4353 of the bandwidth.
    whole, part = whole_cpu_device(a_cpu(), cores=None), whole_cpu_device(a_cpu(), cores=8)
    assert (part.core_count, part.memory_bytes_per_s, part.cache_bytes) == (8, pytest.approx(69.64e9, rel=1e-3), 16e6)
    assert part.peak_flops_per_s["fp32"] == pytest.approx(whole.peak_flops_per_s["fp32"] / 4)


def test_the_bandwidth_of_a_part_follows_what_was_measured_of_its_size() -> None:
    # 100 GB/s at 8 vCPU and 200 at 64: doubling per factor 8. 4 cores are 8 vCPU.
    cpu = a_cpu(measured_read_bytes_per_s_8_vcpu=100e9, measured_read_bytes_per_s_largest=200e9, largest_vcpu_count=64)
    assert whole_cpu_device(cpu, cores=4).memory_bytes_per_s == pytest.approx(100e9)


def test_cores_on_one_socket_have_at_most_its_rated_bandwidth() -> None:
    # A measured instance with as many cores has some of them on another socket.
    cpu = a_cpu(measured=bandwidths((4, 50e9), (32, 300e9)))
    assert whole_cpu_device(cpu, cores=None).memory_bytes_per_s == whole_cpu_device(cpu, cores=32).memory_bytes_per_s
    assert whole_cpu_device(cpu, cores=32).memory_bytes_per_s == pytest.approx(200e9)
    device = rented(cpu, an_offer(vcpus=64))
    assert device is not None
    assert device.memory_bytes_per_s == pytest.approx(300e9)


def test_a_bandwidth_measured_at_that_size_wins() -> None:
    assert whole_cpu_device(a_cpu(), cores=8, measured_bytes_per_s=90e9).memory_bytes_per_s == 90e9


@pytest.mark.parametrize("cores", [0, 33])
def test_more_or_fewer_cores_than_there_are_are_refused(cores: int) -> None:
    with pytest.raises(UsageError, match=f"has 32 cores, not {cores}"):
        whole_cpu_device(a_cpu(), cores=cores)


def test_a_profile_without_cores_or_clock_is_refused() -> None:
    with pytest.raises(UsageError, match="has no core count"):
        whole_cpu_device(a_cpu(cores_per_socket=None), cores=None)
    with pytest.raises(UsageError, match="has no clock"):
        whole_cpu_device(a_cpu(sustained_hz=None, base_hz=None), cores=None)
