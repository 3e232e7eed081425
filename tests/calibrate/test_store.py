from dataclasses import replace
from pathlib import Path

import pytest

from advisor.calibrate import store
from advisor.catalog.device_files import read_efficiencies
from tests.calibrate.toys import calibration
from tests.says import assert_says

BAD_DATE = store.calibration_text(calibration(at="yesterday"))
NO_ZONE = store.calibration_text(calibration(at="2026-11-21T12:00:00"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(store, "folder", lambda: tmp_path / "calibrations")
    return tmp_path / "calibrations"


def test_what_is_kept_is_read_back_as_it_was() -> None:
    kept = calibration(warnings=('others took "all" of it', "hot"))

    store.keep(kept)

    assert store.read_stored() == store.Stored(calibrations=(kept,))


def test_what_is_kept_of_a_gpu_holds_its_copies() -> None:
    kept = calibration(host_to_device_bytes_per_s=2.5e10)

    store.keep(kept)

    assert store.read_stored().calibrations[0].host_to_device_bytes_per_s == 2.5e10


def test_the_same_device_under_the_same_conditions_has_one_file() -> None:
    first, second = calibration(), calibration(at="2026-11-22T12:00:00+00:00")

    assert store.keep(first) == store.keep(second)
    assert store.read_stored().calibrations == (second,)


def test_the_conditions_come_back_to_the_last_digit() -> None:
    first = calibration()
    kept = replace(first, key=replace(first.key, power_limit_w=115.25, core_count=2.5))

    store.keep(kept)

    assert store.read_stored().calibrations == (kept,)


@pytest.mark.parametrize("change", [{"torch": "9.9"}, {"thread_count": 2}, {"driver": "1.0"}, {"power_limit_w": 50.0}])
def test_other_conditions_have_a_file_of_their_own(change: dict[str, object]) -> None:
    first = calibration()
    other = replace(first, key=replace(first.key, **change))

    assert store.keep(first) != store.keep(other)
    assert len(store.read_stored().calibrations) == 2


@pytest.mark.parametrize("text", ["", "{", "hello", "device: t4\n", "a: 1\n---\nb: 2\n", "\x00", BAD_DATE, NO_ZONE])
def test_a_file_that_is_no_calibration_is_named_and_left_out(folder: Path, text: str) -> None:
    store.keep(calibration())
    (folder / "broken.yaml").write_text(text)

    stored = store.read_stored()

    assert stored.calibrations == (calibration(),)
    assert len(stored.problems) == 1
    assert "broken.yaml" in stored.problems[0]


def test_one_message_serves_all_files_that_are_no_calibrations(folder: Path) -> None:
    store.keep(calibration())
    for name in ("old.yaml", "older.yaml"):
        (folder / name).write_text("a: 1\n---\nb: 2\n")
    (problem,) = store.read_stored().problems
    assert_says(problem, "old.yaml", "2 files", "advise calibrate")


def test_a_file_cut_short_at_any_line_is_named_and_left_out(folder: Path) -> None:
    first = calibration().efficiencies[0]
    file = store.keep(calibration(efficiencies=(first, replace(first, precision="half"))))
    lines = file.read_text().splitlines()
    for count in range(1, len(lines)):
        file.write_text("\n".join(lines[:count]))

        stored = store.read_stored()

        assert (stored.calibrations, len(stored.problems)) == ((), 1), count


def test_a_new_calibration_takes_the_place_of_a_broken_file() -> None:
    file = store.keep(calibration())
    file.write_text("broken")

    store.keep(calibration())

    assert store.read_stored() == store.Stored(calibrations=(calibration(),))


def test_a_write_that_fails_leaves_the_former_file_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.keep(calibration())

    def fail(self: Path, target: Path) -> Path:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="Read-only"):
        store.keep(calibration(n=1))

    assert store.read_stored().calibrations == (calibration(),)
    assert [file.suffix for file in folder.iterdir()] == [".yaml"]


def test_an_export_is_a_profile_of_efficiencies(tmp_path: Path) -> None:
    kept = calibration()
    twice = (*kept.efficiencies, replace(kept.efficiencies[0], precision="half"))
    file = tmp_path / "here.yaml"

    file.write_text(store.profile_text(twice))

    assert tuple(read_efficiencies([file])) == twice
