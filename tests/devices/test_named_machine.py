"""Which machine the name of an offer means."""

import pytest

from advisor.catalog.overlay import shipped_layer
from advisor.catalog.parse import parse_catalog
from advisor.devices.named_machine import named_machine
from advisor.errors import UsageError
from advisor.records.price import Catalog


@pytest.fixture(scope="module")
def shipped() -> Catalog:
    return parse_catalog([shipped_layer()])


@pytest.mark.parametrize(
    ("instance", "host_cpu", "host_ghz"),
    [
        ("g6.xlarge", "amd-epyc-7r13", 3.4),
        ("g5.xlarge", "amd-epyc-7r32", 3.3),
        ("p3.2xlarge", "intel-xeon-e5-2686-v4", 2.4),
        ("a2-highgpu-1g", "intel-cascade-lake-2-2-ghz", 2.9),
        ("NVIDIA GH200 96GB", None, 4.0),  # lambda and others say nothing of it that has a profile
    ],
)
def test_a_gpus_dispatch_takes_as_long_as_the_clock_of_its_host_says(
    shipped: Catalog, instance: str, host_cpu: str | None, host_ghz: float
) -> None:
    name = f"lambda {instance}" if host_cpu is None else instance
    device = named_machine(name, shipped).device
    assert device.kind == "gpu"
    assert (device.host_cpu, device.host_time_ratio) == (host_cpu, pytest.approx(4 / host_ghz))


def test_names_with_commas_between_them_are_answered_with_what_to_write(shipped: Catalog) -> None:
    with pytest.raises(UsageError) as caught:
        named_machine("t4, l4", shipped)
    assert caught.value.hint == "write --on t4 --on l4"
