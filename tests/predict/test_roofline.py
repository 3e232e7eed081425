import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.predict.roofline import smooth_maximum, step_times
from advisor.records.answer import BOUNDS
from tests.predict.toys import device, efficiency, family, kernels

WORK = st.just(0.0) | st.floats(1e-9, 1e15)


def mid_s(toy: object, *, kind: str = "gpu", own: object = None, fit: object = None) -> float:
    times = step_times(
        toy,  # type: ignore[arg-type]
        kind=kind,  # type: ignore[arg-type]
        devices=[own or device(kind=kind)],  # type: ignore[list-item, arg-type]
        efficiencies=[fit or efficiency(kind=kind)],  # type: ignore[list-item, arg-type]
    )
    return float(times.mid_s[0, 0])


def test_without_overlap_both_times_add_and_with_it_the_longer_hides_the_shorter() -> None:
    compute_s, memory_s = np.array([3.0]), np.array([1.0])
    assert smooth_maximum(compute_s, memory_s, overlap=0.0)[0] == pytest.approx(4.0)
    assert smooth_maximum(compute_s, memory_s, overlap=1.0)[0] == pytest.approx(3.0)


def test_where_both_are_equal_a_share_of_the_second_shows() -> None:
    # (1 + 1 + sqrt(0 + 4 x 0.25^2)) / 2 = (2 + 0.5) / 2
    assert smooth_maximum(np.array([1.0]), np.array([1.0]), overlap=0.75)[0] == pytest.approx(1.25)


@given(WORK, WORK, st.floats(0, 1), st.floats(1, 10))
def test_the_smooth_maximum_grows_with_either_time(compute: float, memory: float, overlap: float, more: float) -> None:
    compute_s, memory_s = np.array([compute]), np.array([memory])
    before = smooth_maximum(compute_s, memory_s, overlap=overlap)[0]
    assert smooth_maximum(compute_s * more, memory_s, overlap=overlap)[0] >= before * (1 - 1e-9)
    assert max(compute, memory) * (1 - 1e-9) <= before <= (compute + memory) * (1 + 1e-9)


def test_a_compute_bound_row_takes_its_flops_at_the_peak() -> None:
    assert mid_s(kernels(flops=[[2e12]], moved_bytes=[[1e9]])) == pytest.approx(2.0)  # 1 TFLOP/s


def test_a_memory_bound_row_takes_its_bytes_at_the_bandwidth() -> None:
    assert mid_s(kernels(flops=[[1.0]], moved_bytes=[[3e11]])) == pytest.approx(3.0)  # 100 GB/s


def test_a_family_sustains_its_share_of_the_peak() -> None:
    fit = efficiency(families={"pointwise": family(compute_ratio=0.5), "*": family()})
    assert mid_s(kernels(flops=[[1e12]], moved_bytes=[[0.0]]), fit=fit) == pytest.approx(2.0)


def test_a_family_without_an_entry_takes_the_common_one() -> None:
    fit = efficiency(families={"matmul": family(), "*": family(memory_ratio=0.25)})
    assert mid_s(kernels(flops=[[0.0]], moved_bytes=[[1e11]]), fit=fit) == pytest.approx(4.0)


def test_rows_follow_each_other() -> None:
    toy = kernels(flops=[[1e12], [0.0]], moved_bytes=[[0.0], [1e11]])
    assert mid_s(toy) == pytest.approx(2.0)  # not max(1, 1)


def test_the_vectorised_sum_is_the_smooth_maximum_of_every_row() -> None:
    toy = kernels(flops=[[1e12, 5e11], [2e11, 3e12]], moved_bytes=[[5e10, 2e11], [1e11, 1e10]])
    fits = [efficiency(overlap_ratio=0.4), efficiency(overlap_ratio=0.9)]
    devices = [device(), device(memory_bytes_per_s=3e11)]
    times = step_times(toy, kind="gpu", devices=devices, efficiencies=fits)
    for index, (one, fit) in enumerate(zip(devices, fits, strict=True)):
        rows = smooth_maximum(toy.flops / 1e12, toy.moved_bytes / one.memory_bytes_per_s, overlap=fit.overlap_ratio)
        assert times.mid_s[index] == pytest.approx(rows.sum(axis=0))


