import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.predict import roofline
from advisor.predict.kernel_time import DISPATCHED, Kernels, KernelTimes, Rates, kernel_times, smooth_maximum
from advisor.predict.roofline import rates_by_kernel, step_times
from advisor.records.answer import BOUNDS
from advisor.records.device import Efficiency
from advisor.records.prediction import PARTS
from tests.predict.toys import device, efficiency, family, kernels

WORK = st.just(0.0) | st.floats(1e-9, 1e15)


def mid_s(toy: object, *, kind: str = "gpu", own: object = None, fit: object = None) -> float:
    times = step_times(
        toy,  # type: ignore[arg-type]
        kind=kind,  # type: ignore[arg-type]
        devices=[own or device(kind=kind)],  # type: ignore[list-item, arg-type]
        efficiencies=[fit or efficiency(kind=kind)],  # type: ignore[list-item, arg-type]
    )
    return float(times.step_s[0, 0])


def test_a_compute_bound_row_takes_its_flops_at_the_peak() -> None:
    assert mid_s(kernels(flops=[[2e12]], data_bytes=[[1e9]])) == pytest.approx(2.0)  # 1 TFLOP/s


def test_a_memory_bound_row_takes_its_bytes_at_the_bandwidth() -> None:
    assert mid_s(kernels(flops=[[1.0]], data_bytes=[[3e11]])) == pytest.approx(3.0)  # 100 GB/s


def test_a_family_sustains_its_share_of_the_peak() -> None:
    fit = efficiency(families={"pointwise": family(compute_ratio=0.5), "*": family()})
    assert mid_s(kernels(flops=[[1e12]], data_bytes=[[0.0]]), fit=fit) == pytest.approx(2.0)


def test_a_family_without_an_entry_takes_the_common_one() -> None:
    fit = efficiency(families={"matmul": family(), "*": family(memory_ratio=0.25)})
    assert mid_s(kernels(flops=[[0.0]], data_bytes=[[1e11]]), fit=fit) == pytest.approx(4.0)


def test_rows_follow_each_other() -> None:
    toy = kernels(flops=[[1e12], [0.0]], data_bytes=[[0.0], [1e11]])
    assert mid_s(toy) == pytest.approx(2.0)  # not max(1, 1)


def test_the_vectorised_sum_is_the_smooth_maximum_of_every_row() -> None:
    toy = kernels(flops=[[1e12, 5e11], [2e11, 3e12]], data_bytes=[[5e10, 2e11], [1e11, 1e10]])
    fits = [efficiency(overlap_ratio=0.4), efficiency(overlap_ratio=0.9)]
    devices = [device(), device(memory_bytes_per_s=3e11)]
    times = step_times(toy, kind="gpu", devices=devices, efficiencies=fits)
    for index, (one, fit) in enumerate(zip(devices, fits, strict=True)):
        rows = smooth_maximum(toy.flops / 1e12, toy.data_bytes / one.memory_bytes_per_s, overlap=fit.overlap_ratio)
        assert times.step_s[index] == pytest.approx(rows.sum(axis=0))


def test_every_launch_takes_its_time_on_the_device() -> None:
    toy = kernels(flops=[[1e12]], data_bytes=[[0.0]], launches=np.array([[100.0]]))
    assert mid_s(toy, fit=efficiency(launch_s=0.01)) == pytest.approx(2.0)


def test_a_kernel_takes_its_time_at_every_call() -> None:
    toy = kernels(flops=[[1e12]], data_bytes=[[0.0]], launches=np.array([[2.0]]), calls=np.array([3.0]))
    assert mid_s(toy, fit=efficiency(launch_s=0.25)) == pytest.approx(3 * 1.0 + 3 * 2 * 0.25)


def test_the_backward_pass_dispatches_at_its_own_pace() -> None:
    counts = {"dispatches": np.array([100.0]), "backward_dispatches": np.array([50.0])}
    toy = kernels(flops=[[0.0]], data_bytes=[[0.0]], **counts)
    assert mid_s(toy, fit=efficiency(dispatch_s=0.01, backward_dispatch_s=0.004)) == pytest.approx(1.0 + 0.2)


