"""The machine at hand as devices to predict for: its cores, its memory, its power limit."""

import math
from dataclasses import replace
from statistics import median, stdev
from typing import Any

import pytest

from advisor.catalog.overlay import load_catalog
from advisor.devices.local_device import local_devices
from advisor.predict.precision import autocast_precision
from advisor.records.device import Cpu, Device
from advisor.records.machine import LocalDevice
from advisor.records.price import Catalog
from tests.machines import gpu, machine
from tests.says import assert_says


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def cpu_of(catalog: Catalog, **changes: Any) -> LocalDevice:
    return local_devices(machine(**changes), catalog)[0]


def device_of(local: LocalDevice) -> Device:
    assert local.device is not None
    return local.device


def turin(identifier: str, *, clock_hz: float, gb_per_s: float) -> Cpu:
    """A CPU of Zen 5 Turin with one thread for each of its 100 cores."""
    return Cpu(
        id=identifier,
        name=identifier,
        vendor="AMD",
        generation="Zen 5 Turin",
        isa=("avx2", "avx512f", "avx512_bf16"),
        sustained_hz=clock_hz,
        cores_per_socket=100,
        threads_per_core=1,
        memory_bytes_per_s=gb_per_s * 1e9,
        source="by hand",
    )


def test_a_cpu_with_a_profile_has_the_cores_and_the_memory_that_are_here(catalog: Catalog) -> None:
    local = cpu_of(catalog)
    device = device_of(local)

    assert (local.id, local.note) == ("cpu", "")
    assert local.profile is catalog.cpus["amd-epyc-7763"]
    assert (device.id, device.core_count, device.memory_bytes) == ("amd-epyc-7763", 8.0, 32e9)
    assert device.log_spread == 0.0


def test_half_the_cores_have_half_the_peak(catalog: Catalog) -> None:
    eight, four = device_of(cpu_of(catalog)), device_of(cpu_of(catalog, core_count=4.0))

    assert four.peak_flops_per_s["fp32"] == pytest.approx(eight.peak_flops_per_s["fp32"] / 2)


def test_a_quota_of_one_and_a_half_cores_counts_to_the_hardware_thread(catalog: Catalog) -> None:
    assert device_of(cpu_of(catalog, core_count=1.5)).core_count == 1.5


def test_a_cpu_whose_name_is_hidden_is_the_median_of_its_generation_and_as_uncertain(catalog: Catalog) -> None:
    kin = [turin("a", clock_hz=3e9, gb_per_s=500), turin("b", clock_hz=4e9, gb_per_s=500),
           turin("c", clock_hz=4.5e9, gb_per_s=500)]  # fmt: skip
    small = replace(catalog, cpus={cpu.id: cpu for cpu in kin})
    hidden = {"cpu_name": "AMD EPYC", "cpu_signature": "AuthenticAMD 26 2", "isa": kin[0].isa}

    local = cpu_of(small, core_count=2.0, **hidden)
    device = device_of(local)

    # 2 cores x 4 GHz x 64 FLOP a cycle; the clocks are all that differs
    assert device.peak_flops_per_s["vector"] == pytest.approx(2 * median([3e9, 4e9, 4.5e9]) * 64)
    assert device.host_time_ratio == pytest.approx(1.0)  # the median: of 4 GHz
    assert device.log_spread == pytest.approx(stdev([math.log(3), math.log(4), math.log(4.5)]))
    assert (device.id, device.vendor, device.generation) == ("amd-epyc", "AMD", "Zen 5 Turin")
    assert local.profile is None
    assert_says(local.note, "no profile", "median", "3 CPUs", "Zen 5 Turin")


def test_the_median_of_a_generation_has_one_bandwidth_for_its_only_node(catalog: Catalog) -> None:
    kin = [turin(name, clock_hz=3e9, gb_per_s=speed) for name, speed in (("a", 900), ("b", 300), ("c", 600))]
    small = replace(catalog, cpus={cpu.id: cpu for cpu in kin})
    device = device_of(cpu_of(small, core_count=2.0, cpu_name="AMD EPYC", cpu_signature="AuthenticAMD 26 2",
                              isa=kin[0].isa))  # fmt: skip
    assert device.node_bytes_per_s == device.memory_bytes_per_s


