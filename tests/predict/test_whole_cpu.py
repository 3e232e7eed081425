import pytest

from advisor.errors import UsageError
from advisor.predict.whole_cpu import whole_cpu_device
from tests.predict.test_capability import a_cpu


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
