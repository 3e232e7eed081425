from dataclasses import replace
from pathlib import Path

import pytest

from advisor.calibrate import store
from advisor.calibrate.first_use import calibrations_on_first_use
from advisor.calibrate.store import Stored
from advisor.catalog.overlay import load_catalog
from advisor.errors import UsageError
from advisor.records.calibration import Calibrated
from advisor.records.machine import Machine
from tests.calibrate.toys import EPYC, calibration
from tests.says import assert_says


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(store, "folder", lambda: tmp_path)
    return tmp_path


def first_use(made: Calibrated | UsageError, *, busy: float = 0.0, machine: Machine = EPYC) -> tuple[Stored, int]:
    """Return the calibrations that the ranking uses, and how often the CPU was calibrated for it."""
    count = 0

    def calibrate_cpu(*_: object) -> Calibrated:
        nonlocal count
        count += 1
        if isinstance(made, UsageError):
            raise made
        return made

    stored = calibrations_on_first_use(
        machine, load_catalog(), calibrate_cpu=calibrate_cpu, busy_cpu_count=lambda: busy
    )
    return stored, count


def test_a_first_ranking_calibrates_the_cpu_and_uses_it() -> None:
    stored, count = first_use(Calibrated(calibration=calibration()))

    assert (stored.calibrations, stored.problems, count) == ((calibration(),), (), 1)


def test_a_second_ranking_uses_what_is_kept() -> None:
    store.keep(calibration())

    stored, count = first_use(Calibrated(calibration=calibration(n=1)))

    assert (stored.calibrations, count) == ((calibration(),), 0)


def test_a_busy_machine_is_not_calibrated_and_the_answer_says_why() -> None:
    stored, count = first_use(Calibrated(calibration=calibration()), busy=1.4)

    assert (stored.calibrations, count) == ((), 0)
    assert "other processes keep 1.4 CPUs busy" in stored.problems[0]


def test_a_calibration_at_fewer_threads_is_not_the_cpus() -> None:
    kept = calibration()
    store.keep(replace(kept, key=replace(kept.key, core_count=1.0, thread_count=1)))

    assert first_use(Calibrated(calibration=kept))[1] == 1


def test_others_are_welcome_to_cpus_of_the_mask_that_the_quota_leaves_unused() -> None:
    """Two cores' worth of a host with 64: what keeps 20 of them busy takes nothing from these."""
    in_container = replace(EPYC, core_count=2.0, thread_count=2, affinity_count=64)

    assert first_use(Calibrated(calibration=calibration()), busy=20.0, machine=in_container)[1] == 1
    assert first_use(Calibrated(calibration=calibration()), busy=63.0, machine=in_container)[1] == 0


def test_where_no_calibration_can_be_kept_none_is_made_at_each_ranking(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "file").write_text("where the folder would be")
    monkeypatch.setattr(store, "folder", lambda: folder / "file")

    stored, count = first_use(Calibrated(calibration=calibration()))

    assert count == 0
    assert "cannot be written" in stored.problems[0]
    assert "XDG_CACHE_HOME" in stored.problems[0]


def test_a_calibration_that_cannot_be_kept_is_used_all_the_same() -> None:
    stored, _ = first_use(Calibrated(calibration=calibration(), problem="it cannot be kept: Read-only file system"))

    assert stored.calibrations == (calibration(),)
    assert "Read-only file system" in stored.problems[0]


def test_a_calibration_that_was_disturbed_too_much_is_not_used() -> None:
    stored, _ = first_use(Calibrated(calibration=calibration(), problem="it is not kept", is_disturbed=True))

    assert stored.calibrations == ()


def test_a_machine_that_cannot_be_timed_is_ranked_from_its_datasheet() -> None:
    stored, _ = first_use(UsageError("no operator could be timed in 5 s"))

    assert stored == Stored(problems=stored.problems)
    (problem,) = stored.problems
    assert_says(problem, "CPU", "no operator could be timed in 5 s")
