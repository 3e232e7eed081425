import pytest

from advisor.catalog.find import find_device, find_devices
from advisor.errors import UsageError
from advisor.records.price import Catalog


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


def test_every_device_is_found_by_its_own_id_and_name(shipped: Catalog) -> None:
    for device in (*shipped.gpus.values(), *shipped.cpus.values()):
        assert find_device(shipped, device.id) is device
        assert find_device(shipped, device.name) is device


def test_a_name_nobody_has_is_refused_with_the_closest_ones(shipped: Catalog) -> None:
    with pytest.raises(UsageError, match="no profile describes the device 'rtx 4099'") as caught:
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
    with pytest.raises(UsageError, match="no profile describes the device 'NVIDIA'"):
        find_devices(shipped, "NVIDIA")
