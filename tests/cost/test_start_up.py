from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.cost.start_up import NO_START_UP, joint_ends, start_up_of
from advisor.records.answer import Interval
from advisor.records.billing import Billing, Disk, ExtraCosts, Extras, GpuPackages, StartUp
from tests.cost.toys import start_up

SECONDS = st.floats(0.1, 1e5)
DISK = Disk(size_bytes=100e9, usd_per_month=7.3, read_bytes_per_s=100e6, date="2026-01-01", source="by hand")
PACKAGES = GpuPackages(download_bytes=4e9, pull_bytes_per_s=25e6, date="2026-01-01", source="by hand")


def booting(provider: str, start_ups: dict[str, StartUp]) -> Interval:
    return start_up_of(provider, Billing(start_ups=start_ups), is_gpu=False, weight_bytes=0.0).total_s


def test_a_measured_cloud_has_its_own_interval() -> None:
    # 10 % start within 40 s, 10 % take more than 160 s: a factor of 2 from the median either way, at 1.2816 standard
    # deviations. At 1.6449 the factor is 2^1.28347 = 2.4342: 32.86 and 194.74 s.
    found = booting("acme", {"acme": start_up(80), "other": start_up(10)})
    assert (found.mid, found.low, found.high) == (80, pytest.approx(32.86, abs=1e-2), pytest.approx(194.74, abs=1e-2))


def test_another_cloud_has_the_median_of_all_and_the_widest_interval() -> None:
    # Medians of 30, 40 and 90 s: 40 s. The least p10 is 15 s, the largest p90 180 s: factors of 2.6667 and 4.5, to the
    # power of 1.28347 3.5215 and 6.8924: 11.36 and 275.7 s.
    found = booting("new", {str(seconds): start_up(seconds) for seconds in (30, 40, 90)})
    assert (found.mid, found.low, found.high) == (40, pytest.approx(11.36, abs=0.02), pytest.approx(275.7, abs=0.2))


def test_where_nobody_measured_anything_nothing_starts() -> None:
    costs = ExtraCosts(disks={"acme": DISK}, gpu_packages=PACKAGES)
    assert start_up_of("acme", Billing(extra_costs=costs), is_gpu=True, weight_bytes=1e9) == NO_START_UP


def test_software_and_weights_are_added_and_stretch_the_interval() -> None:
    # Boot 80 s and a container after 200 s: 120 s of packages. A GPU downloads 4 GB more at 25 MB/s: 160 s. 10 GB of
    # weights at 100 MB/s: 100 s. 460 s are 5.75 times the 80 s, and so are the ends of 32.86 and 194.74 s.
    measured = replace(start_up(80), container_running_median_s=200.0)
    costs = ExtraCosts(disks={"acme": DISK, "other": replace(DISK, read_bytes_per_s=50e6)}, gpu_packages=PACKAGES)
    billing = Billing(start_ups={"acme": measured}, extra_costs=costs)
    found = start_up_of("acme", billing, is_gpu=True, weight_bytes=10e9)
    assert (found.total_s.mid, found.software_s, found.weights_s) == (460.0, 280.0, 100.0)
    assert found.total_s.low == pytest.approx(5.75 * 32.86, abs=0.1)
    assert found.total_s.high == pytest.approx(5.75 * 194.74, abs=0.1)
    assert start_up_of("acme", billing, is_gpu=False, weight_bytes=0.0).total_s.mid == 200.0
    # A cloud whose disk is not known reads at the median rate, 75 MB/s; one's own image is there already.
    own = replace(billing, extras=Extras(software_s=0.0))
    found = start_up_of("new", own, is_gpu=True, weight_bytes=7.5e9)
    assert (found.software_s, found.weights_s) == (0.0, 100.0)


@given(SECONDS, st.floats(0, 0.9), st.floats(0, 9), SECONDS, st.floats(0, 0.9), st.floats(0, 9), st.integers(1, 1000))
def test_the_ends_of_two_times_are_as_far_apart_as_the_root_of_the_squares(
    step: float, less: float, more: float, starting: float, started_less: float, started_more: float, steps: int
) -> None:
    step_s = np.array([[step], [step * (1 - less)], [step * (1 + more)]])
    start_s = np.array([[starting], [starting * (1 - started_less)], [starting * (1 + started_more)]])
    count = np.array([float(steps)])
    for end, (end_step_s, end_start_s) in enumerate(joint_ends(step_s, steps=count, start_up_s=start_s), start=1):
        apart_s = steps * end_step_s + end_start_s - (steps * step + starting)
        expected_s = np.hypot(steps * (step_s[end] - step), start_s[end] - starting)
        sign = -1 if end == 1 else 1
        assert apart_s == pytest.approx(sign * expected_s, rel=1e-6, abs=1e-6 * (steps * step + starting))
        assert end_step_s >= 0
        assert end_start_s >= 0