def test_a_hidden_cpu_is_the_one_with_the_same_cache_but_as_uncertain_as_all(catalog: Catalog) -> None:
    kin = [turin("a", clock_hz=3e9, gb_per_s=500), turin("b", clock_hz=4e9, gb_per_s=500),
           replace(turin("c", clock_hz=4.5e9, gb_per_s=500), l3_bytes=480 * 2**20)]  # fmt: skip
    small = replace(catalog, cpus={cpu.id: cpu for cpu in kin})
    hidden = {"cpu_name": "AMD EPYC", "cpu_signature": "AuthenticAMD 26 2", "isa": kin[0].isa}

    local = cpu_of(small, core_count=2.0, l3_bytes=480.0 * 2**20, **hidden)
    other = cpu_of(small, core_count=2.0, l3_bytes=33.0 * 2**20, **hidden)

    assert device_of(local).peak_flops_per_s["vector"] == pytest.approx(2 * 4.5e9 * 64)
    assert device_of(local).log_spread == pytest.approx(stdev([math.log(3), math.log(4), math.log(4.5)]))
    assert (device_of(local).id, device_of(local).generation, local.profile) == ("amd-epyc", kin[2].generation, None)
    assert_says(local.note, "no profile", "480 MiB")
    assert device_of(other).peak_flops_per_s["vector"] == pytest.approx(2 * 4e9 * 64)


def test_clocks_that_the_machine_names_win_over_those_of_others(catalog: Catalog) -> None:
    kin = [turin(name, clock_hz=4e9, gb_per_s=500) for name in "abc"]
    small = replace(catalog, cpus={cpu.id: cpu for cpu in kin})
    hidden = {"cpu_name": "AMD EPYC", "cpu_signature": "AuthenticAMD 26 2", "isa": kin[0].isa}

    local = cpu_of(small, core_count=1.0, base_hz=2e9, boost_hz=3e9, **hidden)

    # 0.63 of the way from the base clock to the boost: 2.63 GHz
    assert device_of(local).peak_flops_per_s["vector"] == pytest.approx(2.63e9 * 64)


def test_a_cpu_unlike_all_others_is_not_predicted_and_says_why(catalog: Catalog) -> None:
    local = cpu_of(catalog, cpu_name="Loongson-3A6000", cpu_signature=None, isa=())

    assert (local.device, local.profile, local.name) == (None, None, "Loongson-3A6000")
    assert_says(local.note, "no profile", "too few")


def test_without_a_size_of_memory_nothing_is_predicted(catalog: Catalog) -> None:
    local = cpu_of(catalog, memory_bytes=None)

    assert local.device is None
    assert_says(local.note, "memory")


def test_a_gpu_has_its_own_memory_and_power_limit(catalog: Catalog) -> None:
    whole = gpu("NVIDIA A100-SXM4-40GB")
    capped = gpu("NVIDIA A100-SXM4-40GB", memory_bytes=39e9, power_limit_w=200.0)

    _, free = local_devices(machine(gpus=(whole,)), catalog)
    _, limited = local_devices(machine(gpus=(capped,)), catalog)

    assert free.profile is catalog.gpus["a100-sxm4-40gb"]
    assert device_of(limited).memory_bytes == 39e9
    assert device_of(limited).tdp_w == 200.0
    assert device_of(limited).power_ratio["fp16"] < device_of(free).power_ratio["fp16"]


def test_a_gpu_without_a_profile_is_not_predicted_and_says_why(catalog: Catalog) -> None:
    _, local = local_devices(machine(gpus=(gpu("NVIDIA GeForce RTX 4090 Laptop GPU"),)), catalog)

    assert (local.id, local.device, local.profile) == ("cuda:0", None, None)
    assert "it has no profile" in local.note


def test_the_gpu_of_a_mac_is_predicted_with_the_memory_that_torch_may_use(catalog: Catalog) -> None:
    mac = machine(cpu_name="Apple M3 Pro", gpus=(gpu("Apple M3 Pro 14-core GPU", id="mps", memory_bytes=12e9),))

    device = device_of(local_devices(mac, catalog)[1])

    # 14 cores of 128 lanes, 2 FLOP each, at 1.398 GHz: 5.010 TFLOP/s
    assert device.peak_flops_per_s["fp32"] == pytest.approx(14 * 128 * 2 * 1.398e9, rel=1e-3)
    assert (device.id, device.memory_bytes) == ("apple-m3-pro-14-core-gpu", 12e9)
    assert autocast_precision(device) is None  # 16 bits are no faster


def test_the_gpu_of_a_chip_that_is_not_known_is_not_predicted(catalog: Catalog) -> None:
    mac = machine(cpu_name="Apple M9", gpus=(gpu("Apple M9 12-core GPU", id="mps", memory_bytes=12e9),))

    local = local_devices(mac, catalog)[1]

    assert local.device is None
    assert_says(local.note, "no profile", "--profiles")