def test_the_resources_of_a_step_are_timed_by_part_against_the_busiest() -> None:
    # 1 s of forward kernels, 3 s of backward; 2 and 8 s of dispatch, of which half an operator's passes first; 5 s of
    # copies at 10 GB/s.
    forward, backward = (PARTS.index(name) for name in ("forward", "inner_backward"))
    part_dispatches = np.zeros((len(DISPATCHED), len(PARTS), 1))
    part_dispatches[0, forward], part_dispatches[1, backward] = 100.0, 200.0
    toy = kernels(
        flops=[[1e12], [3e12]],
        data_bytes=[[0.0], [0.0]],
        part=np.array([forward, backward]),
        part_dispatches=part_dispatches,
        transfer_bytes=np.array([5e10]),
        **dict(zip(DISPATCHED, part_dispatches.sum(axis=1), strict=True)),
    )
    fit = efficiency(dispatch_s=0.02, backward_dispatch_s=0.04)
    found = step_times(toy, kind="gpu", devices=[device()], efficiencies=[fit])
    first_s = 0.5 * 10 / 300
    by_part_s = found.part_ratio[:, [forward, backward], 0, 0] * float(found.step_s[0, 0])
    assert by_part_s == pytest.approx(np.array([[1.0 + first_s, 3.0], [2.0, 8.0], [5.0, 0.0]]))
    assert found.part_ratio.sum(axis=1).max() == pytest.approx(1.0)
    on_cpu = step_times(toy, kind="cpu", devices=[device(kind="cpu")], efficiencies=[replace(fit, kind="cpu")])
    assert on_cpu.part_ratio[:, [forward, backward], 0, 0] == pytest.approx(np.array([[3, 11], [0, 0], [0, 0]]) / 14)


def test_a_backward_pass_and_compiled_code_widen_the_interval() -> None:
    fit = efficiency(workload_log_spread=0.3, backward_log_spread=0.4, compiled_log_spread=0.72, host_log_spread=1.0)

    def log_spread(part: str, **counts: float) -> float:
        parts = np.array([PARTS.index(part)])
        counted = {name: np.array([one]) for name, one in counts.items()}
        toy = kernels(flops=[[1e12]], data_bytes=[[0.0]], part=parts, **counted)
        return float(step_times(toy, kind="gpu", devices=[device()], efficiencies=[fit]).log_spread[0, 0])

    assert log_spread("forward", dispatches=5.0) == pytest.approx(0.3)
    assert log_spread("inner_backward", backward_dispatches=5.0) == pytest.approx(0.5)  # 0.3 and 0.4 at right angles
    assert log_spread("forward", compiled_dispatches=5.0) == pytest.approx(0.78)  # 0.3 and 0.72
    # Training, compiled: sqrt(0.3^2 + 0.4^2 + 0.72^2).
    assert log_spread("block_backward", compiled_dispatches=5.0) == pytest.approx(0.8766, abs=1e-4)


def test_what_the_host_is_off_counts_by_its_share_of_the_step() -> None:
    toy = kernels(flops=[[1e12]], data_bytes=[[0.0]], dispatches=np.array([100.0]))
    slow, fast = (
        step_times(toy, kind="gpu", devices=[device()], efficiencies=[efficiency(host_log_spread=0.4, dispatch_s=one)])
        for one in (0.02, 0.005)
    )
    assert slow.log_spread[0, 0] == slow.own_log_spread[0, 0] == pytest.approx(0.4)  # the host takes all of the 2 s
    assert fast.log_spread[0, 0] == pytest.approx(0.4 * 0.5 / 1.0025)


def test_every_device_has_its_own_rates() -> None:
    toy = kernels(flops=[[1e12]], data_bytes=[[1e11]])
    devices = [device(), device(sustained_compute_ratio=0.5), device(streaming_ratio=0.25)]
    times = kernel_times(toy, rates_by_kernel(toy, devices=devices, efficiencies=[efficiency()] * 3))
    assert times.compute_s[:, 0, 0].tolist() == [1, 2, 1]
    assert times.memory_s[:, 0, 0].tolist() == [1, 1, 4]
    assert times.total_s[:, 0, 0].tolist() == [1, 2, 4]


def test_a_gpu_hides_the_dispatch_until_it_is_the_longer() -> None:
    toy = kernels(flops=[[1e12]], data_bytes=[[0.0]], dispatches=np.array([100.0]))
    # The host takes 0.5 s; half a hundredth of it passes before the first kernel starts.
    assert mid_s(toy, fit=efficiency(dispatch_s=0.005)) == pytest.approx(1.0025)
    assert mid_s(toy, fit=efficiency(dispatch_s=0.02)) == pytest.approx(2.0)


