"""A sample takes one vCPU 0.1 s to load. The step of a toy takes 2 s at batch 10 and 20 s at batch 100."""

from typing import Any

import numpy as np
import pytest

from advisor.cost.job import job_for
from advisor.predict.loader import loading_s, with_loader
from advisor.records.answer import BOUNDS
from advisor.records.device import Device
from advisor.records.options import Options
from advisor.records.prediction import Predictions, Scaling
from advisor.records.scale import Plan
from advisor.scale.predict_on_all import predict_on_all
from tests.cost.toys import predictions
from tests.predict.toys import device, efficiency, operand, row, workload

BATCHES = (10, 100)


def fed(own: Device, *, step_s: tuple[float, float] = (2.0, 20.0), **changes: Any) -> Predictions:
    alone = predictions(own, step_s=[step_s], batches=BATCHES, **changes)
    return with_loader(alone, loader_s_per_sample=0.1)


def test_a_gpu_that_its_host_feeds_in_time_is_as_fast_as_without_loading() -> None:
    # Batch 10 is 1 s of work, on the one vCPU that loads beside the one that drives the GPU: 1 s, less than 2 s.
    found = fed(device(vcpu_count=2))
    assert found.step_s.tolist() == [[2.0, 20.0]]
    assert found.bound.tolist() == [[0, 0]]
    # 1 s of work in a step of 2 s keeps half a vCPU busy, and the GPU one.
    assert found.loader_vcpus is not None
    assert found.loader_vcpus.tolist() == [[1.5, 1.5]]


def test_a_gpu_that_starves_takes_as_long_as_loading() -> None:
    # Steps of 0.2 s and 2 s; 1 s and 10 s of work on 5 - 1 vCPUs are 0.25 s and 2.5 s.
    found = fed(device(vcpu_count=5), step_s=(0.2, 2.0))
    assert found.step_s == pytest.approx(np.array([[0.25, 2.5]]))
    assert {BOUNDS[bound] for bound in found.bound[0]} == {"loader"}
    # 1 s of work in 0.2 s is 5 vCPUs; with the one of the GPU 6, of which it has 5.
    assert found.loader_vcpus == pytest.approx(np.array([[6.0, 6.0]]))
    # Loading errs by nothing. The slow end of the GPU, 0.22 s, is still faster than that.
    assert found.step_high_s == pytest.approx(np.array([[0.25, 2.5]]))
    assert not found.log_spread.any()
    assert not found.own_log_spread.any()


def test_a_gpu_on_the_verge_may_starve_or_not() -> None:
    # 0.25 s of loading lie between 0.24 s and the slow end of the step, 0.264 s.
    found = fed(device(vcpu_count=5), step_s=(0.24, 2.4))
    assert found.step_low_s[0, 0] == found.step_s[0, 0] == pytest.approx(0.25)
    assert found.step_high_s[0, 0] == pytest.approx(0.264)


def test_a_host_of_one_vcpu_does_both_with_it() -> None:
    assert fed(device(vcpu_count=1), step_s=(0.2, 2.0)).step_s[0, 0] == pytest.approx(1.0)


@pytest.mark.parametrize(("vcpus", "loading"), [(0.5, 0.5), (1, 1), (2, 1), (4, 1), (5, 1), (6, 2), (8, 4)])
def test_a_host_of_four_gpus_never_loads_slower_with_more_vcpus(vcpus: float, loading: float) -> None:
    # 10 samples are 1 s of work. One vCPU drives each GPU; a host with no vCPU left loads on one.
    [[seconds]] = loading_s([device(vcpu_count=vcpus)], batches=np.array([10]), loader_s_per_sample=0.1, gpus=4.0)
    assert seconds == pytest.approx(1 / loading)


def test_a_cpu_loads_and_computes_on_the_same_cores() -> None:
    # 1 s of work on 8 vCPUs takes 0.125 s of all of them; the step 2 s: together 2.125 s.
    found = fed(device(kind="cpu", vcpu_count=8))
    assert found.step_s[0, 0] == pytest.approx(2.125)
    # A tenth more of the 2 s alone.
    assert found.step_high_s[0, 0] == pytest.approx(2.2 + 0.125)
    assert found.log_spread[0, 0] == pytest.approx(fed_alone().log_spread[0, 0] * 2 / 2.125)
    # Loading has 1 s / 2.125 s of a vCPU, the share 0.0588 of 8: 2 s of computing last 2 / (1 - 0.0588) = 2.125 s.
    assert found.loader_vcpus is not None
    share = found.loader_vcpus[0, 0] / 8
    assert share == pytest.approx(0.125 / 2.125)
    assert 2 / (1 - share) == pytest.approx(2.125)


def fed_alone() -> Predictions:
    return predictions(device(), step_s=[[2.0, 20.0]], batches=BATCHES)


def test_a_cpu_that_loads_longer_than_it_computes_is_bound_by_the_loader() -> None:
    # 1 s of work on 4 vCPUs, 0.25 s, against 0.2 s and against 0.3 s.
    assert [
        BOUNDS[fed(device(kind="cpu", vcpu_count=4), step_s=(step_s, 20.0)).bound[0, 0]] for step_s in (0.2, 0.3)
    ] == ["loader", "compute"]


def test_nothing_fits_where_the_vcpus_are_not_known() -> None:
    found = fed(device(vcpu_count=None))
    assert not found.fits.any()
    assert np.isinf(found.step_s).all()


