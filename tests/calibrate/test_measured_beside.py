"""Timed steps beside what was predicted: which device, which batch, what is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.calibrate.measured_beside import MeasuredHere, Measuring, measure_here
from advisor.calibrate.step_process import MeasureRequest
from advisor.errors import UsageError
from advisor.records.device import Device
from advisor.records.machine import LocalDevice
from advisor.records.timing import StepTiming
from tests.predict.toys import device, efficiency, family, linear_row, workload
from tests.says import assert_says

# 256 FLOP a sample at 1 TFLOP/s; its bytes at 100 GB/s: 8 + 16 floats a sample, 8 x 16 + 16 of weights and bias, and
# the bias copied into the 16 beforehand and read again.
BYTES_AT_8 = 4 * (24 * 8 + 144 + 2 * 16 * 8)
PREDICTED_S = BYTES_AT_8 / 1e11


def local(identifier: str, found: Device | None) -> LocalDevice:
    return LocalDevice(id=identifier, name=identifier, thread_count=4, device=found, profile=None)


CPU = local("cpu", device(kind="cpu", id="toy-cpu", core_count=4.0))
GPU = local("cuda:0", device(kind="gpu", id="toy-gpu", host_to_device_bytes_per_s=1.0))


def timing(batch: int, **changes: Any) -> StepTiming:
    values = {"step_s": 2e-8, "low_s": 1.9e-8, "high_s": 2.2e-8, "step_count": 70, "iqr_ratio": 0.02}
    return StepTiming(batch=batch, **(values | changes))


class Timer:
    """Answers with the batch that it is asked for, and keeps what it was asked."""

    def __init__(self, error: str = "", **changes: Any) -> None:
        self.asked: list[MeasureRequest] = []
        self._error, self._changes = error, changes

    def __call__(self, request: MeasureRequest) -> StepTiming:
        self.asked.append(request)
        if self._error:
            raise UsageError(self._error)
        return timing(request.batch or 0, **self._changes)


def measured(*here: LocalDevice, timer: Timer, batches: tuple[int, ...] = (4, 8, 16), **how: Any) -> MeasuredHere:
    request = MeasureRequest(source="toy.py")
    changes = {name: how.pop(name) for name in ("batch_is_affine", "parameter_bytes") if name in how}
    return measure_here(
        workload(linear_row(), batch=8, **changes),
        here,
        Measuring(request=request, time_it=timer, **({"precision": "fp32"} | how)),
        batches=np.array(batches),
        efficiencies=[efficiency(kind="cpu"), efficiency(kind="gpu")],
    )


def test_the_step_is_timed_at_the_sources_own_batch_and_stands_beside_its_prediction() -> None:
    timer = Timer()

    found = measured(CPU, timer=timer)

    (step,), (anchor,) = found.steps, found.anchors
    assert (timer.asked[0].device, timer.asked[0].batch, timer.asked[0].thread_count) == ("cpu", 8, 4)
    assert (step.device.id, step.batch, step.precision, step.step_count) == ("toy-cpu", 8, "fp32", 70)
    assert (step.step_s.mid, step.step_s.low, step.step_s.high) == (2e-8, 1.9e-8, 2.2e-8)
    assert step.predicted_s.mid == pytest.approx(PREDICTED_S, rel=0.3)  # some of the work overlaps with memory
    assert anchor.predicted_s == step.predicted_s.mid
    assert (found.problems, step.carried_ratio) == ((), 1.0)


def test_the_inputs_lie_on_the_gpu_when_its_step_is_timed() -> None:
    # Copies at 1 byte a second would take minutes.
    (step,) = measured(GPU, timer=Timer()).steps

    assert step.predicted_s.mid < 1e-6


def test_the_first_of_each_kind_is_timed_and_those_that_cannot_be_predicted_are_not() -> None:
    timer = Timer()

    measured(local("cpu", None), GPU, replace(GPU, id="cuda:1"), timer=timer)

    assert [request.device for request in timer.asked] == ["cuda:0"]


def test_a_named_device_alone_is_timed() -> None:
    timer = Timer()

    measured(CPU, GPU, timer=timer, device="cuda:0")

    assert [(request.device, request.thread_count) for request in timer.asked] == [("cuda:0", None)]


def test_a_batch_that_is_predicted_to_take_long_gives_way_to_a_smaller_one() -> None:
    # At 100 byte/s batch 8 takes BYTES_AT_8 / 100 = 13 s, batch 1 (168 floats) 6.7 s, and no batch less than 2 s;
    # at 1 kB/s batch 8 takes 1.3 s.
    slow = local("cpu", device(kind="cpu", memory_bytes_per_s=4e2))
    timer = Timer()

    measured(slow, timer=timer, batches=(1, 8, 64))

    # (24 x 1 + 144) x 4 / 400 = 1.7 s; (24 x 8 + 144) x 4 / 400 = 3.4 s
    assert timer.asked[0].batch == 1


def test_what_was_observed_at_another_batch_is_predicted_there() -> None:
    timer = Timer()

    found = measured(CPU, timer=timer, batch=100)

    assert (timer.asked[0].batch, found.steps[0].batch) == (100, 100)


def test_a_step_that_does_not_grow_in_a_straight_line_is_timed_at_its_own_batch_alone() -> None:
    timer = Timer()

    measured(CPU, timer=timer, batch_is_affine=False)
    found = measured(CPU, timer=timer, batch_is_affine=False, batch=100)

    assert [request.batch for request in timer.asked] == [8]
    (problem,) = found.problems
    assert_says(problem, "machine's cpu", "100", "8")


def test_a_step_that_cannot_be_timed_is_a_warning_with_the_reason() -> None:
    found = measured(CPU, timer=Timer(error="its step needs 9 GiB"))

    assert (found.steps, found.anchors) == ((), ())
    (problem,) = found.problems
    assert_says(problem, "machine's cpu", "its step needs 9 GiB")


def test_the_copy_of_the_parameters_needs_room_too() -> None:
    timer = Timer()

    measured(CPU, timer=timer)
    measured(CPU, timer=timer, parameter_bytes=10**9)

    assert timer.asked[1].needed_bytes - timer.asked[0].needed_bytes == pytest.approx(1e9)


def test_steps_that_lie_far_apart_are_said() -> None:
    (problem,) = measured(CPU, timer=Timer(iqr_ratio=0.4)).problems

    assert_says(problem, "machine's cpu", "40 %")


def test_what_is_shown_is_the_calibrated_prediction_and_what_is_carried_the_error_without_it() -> None:
    # The calibration says that memory has half its rate.
    calibrated = efficiency(kind="cpu", device="toy-cpu", families={"*": family(memory_ratio=0.5)})
    found = measure_here(
        workload(linear_row(), batch=8),
        [CPU],
        Measuring(request=MeasureRequest(source="toy.py"), time_it=Timer(), precision="fp32"),
        batches=np.array([8]),
        efficiencies=[efficiency(kind="cpu"), calibrated],
    )

    assert found.steps[0].time_source == "calibrated"
    assert found.steps[0].predicted_s.mid == pytest.approx(2 * found.anchors[0].predicted_s, rel=0.05)


@pytest.mark.parametrize(("thread_count", "is_said"), [(4, True), (5, False)])
def test_others_that_keep_the_cpus_of_the_step_busy_are_said(thread_count: int, is_said: bool) -> None:
    # Four cores compute; where a fifth hardware thread is there, others may have it.
    machine = replace(CPU, thread_count=thread_count)

    found = measured(machine, timer=Timer(others_cpu_count=1.2))

    assert [step.is_disturbed for step in found.steps] == [is_said]
    assert (len(found.anchors), len(found.problems)) == ((0, 1) if is_said else (1, 0))
    assert all("1.2 CPUs" in problem for problem in found.problems)


def test_without_a_device_that_can_be_predicted_it_says_so() -> None:
    (problem,) = measured(local("cpu", None), timer=Timer()).problems

    assert_says(problem, "no device")


def test_nothing_is_timed_where_nobody_asks_for_it() -> None:
    assert (
        measure_here(workload(linear_row()), [CPU], None, batches=np.array([1]), efficiencies=[efficiency(kind="cpu")])
        == MeasuredHere()
    )
