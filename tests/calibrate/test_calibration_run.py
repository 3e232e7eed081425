from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.calibrate import store
from advisor.calibrate.calibration_run import calibrate
from advisor.calibrate.in_force import calibration_notes, calibrations_in_force, with_calibrations
from advisor.calibrate.operator_process import TimingRequest
from advisor.errors import UsageError
from advisor.predict.efficiency import efficiency_of
from advisor.records.calibration import Calibrated, NotCalibrated, Timings
from advisor.records.device import Efficiency
from advisor.records.machine import LocalGpu, Machine
from tests.calibrate.toys import EPYC, WITH_T4, catalog, local, shipped, slower, timed_by, timings

CATALOG = catalog()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(store, "folder", lambda: tmp_path / "calibrations")
    return tmp_path / "calibrations"


class Recorded:
    """A timer that has been asked, and answers with a device at `ratio` of what is shipped."""

    def __init__(self, machine: Machine, *, ratio: float = 0.5, others_cpu_count: float = 0.0) -> None:
        self.requests: list[TimingRequest] = []
        self._machine, self._ratio, self._others = machine, ratio, others_cpu_count

    def __call__(self, request: TimingRequest) -> Timings:
        self.requests.append(request)
        device = local(self._machine, request.device)
        operators = timed_by(slower(shipped(device), self._ratio), device)
        return timings(operators, others_cpu_count=self._others)


def run(on: str | None, machine: Machine = EPYC, *, timer: Any = None, **more: Any) -> list[Calibrated]:
    values = {"budget_s": 10.0, "time_them": timer or Recorded(machine)} | more
    found = list(calibrate(on, machine=machine, catalog=CATALOG, **values))
    return [one for one in found if isinstance(one, Calibrated)]


def test_a_calibration_is_kept_and_in_force_from_then_on() -> None:
    (made,) = run("cpu")

    assert made.file is not None
    assert calibrations_in_force(EPYC, CATALOG).calibrations == store.read_stored().calibrations
    assert store.read_stored().calibrations[0].key == made.calibration.key


def test_precisions_that_are_not_timed_again_stay_as_they_were() -> None:
    run("cuda:0", WITH_T4)
    before = kept_efficiencies()

    run("cuda:0", WITH_T4, precisions=("fp32",), timer=Recorded(WITH_T4, ratio=0.25))

    after = kept_efficiencies()
    assert before.keys() == after.keys() == {"fp32", "half"}
    assert after["half"] == before["half"]
    assert after["fp32"] != before["fp32"]


def test_a_calibration_is_as_old_as_its_oldest_precision_and_warns_of_all() -> None:
    """On a noisy day all of it, on a quiet one fp32 alone."""

    def noisy(request: TimingRequest) -> Timings:
        quiet = Recorded(WITH_T4)(request)
        return replace(quiet, operators=tuple(replace(one, iqr_ratio=0.2) for one in quiet.operators))

    (first,) = run("cuda:0", WITH_T4, timer=noisy)
    earlier = replace(first.calibration, at="2026-11-01T00:00:00+00:00")
    store.keep(earlier)

    (again,) = run("cuda:0", WITH_T4, precisions=("fp32",))
    (whole,) = run("cuda:0", WITH_T4)

    assert again.calibration.at == earlier.at
    assert again.calibration.warnings == earlier.warnings != ()
    assert whole.calibration.at > earlier.at
    assert whole.calibration.warnings == ()


@pytest.mark.parametrize("core_count", [2.5, 1.5])
def test_a_share_of_a_core_does_not_end_a_calibration(core_count: float) -> None:
    """A container with a quota of 2.5 CPUs runs two threads."""
    quota = replace(EPYC, core_count=core_count, thread_count=3)
    run("cpu", quota)

    assert len(calibrations_in_force(quota, CATALOG).calibrations) == 1


def kept_efficiencies() -> dict[str, Efficiency]:
    (kept,) = store.read_stored().calibrations
    return {one.precision: one for one in kept.efficiencies}


def test_every_device_is_calibrated_unless_one_is_named() -> None:
    assert [made.calibration.key.device for made in run(None, WITH_T4)] == ["amd-epyc-7763", "t4"]
    assert [made.calibration.key.device for made in run("cuda", WITH_T4)] == ["t4"]


def test_the_gpu_of_a_mac_is_timed_in_fp32_alone() -> None:
    """It has no units for 16 bits and no TF32; the answers of the timer are recorded, no Mac ran this."""
    mps = LocalGpu(id="mps", name="Apple M4 10-core GPU", memory_bytes=11.5e9)
    mac = replace(EPYC, cpu_name="Apple M4", cpu_signature=None, isa=("asimd",), gpus=(mps,))
    timer = Recorded(mac)

    (made,) = run("mps", mac, timer=timer)

    (request,) = timer.requests
    assert (request.device, request.precisions, request.thread_count) == ("mps", ("fp32",), None)
    assert made.calibration.key.device == "apple-m4-10-core-gpu"
    assert len(calibrations_in_force(mac, CATALOG).calibrations) == 1


def test_a_gpu_is_timed_at_the_precisions_that_it_has() -> None:
    timer = Recorded(WITH_T4)

    (made,) = run("cuda:0", WITH_T4, timer=timer)

    # Turing has tensor cores for half, none for TF32 or bf16.
    assert timer.requests[0].precisions == ("fp32", "amp-fp16")
    assert timer.requests[0].thread_count is None
    assert [one.precision for one in made.calibration.efficiencies] == ["fp32", "half"]
    assert (made.calibration.key.driver, made.calibration.key.power_limit_w) == ("550.54", 70.0)