def test_every_launch_takes_its_time_on_the_device() -> None:
    toy = kernels(flops=[[1e12]], moved_bytes=[[0.0]], launches=np.array([100.0]))
    assert mid_s(toy, fit=efficiency(launch_s=0.01)) == pytest.approx(2.0)


def test_a_gpu_hides_the_dispatch_until_it_is_the_longer() -> None:
    toy = kernels(flops=[[1e12]], moved_bytes=[[0.0]], dispatches=np.array([100.0]))
    assert mid_s(toy, fit=efficiency(dispatch_s=0.005)) == pytest.approx(1.0)
    assert mid_s(toy, fit=efficiency(dispatch_s=0.02)) == pytest.approx(2.0)


def test_a_cpu_dispatches_on_the_cores_that_compute() -> None:
    toy = kernels(flops=[[1e12]], moved_bytes=[[0.0]], dispatches=np.array([100.0]))
    assert mid_s(toy, kind="cpu", fit=efficiency(kind="cpu", dispatch_s=0.005)) == pytest.approx(1.5)


def test_a_copy_to_the_gpu_counts_where_it_is_the_longest() -> None:
    toy = kernels(flops=[[1e12]], moved_bytes=[[0.0]], transfer_bytes=np.array([3e10]))
    assert mid_s(toy) == pytest.approx(3.0)  # 10 GB/s


@pytest.mark.parametrize(
    ("bound", "changes"),
    [
        ("compute", {"flops": [[1e12]]}),
        ("memory", {"moved_bytes": [[1e11]]}),
        ("launch", {"launches": np.array([200.0])}),
        ("dispatch", {"dispatches": np.array([200.0])}),
        ("transfer", {"transfer_bytes": np.array([1e12])}),
    ],
)
def test_the_bound_names_what_takes_longest(bound: str, changes: dict[str, object]) -> None:
    toy = kernels(**({"flops": [[1e10]], "moved_bytes": [[1e9]]} | changes))
    fits = [efficiency(launch_s=0.01, dispatch_s=0.01)]
    times = step_times(toy, kind="gpu", devices=[device()], efficiencies=fits)
    assert BOUNDS[times.bound[0, 0]] == bound


def test_the_interval_joins_the_devices_error_and_the_families() -> None:
    # Half the time in each of two families that err by 0.3 and 0.4, and a device offset of 0.25:
    # sqrt(0.25^2 + (0.5 x 0.3)^2 + (0.5 x 0.4)^2) = sqrt(0.0625 + 0.0225 + 0.04) = sqrt(0.125)
    toy = kernels(flops=[[1e12], [1e12]], moved_bytes=[[0.0], [0.0]], families=("a", "b"), family=np.array([0, 1]))
    fit = efficiency(
        device_log_spread=0.25, families={"a": family(log_spread=0.3), "b": family(log_spread=0.4), "*": family()}
    )
    times = step_times(toy, kind="gpu", devices=[device()], efficiencies=[fit])
    assert times.log_spread[0, 0] == pytest.approx(math.sqrt(0.125))
    assert times.low_s[0, 0] == pytest.approx(2 * math.exp(-1.645 * math.sqrt(0.125)))
    assert times.high_s[0, 0] == pytest.approx(2 * math.exp(1.645 * math.sqrt(0.125)))


@given(WORK, st.floats(1, 100))
def test_more_flop_is_never_faster(flops: float, more: float) -> None:
    before = mid_s(kernels(flops=[[flops]], moved_bytes=[[1e10]]))
    assert mid_s(kernels(flops=[[flops * more]], moved_bytes=[[1e10]])) >= before * (1 - 1e-9)


@given(WORK, WORK, st.floats(1, 100), st.floats(1, 100))
def test_a_faster_device_is_never_slower(flops: float, moved: float, compute: float, memory: float) -> None:
    toy = kernels(flops=[[flops]], moved_bytes=[[moved]])
    faster = device(peak_flops_per_s={"fp32": 1e12, "vector": 1e12 * compute}, memory_bytes_per_s=1e11 * memory)
    assert mid_s(toy, own=faster) <= mid_s(toy) * (1 + 1e-9)
