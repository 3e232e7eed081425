import pytest

from advisor.catalog.find import device_ids, find_device, find_devices, find_rented_gpu
from advisor.errors import UsageError
from advisor.records.price import Catalog
from tests.says import assert_says


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("t4", "t4"),
        ("T4", "t4"),
        ("Tesla T4", "t4"),  # as torch.cuda.get_device_name() says it, and the next five
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("rtx 4090", "rtx-4090"),
        ("A100", "a100-sxm4-40gb"),
        ("amd epyc 9r14", "amd-epyc-9r14"),
        ("Intel(R) Xeon(R) Platinum 8488C", "intel-xeon-platinum-8488c"),  # as lscpu says it
    ],
)
def test_a_device_is_found_by_id_name_alias_and_as_torch_and_lscpu_call_it(
    shipped: Catalog, name: str, identifier: str
) -> None:
    assert find_device(shipped, name).id == identifier


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        # torch.cuda.get_device_name()
        ("GeForce GTX 1080 Ti", "gtx-1080-ti"),
        ("NVIDIA TITAN X (Pascal)", "titan-x-pascal"),
        ("NVIDIA GeForce GTX TITAN X", "gtx-titan-x"),
        ("TITAN Xp", "titan-xp"),
        ("NVIDIA TITAN V", "titan-v"),
        ("TITAN RTX", "titan-rtx"),
        ("GeForce RTX 2080 Ti", "rtx-2080-ti"),
        ("NVIDIA GeForce RTX 2080 SUPER", "rtx-2080-super"),
        ("NVIDIA GeForce RTX 3080", "rtx-3080"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx-4070-ti-super"),
        ("Quadro RTX 6000", "quadro-rtx-6000"),
        ("Quadro RTX 8000", "quadro-rtx-8000"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA RTX 4500 Ada Generation", "rtx-4500-ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-blackwell-workstation"),
        ("Tesla P4", "p4"),
        ("Tesla P100-PCIE-16GB", "p100-pcie-16gb"),
        ("Tesla P100-SXM2-16GB", "p100-sxm2-16gb"),
        ("Tesla V100-PCIE-32GB", "v100-pcie-32gb"),
        ("Tesla V100S-PCIE-32GB", "v100s-pcie-32gb"),
        ("A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("AMD Instinct MI100", "mi100"),
        ("Arcturus GL-XL [AMD Instinct MI100]", "mi100"),
        ("AMD Radeon RX 7900 XTX", "radeon-rx-7900-xtx"),
        # "model name" of /proc/cpuinfo
        ("Intel(R) Core(TM) i9-10940X CPU @ 3.30GHz", "intel-core-i9-10940x"),
        ("12th Gen Intel(R) Core(TM) i7-12700H", "intel-core-i7-12700h"),
        ("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz", "intel-xeon-platinum-8380"),
        ("Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz", "intel-xeon-e5-2690-v4"),
        ("Intel(R) Xeon(R) Platinum 8480+", "intel-xeon-platinum-8480"),
        ("INTEL(R) XEON(R) PLATINUM 8592+", "intel-xeon-platinum-8592"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "intel-cascade-lake-2-2-ghz"),
        ("Intel(R) Xeon(R) 6980P", "intel-xeon-6980p"),
        ("AMD EPYC 7742 64-Core Processor", "amd-epyc-7742"),
        ("AMD EPYC 7763 64-Core Processor", "amd-epyc-7763"),
        ("AMD Ryzen 9 5950X 16-Core Processor", "amd-ryzen-9-5950x"),
        ("AMD Ryzen Threadripper PRO 5995WX 64-Cores", "amd-ryzen-threadripper-pro-5995wx"),
        # names of files of measurements
        ("rtx3090", "rtx-3090"),
        ("titanxp", "titan-xp"),
        ("AMD_Instinct_MI100", "mi100"),
        ("NVIDIA_A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("i9_10940x", "intel-core-i9-10940x"),
        ("xeon_8380", "intel-xeon-platinum-8380"),
        ("graviton3", "aws-graviton3"),
    ],
)
def test_a_device_is_found_as_drivers_kernels_and_file_names_call_it(
    shipped: Catalog, name: str, identifier: str
) -> None:
    assert find_device(shipped, name).id == identifier


def test_every_device_is_found_by_each_of_its_names_whatever_the_punctuation(shipped: Catalog) -> None:
    for device in (*shipped.gpus.values(), *shipped.cpus.values()):
        for name in (device.id, device.name, *device.aliases):
            assert find_device(shipped, name) is device, name
            assert find_device(shipped, name.upper().replace(" ", "_").replace("-", "")) is device, name


def test_decoration_alone_names_no_device(shipped: Catalog) -> None:
    with pytest.raises(UsageError, match="no profile describes the device"):
        find_device(shipped, "Intel(R) Xeon(R) CPU @ 2.40GHz")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("tpu-v5e", "TPUs"),
        ("Google TPU v6e", "TPUs"),
        ("gaudi2", "Gaudi"),
        ("Intel Gaudi 3", "Gaudi"),
        ("arc-a770", "Intel"),
        ("Intel Arc B580", "Intel"),
        ("trainium2", "trainium1-core"),
        ("inferentia1", "inferentia2-core"),
    ],
)
def test_an_accelerator_that_is_not_predicted_is_refused_with_the_reason(
    shipped: Catalog, name: str, reason: str
) -> None:
    with pytest.raises(UsageError) as caught:
        find_device(shipped, name)
    assert_says(caught.value.message, name, reason)
    assert_says(caught.value.hint, "--device gpu", "docs/accelerators.md")