def test_a_slower_host_takes_longer_for_everything_but_the_work() -> None:
    toy = kernels(
        flops=[[1e12]],
        data_bytes=[[0.0]],
        dispatches=np.array([100.0]),
        launches=np.array([[10.0]]),
        library_calls=np.array([[2.0]]),
    )
    fit = efficiency(kind="cpu", dispatch_s=0.005, launch_s=0.01, library_s=0.1)

    assert mid_s(toy, kind="cpu", fit=fit) == pytest.approx(1.0 + 0.5 + 0.1 + 0.2)
    slower = device(kind="cpu", host_time_ratio=1.5)
    assert mid_s(toy, kind="cpu", own=slower, fit=fit) == pytest.approx(1.0 + 1.5 * (0.5 + 0.1 + 0.2))


def test_a_cpu_dispatches_on_the_cores_that_compute() -> None:
    toy = kernels(flops=[[1e12]], data_bytes=[[0.0]], dispatches=np.array([100.0]))
    assert mid_s(toy, kind="cpu", fit=efficiency(kind="cpu", dispatch_s=0.005)) == pytest.approx(1.5)


def test_a_copy_to_the_gpu_counts_where_it_is_the_longest() -> None:
    toy = kernels(flops=[[1e12]], data_bytes=[[0.0]], transfer_bytes=np.array([3e10]))
    assert mid_s(toy) == pytest.approx(3.0)  # 10 GB/s


def test_a_paged_state_is_copied_while_the_kernels_of_the_optimizer_wait() -> None:
    # 1 s of kernels, then 3 s of copies at 10 GB/s; a CPU has its state where it computes.
    toy = kernels(flops=[[1e12]], data_bytes=[[0.0]], paged_bytes=np.array([3e10]), transfer_bytes=np.array([3e10]))
    assert mid_s(toy) == pytest.approx(4.0)
    found = step_times(toy, kind="gpu", devices=[device()], efficiencies=[efficiency()])
    assert found.part_ratio[0, PARTS.index("optimizer"), 0, 0] * 4.0 == pytest.approx(3.0)
    assert mid_s(toy, kind="cpu", fit=efficiency(kind="cpu")) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("bound", "changes"),
    [
        ("compute", {"flops": [[1e12]]}),
        ("memory", {"data_bytes": [[1e11]]}),
        ("launch", {"launches": np.array([[200.0]])}),
        ("dispatch", {"dispatches": np.array([200.0])}),
        ("transfer", {"transfer_bytes": np.array([1e12])}),
        ("transfer", {"paged_bytes": np.array([1e12])}),
    ],
)
def test_the_bound_names_what_takes_longest(bound: str, changes: dict[str, object]) -> None:
    toy = kernels(**({"flops": [[1e10]], "data_bytes": [[1e9]]} | changes))
    fits = [efficiency(launch_s=0.01, dispatch_s=0.01)]
    times = step_times(toy, kind="gpu", devices=[device()], efficiencies=fits)
    assert BOUNDS[times.bound[0, 0]] == bound


def test_the_interval_joins_the_devices_error_and_the_families() -> None:
    # Half the time in each of two families that err by 0.3 and 0.4, and a device offset of 0.25:
    # sqrt(0.25^2 + (0.5 x 0.3)^2 + (0.5 x 0.4)^2) = sqrt(0.0625 + 0.0225 + 0.04) = sqrt(0.125)
    toy = kernels(flops=[[1e12], [1e12]], data_bytes=[[0.0], [0.0]], families=("a", "b"), family=np.array([0, 1]))
    fit = efficiency(
        device_log_spread=0.25, families={"a": family(log_spread=0.3), "b": family(log_spread=0.4), "*": family()}
    )
    times = step_times(toy, kind="gpu", devices=[device()], efficiencies=[fit])
    assert times.log_spread[0, 0] == pytest.approx(math.sqrt(0.125))
    assert times.step_low_s[0, 0] == pytest.approx(2 * math.exp(-1.645 * math.sqrt(0.125)))
    assert times.step_high_s[0, 0] == pytest.approx(2 * math.exp(1.645 * math.sqrt(0.125)))