def test_fewer_threads_are_as_many_cores() -> None:
    timer = Recorded(replace(EPYC, core_count=2.0))

    (made,) = run("cpu", timer=timer, thread_count=2)

    assert timer.requests[0].thread_count == 2
    assert (made.calibration.key.core_count, made.calibration.key.thread_count) == (2.0, 2)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"on": "cuda:0"}, "--on cuda:0: this machine has no such device"),
        ({"on": "toaster"}, "--on toaster: this machine has no such device"),
        ({"budget_s": 0.0}, "0 s is too short"),
        ({"thread_count": 64}, "--threads 64: this process may use only 4 cores"),
        ({"precisions": ("fp16",)}, "--precision fp16"),
    ],
)
def test_what_cannot_be_done_is_said(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        run(**({"on": "cpu"} | asked))

    assert store.read_stored() == store.Stored()


def test_what_is_disturbed_too_much_does_not_take_the_place_of_an_earlier_calibration() -> None:
    (first,) = run("cpu")

    (made,) = run("cpu", timer=Recorded(EPYC, others_cpu_count=4.0))

    assert made.is_disturbed
    assert made.file is None
    assert store.read_stored().calibrations[0].at == first.calibration.at
    assert store.read_stored().calibrations[0].warnings == ()


def test_a_folder_that_takes_no_file_is_said_and_the_result_stands(folder: Path) -> None:
    folder.parent.joinpath("calibrations").write_text("a file where the folder would be")

    (made,) = run("cpu")

    assert made.file is None
    assert "cannot be written" in made.problem
    assert made.calibration.n == 10


def test_an_interrupt_keeps_what_was_timed_and_goes_on_to_no_other_device() -> None:
    def interrupted(request: TimingRequest) -> Timings:
        return replace(Recorded(WITH_T4)(request), is_interrupted=True)

    (made,) = run(None, WITH_T4, timer=interrupted)

    assert made.file is not None


def test_an_interrupt_does_not_lose_an_earlier_calibration_of_more_operators() -> None:
    def interrupted(request: TimingRequest) -> Timings:
        whole = Recorded(EPYC)(request)
        return replace(whole, operators=whole.operators[:2], is_interrupted=True)

    run("cpu")
    (made,) = run("cpu", timer=interrupted)

    assert "interrupted" in made.problem
    assert store.read_stored().calibrations[0].n == 10


def test_a_gpu_that_cannot_be_timed_is_passed_over_unless_it_is_named() -> None:
    def blind(request: TimingRequest) -> Timings:
        if request.device == "cuda:0":
            raise UsageError("cuda:0 cannot be timed: torch sees 0 CUDA devices")
        return Recorded(WITH_T4)(request)

    found = list(calibrate(None, machine=WITH_T4, catalog=CATALOG, budget_s=10.0, time_them=blind))

    assert isinstance(found[0], Calibrated)
    assert found[1] == NotCalibrated(device="t4", reason="cuda:0 cannot be timed: torch sees 0 CUDA devices")
    with pytest.raises(UsageError, match="sees 0 CUDA devices"):
        run("cuda:0", WITH_T4, timer=blind)


def test_a_gpu_without_a_profile_is_passed_over_with_the_reason() -> None:
    unknown = replace(WITH_T4, gpus=(replace(WITH_T4.gpus[0], name="Toaster 9000"),))

    found = list(calibrate(None, machine=unknown, catalog=CATALOG, budget_s=10.0, time_them=Recorded(unknown)))

    assert isinstance(found[0], Calibrated)
    assert isinstance(found[1], NotCalibrated)
    assert (found[1].device, found[1].reason[:31]) == ("cuda:0", "Toaster 9000: it has no profile")


@pytest.mark.parametrize("change", [{"driver": "560.0"}, {"power_limit_w": 60.0}])
def test_a_calibration_of_a_gpu_ends_with_its_driver_and_its_power_limit(change: dict[str, Any]) -> None:
    run("cuda:0", WITH_T4)
    changed = replace(WITH_T4, gpus=(replace(WITH_T4.gpus[0], **change),))

    assert len(calibrations_in_force(WITH_T4, CATALOG).calibrations) == 1
    assert calibrations_in_force(changed, CATALOG).calibrations == ()


def test_a_calibration_is_not_in_force_on_another_machine() -> None:
    run("cpu")

    assert calibrations_in_force(replace(EPYC, cpu_name="AMD EPYC 9654"), CATALOG).calibrations == ()


def test_only_the_same_device_with_as_many_cores_is_predicted_from_it() -> None:
    (made,) = run("cpu")
    efficiencies = with_calibrations(CATALOG, [made.calibration]).efficiencies
    device = local(EPYC)

    def found(one: Any) -> str:
        return efficiency_of(one, precision="fp32", efficiencies=efficiencies).device

    assert found(device) == "amd-epyc-7763"
    assert found(replace(device, core_count=8.0)) == "*"
    assert found(replace(device, id="amd-epyc-7773x")) == "*"
    assert efficiency_of(device, precision="tf32", efficiencies=efficiencies).device == "*"


def test_an_answer_that_rests_on_a_calibration_says_so_with_its_age_and_its_disturbances() -> None:
    run("cpu", timer=Recorded(EPYC, others_cpu_count=1.0))
    stored = calibrations_in_force(EPYC, CATALOG)

    first, second = calibration_notes(stored, used=frozenset({"amd-epyc-7763"}))

    assert first == "amd-epyc-7763 with 4 cores: calibrated just now"
    assert "other processes kept 1.0 CPUs busy" in second
    assert list(calibration_notes(stored, used=frozenset({"t4"}))) == []
