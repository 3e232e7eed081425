"""The devices of this machine: torch's view of them, their profiles, and the calibrations in force."""

from dataclasses import replace
from pathlib import Path

import platformdirs
import pytest

from advisor.answers.checkup import take_inventory
from advisor.calibrate import store
from advisor.calibrate.in_force import key_of, targets
from advisor.catalog.overlay import load_catalog
from advisor.records.machine import Inventory, Machine, TorchSeen
from advisor.records.price import Catalog
from tests.calibrate.toys import EPYC, calibration
from tests.machines import gpu, machine
from tests.says import assert_says


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / name)


def inventory(
    catalog: Catalog, here: Machine, *, torch: TorchSeen | None = None, with_others: bool = False
) -> Inventory:
    seen = torch or TorchSeen(version="2.9.0", thread_count=8)
    return take_inventory(catalog, with_others=with_others, read_machine=lambda: here, read_torch=lambda: seen)


def test_the_devices_at_hand_stand_beside_their_profiles(catalog: Catalog) -> None:
    found = inventory(catalog, machine(notes=("a note",)))

    assert [(local.id, local.profile.id) for local in found.devices if local.profile] == [("cpu", "amd-epyc-7763")]
    assert (found.calibrated_at, found.others, found.notes) == ({}, (), ("a note",))


def test_all_other_profiles_are_listed_where_asked_for(catalog: Catalog) -> None:
    found = inventory(catalog, machine(), with_others=True)

    assert len(found.others) == len(catalog.gpus) + len(catalog.cpus) - 1
    assert "amd-epyc-7763" not in {profile.id for profile in found.others}


def test_a_gpu_that_torch_does_not_see_is_said(catalog: Catalog) -> None:
    here = machine(gpus=(gpu("Tesla T4"), gpu("Tesla T4", id="cuda:1")))
    seen = TorchSeen(version="2.9.0", thread_count=8, gpus=(gpu("Tesla T4"),))

    found = inventory(catalog, here, torch=seen)

    (note,) = found.notes
    assert_says(note, "torch 2.9.0", "not see", "cuda:1", "Tesla T4", "driver")


def test_a_torch_that_does_not_answer_is_said_once(catalog: Catalog) -> None:
    found = inventory(catalog, machine(gpus=(gpu("Tesla T4"),)), torch=TorchSeen(problem="No module named 'torch'"))

    (note,) = found.notes
    assert_says(note, "torch", "No module named 'torch'")


def test_a_file_in_the_cache_that_is_no_calibration_is_said(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "advisor" / "calibrations").mkdir(parents=True)
    (tmp_path / "advisor" / "calibrations" / "broken.yaml").write_text("{")

    (note,) = inventory(catalog, machine()).notes

    assert "broken.yaml" in note


def test_a_gpu_that_torch_alone_sees_is_said(catalog: Catalog) -> None:
    seen = TorchSeen(version="2.9.0", thread_count=8, gpus=(gpu("Tesla T4"),))

    (note,) = inventory(catalog, machine(), torch=seen).notes

    assert_says(note, "torch 2.9.0", "cuda:0", "Tesla T4", "driver")
    assert "not see" not in note


def test_a_calibration_at_fewer_threads_is_not_that_of_the_cpu(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "folder", lambda: tmp_path / "calibrations")
    one_core = targets(EPYC, catalog, thread_count=1)[0]
    assert one_core.device is not None
    kept = calibration()
    store.keep(replace(kept, key=key_of(one_core, one_core.device, EPYC, thread_count=1)))
    assert inventory(catalog, EPYC).calibrated_at == {}

    store.keep(kept)
    assert inventory(catalog, EPYC).calibrated_at == {"amd-epyc-7763": kept.at}
