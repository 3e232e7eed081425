import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.catalog.device_files import (
    MeasuredInstance,
    read_cpu_powers,
    read_cpus,
    read_efficiencies,
    read_engines,
    read_gpus,
    read_measured_instances,
    read_single,
    with_measured_bandwidth,
    with_reported_names,
)
from advisor.catalog.overlay import shipped_profiles
from advisor.errors import ProfileError
from advisor.records.device import FamilyEfficiency, MeasuredBandwidth
from advisor.records.energy import GpuPower
from advisor.records.price import Catalog, Offer

GPU = """\
id: toy
name: Toy 9000
vendor: NVIDIA
generation: Ampere
sm_count: 10
boost_mhz: 1500
memory_gib: 16
memory_gb_per_s: 300
fp32_tflops: 10
tdp_w: 300
source: made up
"""
CPU = "id: toy-cpu\nname: Toy CPU\nvendor: AMD\ngeneration: Zen 4\nmemory_gb_per_s: 400\nsource: made up\n"


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_what_cloud_instances_show_of_a_gpu_replaces_what_it_was_sold_as(tmp_path: Path) -> None:
    file = write(tmp_path, "toy.yaml", GPU)
    measured = write(
        tmp_path, "measured.yaml", "toy: {visible_memory_mib: 15360, power_limit_w: 250, host_to_device_gb_per_s: 6.3}"
    )
    sold = read_gpus([file], measured=None)["toy"]
    seen = read_gpus([file], measured=measured)["toy"]
    # 16 GiB = 17,179,869,184 bytes; 15,360 MiB = 15,360 x 1,048,576 = 16,106,127,360 bytes
    assert (sold.memory_bytes, sold.tdp_w, sold.host_to_device_bytes_per_s) == (17179869184.0, 300.0, None)
    assert (seen.memory_bytes, seen.tdp_w, seen.host_to_device_bytes_per_s) == (16106127360.0, 250.0, 6.3e9)


def test_a_measurement_of_a_gpu_that_has_no_profile_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "toy.yaml", GPU)
    measured = write(tmp_path, "measured.yaml", "# one\ntoi: {power_limit_w: 250}")
    with pytest.raises(ProfileError, match=r"measured.yaml:2: toi: unknown GPU") as caught:
        read_gpus([file], measured=measured)
    assert caught.value.hint == "did you mean toy?"


def test_two_files_cannot_have_one_id(tmp_path: Path) -> None:
    files = [write(tmp_path, "a.yaml", GPU), write(tmp_path, "b.yaml", GPU)]
    with pytest.raises(ProfileError, match=r"b\.yaml:1: id: 'toy'"):
        read_gpus(files, measured=None)


def test_a_cpu_takes_what_its_file_leaves_out_from_what_was_measured(tmp_path: Path) -> None:
    file = write(tmp_path, "toy.yaml", CPU + "base_ghz: 3\n")
    measured = write(tmp_path, "measured.yaml", "toy-cpu: {isa: [avx2], base_ghz: 2.5, l3_mib: 32}")
    cpu = read_cpus([file], measured=measured)["toy-cpu"]
    assert (cpu.isa, cpu.base_hz, cpu.l3_bytes) == (("avx2",), 3e9, 32 * 2**20)
    assert cpu.source == "made up; SpareCores (CC BY-SA 4.0)"


def test_a_cpu_without_instruction_sets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"toy.yaml:1: isa is missing"):
        read_cpus([write(tmp_path, "toy.yaml", CPU)], measured=None)


def test_a_reported_name_must_belong_to_a_cpu_that_there_is(tmp_path: Path) -> None:
    cpus = read_cpus([write(tmp_path, "toy.yaml", CPU + "isa: [avx2]\n")], measured=None)
    good = write(tmp_path, "good.yaml", "Toy(R) CPU @ 3GHz: toy-cpu\n")
    bad = write(tmp_path, "bad.yaml", "Toy(R) CPU @ 3GHz: toy-cpi\n")
    assert with_reported_names(cpus, file=good)["toy-cpu"].aliases == ("Toy(R) CPU @ 3GHz",)
    with pytest.raises(ProfileError, match="no profile describes 'toy-cpi'"):
        with_reported_names(cpus, file=bad)


def test_a_cpu_has_the_median_bandwidth_of_its_measured_instances_of_each_size(
    shipped: Catalog, tmp_path: Path
) -> None:
    text = CPU + "isa: [avx2]\nthreads_per_core: 2\n"
    cpus = read_cpus([write(tmp_path, "toy.yaml", text)], measured=None)
    offer = next(one for one in shipped.offers if one.gpu is None)

    def rented(instance: str, vcpus: int, rate: float | None, **changes: Any) -> Offer:
        machine = {"instance": instance, "vcpus": vcpus, "cpu": "toy-cpu", "threads_per_core": None}
        return replace(offer, measured_read_bytes_per_s=rate, **(machine | changes))

    offers = [
        rented("a", 2, 30e9), rented("a", 2, 30e9, region="elsewhere"), rented("b", 2, 40e9),
        rented("one thread per core", 1, 60e9, threads_per_core=1),
        rented("c", 8, 90e9), rented("not measured", 16, None),
        rented("with a GPU", 8, 10e9, gpu="t4"), rented("another CPU", 8, 10e9, cpu="amd-epyc-7763"),
    ]  # fmt: skip
    # One core, as 2 vCPUs or as 1: 30, 40 and 60 GB/s.
    expected = (
        MeasuredBandwidth(cores=1, read_bytes_per_s=40e9),
        MeasuredBandwidth(cores=4, read_bytes_per_s=90e9),
    )
    assert with_measured_bandwidth(cpus, offers)["toy-cpu"].measured == expected
    own = write(tmp_path, "own.yaml", f"{text}measured: [{{cores: 2, read_gb_per_s: 50}}]\n")
    (cpu,) = with_measured_bandwidth(read_cpus([own], measured=None), offers).values()
    assert cpu.measured == (MeasuredBandwidth(cores=2, read_bytes_per_s=50e9),)