def test_loading_is_shared_by_all_vcpus_that_may_load() -> None:
    devices = [device(vcpu_count=4), device(kind="cpu", vcpu_count=4)]
    times_s = loading_s(devices, batches=np.array(BATCHES), loader_s_per_sample=0.3)
    assert times_s == pytest.approx(np.array([[1.0, 10.0], [0.75, 7.5]]))  # 3 s and 30 s over 3 and over 4


def test_prediction_feeds_the_devices_where_a_loader_is_known() -> None:
    # 1e9 elements per sample, 8e9 bytes at 100 GB/s: 0.08 s; 0.5 s of loading on two vCPUs: 0.25 s.
    images = operand((0.0, 1.0), 10**9)
    step = workload(row("aten.relu", (images,), (images,), family="pointwise"))
    alone, waiting = (
        predict_on_all(
            step,
            devices=[device(vcpu_count=3)],
            efficiencies=[efficiency()],
            batches=np.array([1]),
            options=options,
            job=job_for(step, options),
        )
        for options in (Options(precision="fp32"), Options(precision="fp32", loader_s_per_sample=0.5))
    )
    assert (alone.step_s[0, 0], alone.loader_vcpus) == (pytest.approx(0.08), None)
    assert waiting.step_s[0, 0] == pytest.approx(0.25)


def test_a_device_that_cannot_do_the_step_stays_one() -> None:
    endless = np.full((1, 2), np.inf)
    found = fed(
        device(vcpu_count=8), step_s=(np.inf, np.inf), log_spread=endless, own_log_spread=endless, fits=endless < 0
    )
    assert np.isinf(found.step_s).all()
    assert not found.fits.any()


def test_gpus_share_the_host_and_machines_the_batch() -> None:
    # 100 samples are 10 s of work: 5 s on each of 2 machines, on the 6 of 10 vCPUs that do not drive their 4 GPUs.
    spread = Scaling(
        plans=(Plan(machines=2, data=8),),
        plan=np.zeros((1, 2), dtype=np.intp),
        efficiency_ratio=np.ones((1, 2)),
    )
    found = fed(device(vcpu_count=10), step_s=(0.01, 0.1), scaling=spread)
    assert found.step_s[0, 1] == pytest.approx(5 / 6)
    # 5 s of work in 0.1 s, and 4 vCPUs for the GPUs.
    assert found.loader_vcpus is not None
    assert found.loader_vcpus[0, 1] == pytest.approx(54.0)


def test_gpus_that_starve_scale_badly() -> None:
    # 4 GPUs take 1 s for what takes one 4 s. 100 samples are 10 s of work, on the 8 of 12 vCPUs that do not drive a
    # GPU 1.25 s; one GPU with 11 vCPUs does not wait: it is 3.2 times as slow, not 4.
    spread = Scaling(plans=(Plan(data=4),), plan=np.zeros((1, 2), dtype=np.intp), efficiency_ratio=np.ones((1, 2)))
    found = fed(device(vcpu_count=12), step_s=(0.1, 1.0), scaling=spread)
    assert found.scaling is not None
    assert found.scaling.efficiency_ratio[0, 1] == pytest.approx(0.8)


def with_workers(own: Device, workers: int, *, step_s: float) -> float:
    alone = predictions(own, step_s=[(step_s, step_s)], batches=BATCHES)
    return float(with_loader(alone, loader_s_per_sample=0.1, loader_workers=workers).step_s[0, 0])


def test_without_workers_a_batch_is_loaded_before_its_step() -> None:
    # Batch 10 is 1 s of work for the one process, on a GPU's host and on a CPU alike.
    assert with_workers(device(vcpu_count=8), 0, step_s=0.5) == pytest.approx(1.5)
    assert with_workers(device(kind="cpu", vcpu_count=8), 0, step_s=0.5) == pytest.approx(1.5)
    # The processes of 4 GPUs load on a vCPU each, which they do not need meanwhile.
    for vcpus in (4, 5, 8):
        found = loading_s(
            [device(vcpu_count=vcpus)], batches=np.array([10]), loader_s_per_sample=0.1, loader_workers=0, gpus=4.0
        )
        assert found[0, 0] == pytest.approx(1 / 4)


def test_workers_load_on_as_many_vcpus_as_they_are_and_the_machine_has() -> None:
    # 1 s of work by 2 workers is 0.5 s, by 4 on 3 vCPUs (one drives the GPU) 0.33 s.
    assert with_workers(device(vcpu_count=8), 2, step_s=0.2) == pytest.approx(0.5)
    assert with_workers(device(vcpu_count=4), 4, step_s=0.2) == pytest.approx(1 / 3)
    # A CPU of 8: the work takes 1/8 s from the cores, but one worker needs 1 s.
    assert with_workers(device(kind="cpu", vcpu_count=8), 4, step_s=0.5) == pytest.approx(0.625)
    assert with_workers(device(kind="cpu", vcpu_count=8), 1, step_s=0.5) == pytest.approx(1.0)


def test_a_machine_whose_vcpus_are_not_known_has_one_for_each_worker() -> None:
    assert with_workers(device(vcpu_count=None), 2, step_s=0.2) == pytest.approx(0.5)


def test_a_cpu_that_waits_for_one_worker_errs_by_nothing() -> None:
    # 1 s of loading by one worker, of which 1/8 s of all cores; computing takes 0.5 s.
    alone = predictions(device(kind="cpu", vcpu_count=8), step_s=[(0.5, 0.5)], batches=BATCHES)
    found = with_loader(alone, loader_s_per_sample=0.1, loader_workers=1)
    assert (found.step_low_s[0, 0], found.step_high_s[0, 0]) == (1.0, 1.0)
    assert (found.log_spread[0, 0], found.own_log_spread[0, 0]) == (0.0, 0.0)
