from dataclasses import replace

import pytest

from advisor.catalog.overlay import load_catalog
from advisor.devices.named_device import named_device
from advisor.errors import UsageError

CATALOG = load_catalog()


def test_a_gpu_is_found_by_the_name_that_torch_prints() -> None:
    identifier, device = named_device("NVIDIA GeForce RTX 3090", CATALOG)
    assert (identifier, device.kind) == ("rtx-3090", "gpu")


def test_some_cores_of_a_cpu_have_the_bandwidth_of_the_instances_that_rent_as_many() -> None:
    identifier, device = named_device("amd-epyc-9r45@2", CATALOG)
    rented = {offer.measured_read_bytes_per_s for offer in CATALOG.offers if (offer.cpu, offer.vcpus) == (device.id, 2)}
    assert identifier == "amd-epyc-9r45@2"
    assert device.core_count == 2
    assert {device.memory_bytes_per_s} == rented - {None}


def test_without_such_an_instance_the_profile_says_what_it_can() -> None:
    cpu = replace(CATALOG.cpus["amd-epyc-9r45"], measured=())
    nothing_rented = replace(CATALOG, cpus={cpu.id: cpu})
    _, device = named_device("amd-epyc-9r45@2", nothing_rented)
    assert device.memory_bytes_per_s < 60e9


@pytest.mark.parametrize("name", ["t4@4", "amd-epyc-9r45@half"])
def test_cores_that_make_no_sense_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=rf"{name}.*\bcores\b"):
        named_device(name, CATALOG)
