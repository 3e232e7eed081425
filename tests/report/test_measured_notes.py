"""The sentences on steps that were timed on this machine."""

from dataclasses import replace

from advisor.records.answer import Interval, MeasuredStep, QuotedDevice
from advisor.records.device import DeviceKind
from advisor.report.quote_notes import measured_notes
from tests.says import assert_says


def step(kind: DeviceKind, *, carried_ratio: float = 1.0, loader_wait_s: float | None = None) -> MeasuredStep:
    """Measured 0.1 s, predicted 0.08 s."""
    return MeasuredStep(
        device=QuotedDevice(id="toy", name="Toy", kind=kind, count=1),
        batch=1024,
        precision="fp32",
        compile="eager",
        step_s=Interval(mid=0.1, low=0.09, high=0.12),
        step_count=25,
        iqr_ratio=0.02,
        predicted_s=Interval(mid=0.08, low=0.05, high=0.1),
        time_source="fitted",
        carried_ratio=carried_ratio,
        loader_wait_s=loader_wait_s,
    )


def test_measured_and_predicted_stand_side_by_side() -> None:
    first, *_ = measured_notes([step("cpu")])

    # 0.08 / 0.1 - 1 = -20 %
    assert_says(
        first,
        *("batch 1,024", "fp32", "100 ms [90-120]", "Toy", "25 steps"),
        *("predicted", "80 ms [50-100]", "20 % less"),
    )


def test_beyond_twofold_the_difference_is_a_factor() -> None:
    slow = replace(step("cpu"), step_s=Interval(mid=0.4, low=0.3, high=0.5))

    # 0.08 / 0.4 = 1 / 5
    assert_says(next(measured_notes([slow])), "80 ms [50-100]", "5x less")


def test_a_cpu_says_that_nothing_is_carried() -> None:
    _, note = measured_notes([step("cpu")])
    assert_says(note, "CPU", "not")


def test_a_gpu_says_what_became_of_the_others() -> None:
    _, note = measured_notes([step("gpu", carried_ratio=1.15)])
    assert_says(note, "GPUs", "15 % more")


def test_what_the_device_waited_for_its_data_is_said() -> None:
    assert_says(" ".join(measured_notes([step("gpu", loader_wait_s=0.03)])), "waited 30 ms")
    assert "waited" not in " ".join(measured_notes([step("gpu")]))


def test_without_a_timed_step_nothing_is_said() -> None:
    assert list(measured_notes([])) == []


def test_a_disturbed_step_is_marked_and_not_compared() -> None:
    (note,) = measured_notes([replace(step("cpu", carried_ratio=1.0), is_disturbed=True)])
    assert "disturbed" in note
    assert " less" not in note
    assert " more" not in note