def test_an_efficiency_file_is_read_with_its_families(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "efficiency.yaml",
        "kind: gpu\nvendor: NVIDIA\ngeneration: Ampere\nprecision: fp32\ndispatch_s: 5e-6\n"
        "backward_dispatch_s: 4e-6\nlaunch_s: 0\n"
        "device_log_spread: 0.1\ndate: 2026-09-01\nsource: made up\nfitted_on: [T4]\n"
        'families:\n  "*": {compute_ratio: 0.9, memory_ratio: 0.8, log_spread: 0.1, n: 0, source: made up}\n',
    )
    (efficiency,) = read_efficiencies([file])
    assert efficiency.families == {
        "*": FamilyEfficiency(compute_ratio=0.9, memory_ratio=0.8, log_spread=0.1, n=0, source="made up")
    }
    assert (efficiency.dispatch_s, efficiency.launch_s, efficiency.fitted_on) == (5e-6, 0.0, ("T4",))


def test_an_efficiency_of_zero_is_refused(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "efficiency.yaml",
        "kind: gpu\nvendor: NVIDIA\nfamilies:\n  conv: {compute_ratio: 0, memory_ratio: 1, log_spread: 0, n: 1}\n",
    )
    with pytest.raises(ProfileError, match=r"efficiency.yaml:4: families.conv.compute_ratio: expected a number"):
        read_efficiencies([file])


def test_an_efficiency_that_nothing_stands_in_for_other_families_is_refused(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "efficiency.yaml",
        "kind: gpu\nvendor: NVIDIA\ngeneration: Ampere\nprecision: fp32\ndispatch_s: 5e-6\n"
        "backward_dispatch_s: 4e-6\nlaunch_s: 0\n"
        "device_log_spread: 0.1\ndate: 2026-09-01\nsource: made up\nfitted_on: [T4]\n"
        "families:\n  matmul: {compute_ratio: 0.9, memory_ratio: 0.8, log_spread: 0.1, n: 0, source: made up}\n",
    )
    with pytest.raises(ProfileError, match=r"efficiency.yaml:12: families: no entry '\*'"):
        read_efficiencies([file])


def test_measured_instances_are_in_base_units_by_provider_and_type(tmp_path: Path) -> None:
    file = write(tmp_path, "instances.yaml", "aws:\n  c8g.2xlarge: {cpu: Neoverse-V2, read_gb_per_s: 193.2}\n")
    assert read_measured_instances(file) == {
        ("aws", "c8g.2xlarge"): MeasuredInstance(cpu="Neoverse-V2", read_bytes_per_s=193.2e9)
    }


def test_a_file_of_one_record_may_be_commented_out_but_has_no_second_document(tmp_path: Path) -> None:
    shipped = (shipped_profiles() / "energy" / "gpu_power.yaml").read_text()
    assert read_single(GpuPower, write(tmp_path, "empty.yaml", "# nothing yet\n")) is None
    first = write(tmp_path, "one.yaml", shipped)
    assert read_single(GpuPower, first) is not None
    two = write(tmp_path, "two.yaml", f"{shipped}---\nidle_ratio: 0.1\n")
    with pytest.raises(ProfileError, match=rf"two.yaml:{len(shipped.splitlines()) + 2}: a second document"):
        read_single(GpuPower, two)


def test_the_watts_of_servers_name_those_of_other_cpus(tmp_path: Path) -> None:
    line = "{idle_w_per_core: 1.4, busy_w_per_core: 7.4, log_spread: 0.3, source: x}"
    file = write(tmp_path, "cpu_power.yaml", f"unknown_vcpus_per_gpu: 16\ncpus:\n  Zen 4: {line}\n")
    with pytest.raises(ProfileError, match=r"no entry '\*'"):
        read_cpu_powers(file)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("avx2", "costs: avx2 is missing"),
        ("gpu", "is missing"),
        ("large_gpu", "limits: large_gpu is missing"),
        ("avx512_bf16", None),
    ],
)
def test_an_engine_without_limits_or_costs_of_a_kind_of_device_is_refused(
    tmp_path: Path, line: str, message: str | None
) -> None:
    values = (shipped_profiles() / "engines" / "vllm.yaml").read_text()
    # Its own block, or line, below `limits` or `costs`, without those that are indented further.
    cut = re.sub(rf"^  {line}:.*\n(?:    .*\n)*", "", values, flags=re.MULTILINE)
    assert cut != values
    file = write(tmp_path, "mine.yaml", cut)
    if message is None:
        assert line not in read_engines([file])["vllm"].costs
        return
    with pytest.raises(ProfileError, match=message):
        read_engines([file])