@pytest.mark.parametrize("name", ["cpu", "mps", "cuda:0", "CUDA", "xpu:1"])
def test_torchs_name_of_a_device_of_this_machine_leads_to_local(shipped: Catalog, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_devices(shipped, name)
    assert_says(caught.value.hint, "local")


def test_a_name_nobody_has_is_refused_with_the_closest_ones(shipped: Catalog) -> None:
    with pytest.raises(UsageError, match=r"no profile .*'rtx 4099'") as caught:
        find_device(shipped, "rtx 4099")
    assert "rtx-4090" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        find_device(shipped, "NVIDIA")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "identifiers"),
    [
        ("A100", {"a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm4-40gb", "a100-sxm4-80gb"}),
        ("NVIDIA A100 80GB", {"a100-pcie-80gb", "a100-sxm4-80gb"}),
        ("L4", {"l4"}),  # an id, so not the words of "L4 something"
        ("NVIDIA A100-SXM4-40GB", {"a100-sxm4-40gb"}),
        ("NVIDIA RTX 6000 Ada Generation", {"rtx-6000-ada"}),  # an alias: no id has the word "generation"
    ],
)
def test_a_name_that_several_cards_share_means_all_of_them(shipped: Catalog, name: str, identifiers: set[str]) -> None:
    assert {device.id for device in find_devices(shipped, name)} == identifiers


def test_a_brand_alone_names_no_device(shipped: Catalog) -> None:
    with pytest.raises(UsageError, match=r"no profile .*'NVIDIA'"):
        find_devices(shipped, "NVIDIA")


@pytest.mark.parametrize(
    ("name", "memory_gib", "expected"),
    [
        ("NVIDIA GeForce RTX 4090", 24, "rtx-4090"),
        ("NVIDIA H200", None, "h200-sxm-141gb"),  # what its driver says; the other is an "NVIDIA H200 NVL"
        ("A100 (40 GB SXM4)", None, "a100-sxm4-40gb"),
        ("H100 (80 GB PCIe)", None, "h100-pcie-80gb"),
        ("A10 (24 GB PCIe)", None, "a10"),
        ("A100 SXM4", 80, "a100-sxm4-80gb"),
        ("A100 SXM4", 40, "a100-sxm4-40gb"),
        ("A100 SXM4", None, None),
        ("Tesla V100 (16 GB)", None, "v100-sxm2-16gb"),
        ("RTX 3060", 8, None),  # the profile is the 12 GB card
        ("GENOA", None, None),
        ("EPYC 9654", None, None),  # no GPU
    ],
)
def test_a_gpu_that_is_rented_is_found_by_its_name_and_memory_or_not_at_all(
    shipped: Catalog, name: str, memory_gib: float | None, expected: str | None
) -> None:
    gpu = find_rented_gpu(shipped, name, memory_gib=memory_gib)
    assert (gpu.id if gpu else None) == expected


def test_an_instance_type_in_the_place_of_a_device_is_told_its_device(shipped: Catalog) -> None:
    for name, device in (("g5.xlarge", "a10g"), ("G6.XLARGE", "l4"), ("c7a.xlarge", "amd-epyc-9r14")):
        with pytest.raises(UsageError, match=rf"\binstance type of aws\b.*\b{device}\b") as caught:
            device_ids(shipped, [name])
        assert f"--device {device} " in caught.value.hint
        assert "--on" in caught.value.hint
    with pytest.raises(UsageError, match=r"no profile .*'g5\.quarter'"):
        device_ids(shipped, ["g5.quarter"])
