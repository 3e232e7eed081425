import re
from pathlib import Path

import pytest

from advisor.catalog.device_files import read_gpus
from advisor.catalog.find import find_device, find_devices, find_rented_gpu
from advisor.catalog.gpu_parts import with_parts
from advisor.errors import ProfileError
from advisor.records.device import Gpu
from advisor.records.price import Catalog
from tests.catalog.test_shipped import offer_of

GPU = """\
id: toy
name: Toy 9000
aliases: [Toy]
vendor: NVIDIA
generation: Ampere
sm_count: 10
boost_mhz: 1500
memory_gib: 16
memory_gb_per_s: 300
l2_mib: 8
fp32_tflops: 10
fp16_tensor_tflops: 40
nvlink_gb_per_s: 600
nvlink_reach: machine
tdp_w: 300
source: made up
"""


def toy(folder: Path, parts: str) -> dict[str, Gpu]:
    (folder / "toy.yaml").write_text(GPU)
    (folder / "gpu_parts.yaml").write_text(parts)
    return with_parts(read_gpus([folder / "toy.yaml"], measured=None), file=folder / "gpu_parts.yaml")


def test_a_mig_instance_has_the_rates_of_its_sms_and_the_bandwidth_of_its_memory_slices(tmp_path: Path) -> None:
    parts = "mig: {source: a guide, gpus: {toy: {1g.4gb: {sm_count: 2, memory_ratio: 0.25, memory_gib: 3.5}}}}"
    part = toy(tmp_path, parts)["toy-1g.4gb"]
    # 2 of 10 SMs: 0.2 x 10 and 40 TFLOP/s, 60 W; 1/4 of 300 GB/s and of 8 MiB
    assert (part.sm_count, part.boost_hz, part.fp32_flops_per_s) == (2, 1.5e9, 2e12)
    assert (part.fp16_tensor_flops_per_s, part.tdp_w, part.memory_bytes_per_s) == (8e12, 60.0, 75e9)
    assert (part.memory_bytes, part.l2_bytes, part.nvlink_bytes_per_s) == (3.5 * 2**30, 2 * 2**20, None)
    assert (part.part_of, part.time_ratio, part.source) == ("toy", 1.0, "a guide; made up")
    assert part.aliases == ("Toy MIG 1g.4gb", "Toy-1g.4gb")


def test_a_time_sliced_gpu_is_the_whole_one_at_a_slower_clock_with_a_slower_memory(tmp_path: Path) -> None:
    parts = "time_sliced: {source: a guide, gpus: {toy: {4q: {time_ratio: 0.25, memory_gib: 4}}}}"
    part = toy(tmp_path, parts)["toy-4q"]
    assert (part.sm_count, part.boost_hz, part.fp32_flops_per_s) == (10, 375e6, 2.5e12)
    assert (part.memory_bytes_per_s, part.memory_bytes, part.l2_bytes) == (75e9, 4 * 2**30, 2 * 2**20)
    assert (part.name, part.time_ratio) == ("Toy 9000-4Q", 0.25)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ("mig: {source: a, gpus: {toi: {}}}", "'toi'"),
        ("mig: {gpus: {toy: {}}}", "source"),
        ("mig: {source: a, gpus: {toy: {x: {sm_count: 11, memory_ratio: 0.5, memory_gib: 1}}}}", "1.1 times"),
        ("mig: {source: a, gpus: {toy: {x: {sm_count: 5, memory_ratio: 1.5, memory_gib: 1}}}}", "1.5 times"),
        ("time_sliced: {source: a, gpus: {toy: {x: {time_ratio: 2, memory_gib: 1}}}}", "2 times"),
        ("mps: {source: a, gpus: {}}", "mps"),
    ],
)
def test_a_part_of_nothing_or_larger_than_its_parent_is_refused(tmp_path: Path, parts: str, message: str) -> None:
    with pytest.raises(ProfileError, match=re.escape(message)):
        toy(tmp_path, parts)


def test_every_shipped_part_is_smaller_than_its_parent_and_names_both_sources(shipped: Catalog) -> None:
    parts = [gpu for gpu in shipped.gpus.values() if gpu.part_of is not None]
    assert {gpu.part_of for gpu in parts} >= {"h100-sxm5-80gb", "a100-sxm4-80gb", "l4", "a10"}
    for part in parts:
        whole = shipped.gpus[part.part_of or ""]
        assert part.memory_bytes <= whole.memory_bytes * 0.55
        assert part.memory_bytes_per_s <= whole.memory_bytes_per_s / 2
        assert part.fp32_flops_per_s <= whole.fp32_flops_per_s * 0.56  # 62 of the 114 SMs of an H100 PCIe
        assert part.source.endswith(whole.source)
        assert part.source.startswith("NVIDIA ")


def test_all_instances_of_a_mig_gpu_have_together_no_more_than_the_gpu(shipped: Catalog) -> None:
    # Seven 1g instances fit on a GPU of eight memory slices, four on an A30.
    for name, count in (("h100-sxm5-80gb-1g.10gb", 7), ("a100-sxm4-40gb-1g.5gb", 7), ("a30-1g.6gb", 4)):
        part = shipped.gpus[name]
        whole = shipped.gpus[part.part_of or ""]
        assert count * part.sm_count <= whole.sm_count
        assert count * part.memory_bytes <= whole.memory_bytes


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("h100-1g.10gb", "h100-sxm5-80gb-1g.10gb"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a100-sxm4-40gb-1g.5gb"),  # as torch.cuda.get_device_name() says it
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", "h100-sxm5-80gb-3g.40gb"),
        ("NVIDIA L4-3Q", "l4-3q"),  # as nvidia-smi says it on g6f.large
    ],
)
def test_a_part_is_found_by_the_names_of_its_parent_and_as_drivers_call_it(
    shipped: Catalog, name: str, identifier: str
) -> None:
    assert find_device(shipped, name).id == identifier


def test_the_name_of_a_gpu_means_whole_ones(shipped: Catalog) -> None:
    assert all(isinstance(gpu, Gpu) and gpu.part_of is None for gpu in find_devices(shipped, "a100"))
    assert [gpu.id for gpu in find_devices(shipped, "l4")] == ["l4"]
    rented = find_rented_gpu(shipped, "A100 40GB")
    assert rented is not None
    assert rented.part_of is None


@pytest.mark.parametrize(
    ("identifier", "gpu", "time_ratio", "memory_gib"),
    [
        ("aws/us-east-1/g6f.large", "l4-3q", 1 / 8, 3),
        ("aws/us-east-1/g6f.xlarge", "l4-3q", 1 / 8, 3),
        ("aws/us-east-1/g6f.2xlarge", "l4-6q", 1 / 4, 6),
        ("aws/us-east-1/g6f.4xlarge", "l4-12q", 1 / 2, 12),
        ("gcp/us-central1/g4-standard-6", "rtx-pro-6000-blackwell-server-12q", 1 / 8, 12),
        ("azure/eastus/Standard_NV6ads_A10_v5", "a10-4q", 1 / 6, 4),  # the data counts one A10
    ],
)
def test_machines_with_a_part_of_a_gpu_are_offers(
    shipped: Catalog, identifier: str, gpu: str, time_ratio: float, memory_gib: float
) -> None:
    offer = offer_of(shipped, identifier)
    assert (offer.gpu, offer.gpu_count) == (gpu, 1)
    assert shipped.gpus[gpu].time_ratio == pytest.approx(time_ratio, rel=1e-3)
    assert shipped.gpus[gpu].memory_bytes == memory_gib * 2**30