def test_the_models_own_error_is_on_all_devices_alike() -> None:
    # Offsets of 0.3 by the device and 0.4 by the workload: sqrt(0.09 + 0.16) in all.
    fit = efficiency(device_log_spread=0.3, workload_log_spread=0.4)
    times = step_times(kernels(flops=[[1e12]], data_bytes=[[0.0]]), kind="gpu", devices=[device()], efficiencies=[fit])
    assert times.own_log_spread[0, 0] == pytest.approx(0.3)
    assert times.log_spread[0, 0] == pytest.approx(0.5)


@given(WORK, st.floats(1, 100))
def test_more_flop_is_never_faster(flops: float, more: float) -> None:
    before = mid_s(kernels(flops=[[flops]], data_bytes=[[1e10]]))
    assert mid_s(kernels(flops=[[flops * more]], data_bytes=[[1e10]])) >= before * (1 - 1e-9)


@given(WORK, WORK, st.floats(1, 100), st.floats(1, 100))
def test_a_faster_device_is_never_slower(flops: float, moved: float, compute: float, memory: float) -> None:
    toy = kernels(flops=[[flops]], data_bytes=[[moved]])
    faster = device(peak_flops_per_s={"fp32": 1e12, "vector": 1e12 * compute}, memory_bytes_per_s=1e11 * memory)
    assert mid_s(toy, own=faster) <= mid_s(toy) * (1 + 1e-9)


def test_figures_that_are_uncertain_widen_the_error_unless_the_device_was_calibrated() -> None:
    toy = kernels(flops=[[1e12]], data_bytes=[[0.0]])
    guessed = device(id="guessed", log_spread=0.4)

    def own_log_spread(fit: Efficiency) -> float:
        return float(step_times(toy, kind="gpu", devices=[guessed], efficiencies=[fit]).own_log_spread[0, 0])

    assert own_log_spread(efficiency(device_log_spread=0.3)) == pytest.approx(0.5)  # 0.3 and 0.4 at right angles
    assert own_log_spread(efficiency(device_log_spread=0.3, device="guessed")) == pytest.approx(0.3)


def test_kernels_are_timed_once_for_gpus_that_differ_only_in_their_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU runs its kernels itself: two clocks are two times."""
    timed: list[int] = []

    def counted(kernels: Kernels, rates: Rates) -> KernelTimes:
        timed.append(len(rates.memory_bytes_per_s))
        return kernel_times(kernels, rates)

    monkeypatch.setattr(roofline, "kernel_times", counted)
    fit = efficiency(dispatch_s=1.0)
    step = kernels(flops=[[100.0]], data_bytes=[[0.0]], dispatches=np.array([10.0]))
    found = {}
    for kind in ("gpu", "cpu"):
        hosts = [device(kind=kind, host_time_ratio=ratio, host_cpu=name) for ratio, name in ((1.0, "a"), (2.0, "b"))]
        found[kind] = step_times(step, kind=kind, devices=hosts, efficiencies=[fit, fit]).step_s[:, 0].tolist()
    assert timed == [1, 2]
    assert found["gpu"] == [10.0, 20.0]  # the host takes longer than the kernel


def test_a_time_sliced_gpu_may_be_as_fast_as_the_whole_one_but_is_predicted_with_its_share() -> None:
    # A quarter of 1 TFLOP/s and of 100 GB/s: 4 TFLOP take 16 s, on the whole GPU 4 s; without spread.
    toy = kernels(flops=[[4e12]], data_bytes=[[0.0]])
    shared = device(peak_flops_per_s={"vector": 2.5e11, "fp32": 2.5e11}, memory_bytes_per_s=2.5e10, time_ratio=0.25)
    times = step_times(toy, kind="gpu", devices=[shared, device()], efficiencies=[efficiency(), efficiency()])
    assert times.step_s[:, 0] == pytest.approx([16.0, 4.0])
    assert times.step_low_s[:, 0] == pytest.approx([4.0, 4.0])
    assert times.step_high_s[:, 0] == pytest.approx([16.0, 4.0])


def test_a_time_sliced_gpu_that_waits_for_its_host_gains_nothing_from_idle_tenants() -> None:
    toy = kernels(flops=[[1e11]], data_bytes=[[0.0]], dispatches=np.array([1.0]))
    shared = device(time_ratio=0.5)
    times = step_times(toy, kind="gpu", devices=[shared], efficiencies=[efficiency(dispatch_s=3.0)])
    # 0.1 s of kernels; half a dispatch passes before the kernel starts, and all of it before the next step.
    assert times.step_s[0, 0] == times.step_low_s[0, 0] == pytest.approx(3.0)
