"""Every shipped device is found by the names that systems print: nvidia-smi, ROCm and torch, /proc/cpuinfo."""

import re
from collections.abc import Iterator

import pytest

from advisor.catalog.find import find_device, find_devices
from advisor.catalog.overlay import load_catalog
from advisor.devices.named_device import named_device, split_cores
from advisor.records.device import Cpu, Gpu

SHIPPED = load_catalog()
OTHERWISE = {
    # nvidia-smi
    "a100-pcie-40gb": ("NVIDIA A100-PCIE-40GB",),
    "a100-pcie-80gb": ("NVIDIA A100 80GB PCIe",),
    "a100-sxm4-40gb": ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
    "a100-sxm4-80gb": ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
    "h100-pcie-80gb": ("NVIDIA H100 PCIe",),
    "h100-sxm5-80gb": ("NVIDIA H100 80GB HBM3",),
    "h100-nvl-94gb": ("NVIDIA H100 NVL",),
    "h200-sxm-141gb": ("NVIDIA H200",),
    "gh200-96gb": ("NVIDIA GH200 480GB",),
    "b300": ("NVIDIA B300 SXM6 AC",),
    "p100-pcie-12gb": ("Tesla P100-PCIE-12GB",),
    "p100-pcie-16gb": ("Tesla P100-PCIE-16GB",),
    "p100-sxm2-16gb": ("Tesla P100-SXM2-16GB",),
    "v100-pcie-16gb": ("Tesla V100-PCIE-16GB",),
    "v100-pcie-32gb": ("Tesla V100-PCIE-32GB",),
    "v100-sxm2-16gb": ("Tesla V100-SXM2-16GB",),
    "v100-sxm2-32gb": ("Tesla V100-SXM2-32GB",),
    "v100s-pcie-32gb": ("Tesla V100S-PCIE-32GB",),
    "titan-x-pascal": ("NVIDIA TITAN X (Pascal)", "TITAN X (Pascal)"),
    "rtx-2000-ada": ("NVIDIA RTX 2000 Ada Generation",),
    "rtx-4000-ada": ("NVIDIA RTX 4000 Ada Generation",),
    "rtx-4500-ada": ("NVIDIA RTX 4500 Ada Generation",),
    "rtx-5000-ada": ("NVIDIA RTX 5000 Ada Generation",),
    "rtx-6000-ada": ("NVIDIA RTX 6000 Ada Generation",),
    "rtx-pro-6000-blackwell-server": ("NVIDIA RTX PRO 6000 Blackwell Server Edition",),
    "rtx-pro-6000-blackwell-workstation": ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition",),
    # the table of AMD's driver; the last is what a guest sees
    "mi300x": ("AMD Instinct MI300X", "AMD Instinct MI300X VF"),
    # GCP shows a clock in the place of a model
    "intel-cascade-lake-2-2-ghz": ("Intel(R) Xeon(R) CPU @ 2.20GHz",),
    "intel-xeon-2-8-ghz": ("Intel(R) Xeon(R) CPU @ 2.80GHz",),
    "intel-skylake-broadwell-haswell-2-0-2-3-ghz": ("Intel(R) Xeon(R) CPU @ 2.00GHz", "Intel(R) Xeon(R) CPU @ 2.30GHz"),
    "intel-emerald-rapids-2-1-ghz": ("Intel Emerald Rapids 2.1 GHz",),  # its lscpu hides the model: an alias of our own
}
"""System names that do not follow from the name of the profile."""
SHARED = {
    "m40-24gb": "Tesla M40 24GB",
    "rtx-3080-12gb": "NVIDIA GeForce RTX 3080",
    "rtx-4060-ti-8gb": "NVIDIA GeForce RTX 4060 Ti",
}
"""Cards whose driver prints the name of the one with another memory."""


def system_names(device: Gpu | Cpu) -> Iterator[str]:
    """As the system prints the device; nothing for Arm's CPUs, of which Linux prints no model name."""
    if device.id in OTHERWISE:
        yield from OTHERWISE[device.id]
    elif isinstance(device, Gpu):
        yield from gpu_names(device)
    else:
        yield from cpu_names(device, re.sub(r" \(.*\)", "", device.name))


def gpu_names(gpu: Gpu) -> Iterator[str]:
    yield gpu.name
    if gpu.vendor == "NVIDIA" and gpu.id not in SHARED:
        yield f"NVIDIA {gpu.name}"
    elif gpu.vendor == "AMD":
        yield f"AMD Instinct {gpu.name}" if gpu.name.startswith("MI") else f"AMD {gpu.name}"


def cpu_names(cpu: Cpu, name: str) -> Iterator[str]:
    cores = cpu.cores_per_socket or 64
    if cpu.vendor == "AMD":
        yield name
        yield f"{name} {cores}-Core Processor"
        yield f"{name} {cores}-Cores"
    elif cpu.vendor == "Intel":
        brand, line, model = re.fullmatch(r"(Intel) (Xeon|Core) (.*)", name).groups()  # type: ignore[union-attr]
        mark = "TM" if line == "Core" else "R"
        written = f"{brand}(R) {line}({mark})"
        if model.startswith("E5"):
            yield f"{written} CPU {model} @ 2.40GHz"
        else:
            yield f"{written} {model}"
            yield f"{written} {model} CPU @ 3.30GHz"
            yield f"{written} {model} @ 2.50GHz"
            yield f"{written} {model}".upper()
        if line == "Core":
            yield f"12th Gen {written} {model}"
            yield f"11th Gen {written} {model} @ 3.50GHz"


@pytest.mark.parametrize("device", [*SHIPPED.gpus.values(), *SHIPPED.cpus.values()], ids=lambda device: device.id)
def test_a_shipped_device_is_found_by_every_name_that_a_system_prints(device: Gpu | Cpu) -> None:
    names = list(system_names(device))
    assert names or "/Arm" in (device.vendor or "")
    for name in names:
        assert find_device(SHIPPED, split_cores(name)[0]) is device, name
        assert device in find_devices(SHIPPED, name), name
        if isinstance(device, Cpu) and not (device.base_hz or device.sustained_hz):
            continue  # a profile without a clock predicts nothing
        if isinstance(device, Gpu) or device.cores_per_socket:
            assert named_device(name, SHIPPED)[0] == device.id, name
        if isinstance(device, Cpu):
            assert named_device(f"{name}@1", SHIPPED)[0] == f"{device.id}@1", name


def test_cards_that_share_a_name_are_told_apart_by_nothing() -> None:
    for identifier, name in SHARED.items():
        assert find_device(SHIPPED, name).id in (identifier, identifier.rpartition("-")[0])
