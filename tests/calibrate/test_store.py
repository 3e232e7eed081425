from dataclasses import replace
from pathlib import Path

import pytest

from advisor.calibrate import store
from advisor.catalog.device_files import read_efficiencies
from advisor.records.calibration import Calibration
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


def of_program(kept: Calibration, program: str) -> Calibration:
    return replace(kept, key=replace(kept.key, program=program))


def unreadable(file: Path) -> Path:
    """As a version left it that wrote another field."""
    file.write_text(file.read_text().replace("\n---\n", "\nfield_of_an_old_version: 1\n---\n", 1))
    return file


def test_a_new_calibration_removes_files_of_its_device_that_cannot_be_read() -> None:
    old = unreadable(store.keep(of_program(calibration(), "old-1")))
    assert len(store.read_stored().problems) == 1

    file = store.keep(calibration())

    assert file != old
    assert store.read_stored() == store.Stored(calibrations=(calibration(),))
    assert not old.exists()


def test_a_new_calibration_removes_those_of_its_device_by_another_version_of_the_code(folder: Path) -> None:
    store.keep(of_program(calibration(), "old-1"))
    store.keep(of_program(calibration(), "older-1"))

    file = store.keep(calibration())

    assert list(folder.iterdir()) == [file]


def test_a_new_calibration_leaves_another_device_and_another_datasheet_alone(folder: Path) -> None:
    here = calibration()
    code = store.code_of(here.key)
    # The other device's name begins with this one's.
    other = replace(here, key=replace(here.key, device=f"{here.key.device}-2", program="old-1"))
    broken, sound = store.keep(other), store.keep(replace(other, key=replace(other.key, torch="9.9")))
    unreadable(broken)
    with_other_datasheet = store.keep(of_program(here, f"{code}-1"))
    (folder / "notes.yaml").write_text("of the user's own")

    file = store.keep(here)

    assert set(folder.iterdir()) == {broken, sound, with_other_datasheet, folder / "notes.yaml", file}


def test_a_write_that_fails_removes_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = store.keep(of_program(calibration(), "old-1"))

    def fail(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        store.keep(calibration())

    assert list(folder.iterdir()) == [old]


def test_a_file_that_cannot_be_removed_is_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = store.keep(of_program(calibration(), "old-1"))
    unlink = Path.unlink

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if self == old:
            raise PermissionError(13, "Permission denied")
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    file = store.keep(calibration())

    assert set(folder.iterdir()) == {old, file}


def test_an_export_is_a_profile_of_efficiencies(tmp_path: Path) -> None:
    kept = calibration()
    twice = (*kept.efficiencies, replace(kept.efficiencies[0], precision="half"))
    file = tmp_path / "here.yaml"

    file.write_text(store.profile_text(twice))

    assert tuple(read_efficiencies([file])) == twice
