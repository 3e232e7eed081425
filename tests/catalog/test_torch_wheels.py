from dataclasses import replace

import pytest

from advisor.catalog.overlay import load_catalog, shipped_profiles
from advisor.catalog.torch_wheels import TorchRelease, TorchWheels, WheelCode, read_torch_wheels, with_wheels
from advisor.records.device import Architecture
from advisor.records.price import TorchWheel
from tests.cost.toys import offer

TOY = TorchWheels(
    releases={
        "3.1": TorchRelease(cuda={"13.2": WheelCode(x86="7.5 12.0+PTX", arm="9.0")}, pypi_x86="13.2", source="toy"),
        "3.0": TorchRelease(cuda={"12.6": WheelCode(x86="5.0"), "12.8": WheelCode(x86="5.0 7.0")}, source="toy"),
    }
)


@pytest.mark.parametrize(
    ("capability", "architecture", "found"),
    [
        ("7.5", "x86", ("3.1", "13.2")),
        ("7.0", "x86", ("3.0", "12.8")),  # code for 7.5 does not run on an older GPU of the same major version
        ("5.2", "x86", ("3.0", "12.8")),  # code for 5.0 does; the newer CUDA comes first
        ("6.1", "x86", None),  # code for another major version does not
        ("14.0", "x86", ("3.1", "13.2")),  # PTX runs on every later GPU
        ("10.0", "x86", None),  # but not on an earlier one
        ("7.5", "arm", None),
        ("9.0", "arm", ("3.1", "13.2")),
    ],
)
def test_a_gpu_runs_code_of_its_major_version_or_ptx(
    capability: str, architecture: Architecture, found: tuple[str, str] | None
) -> None:
    assert TOY.needed(capability, architecture) == (TorchWheel(torch=found[0], cuda=found[1]) if found else None)


def test_only_pypis_wheel_of_the_newest_release_needs_no_word() -> None:
    wheel = TorchWheel(torch="3.1", cuda="13.2")
    assert TOY.is_default(wheel, "x86")
    assert not TOY.is_default(wheel, "arm")
    assert not TOY.is_default(TorchWheel(torch="3.0", cuda="12.8"), "x86")


def test_releases_are_read_newest_first() -> None:
    releases = list(read_torch_wheels(shipped_profiles() / "torch_wheels.yaml").releases)
    assert releases[0] == "2.15"
    assert releases[-1] == "2.6"
    assert releases.index("2.10") < releases.index("2.9")


@pytest.mark.parametrize(
    ("offer_id", "wheel"),
    [
        ("aws/us-east-1/g6.xlarge", None),  # L4, sm_89: code for 8.6 runs on it
        ("aws/us-east-1/g4dn.xlarge", None),  # T4, sm_75: the oldest in CUDA 13
        ("aws/us-east-1/p3.2xlarge", ("2.14", "12.6")),  # V100, sm_70: CUDA 13 has dropped it, torch 2.15 CUDA 12
        ("gcp/us-central1/n1-standard-4+nvidia-tesla-p100", ("2.14", "12.6")),
    ],
)
def test_shipped_offers_name_the_wheel_that_pip_would_not_take(offer_id: str, wheel: tuple[str, str] | None) -> None:
    one = next(one for one in load_catalog().offers if one.id == offer_id)
    assert one.wheel == (TorchWheel(torch=wheel[0], cuda=wheel[1]) if wheel else None)
    assert one.no_wheel is None


def test_no_wheel_for_arm_has_code_for_a_t4g() -> None:
    without = [one for one in load_catalog().offers if one.no_wheel]
    assert {one.instance.partition(".")[0] for one in without} == {"g5g"}
    assert all("sm_75" in (one.no_wheel or "") for one in without)


def test_a_machine_has_the_architecture_of_its_cpu_or_of_its_superchip() -> None:
    catalog = load_catalog()
    by_id = {one.id: one.architecture for one in catalog.offers}
    assert by_id["aws/us-east-1/c7g.xlarge"] == "arm"
    assert by_id["aws/us-east-1/c7i.xlarge"] == "x86"
    assert by_id["aws/us-east-1/p5.48xlarge"] is None  # its CPU is not known

    grace = offer(cpu=None, gpu="gh200-96gb", gpu_count=1)
    wheels = read_torch_wheels(shipped_profiles() / "torch_wheels.yaml")
    (found,) = with_wheels([grace], wheels, gpus=catalog.gpus, cpus=catalog.cpus)
    assert found.architecture == "arm"
    assert found.wheel == TorchWheel(torch="2.15", cuda="13.2")  # PyPI's wheel for Arm has no CUDA


def test_nothing_is_said_of_gpus_without_a_compute_capability() -> None:
    catalog = load_catalog()
    odd = replace(catalog.gpus["l4"], compute_capability="sm_89")
    amd, own = (
        with_wheels([offer(gpu=gpu, gpu_count=1)], TOY, gpus={**catalog.gpus, "l4": odd}, cpus=catalog.cpus)[0]
        for gpu in ("mi300x", "l4")
    )
    assert (amd.wheel, amd.no_wheel, own.wheel, own.no_wheel) == (None, None, None, None)
