"""Every stage of the main job on a tiny model, and what is said where one fails."""

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import platformdirs
import pytest

from advisor.answers.checkup import OLDEST_TORCH, Stages, check_torch, examine, take_inventory
from advisor.catalog.overlay import load_catalog
from advisor.errors import LoadError, ProfileError, TraceError
from advisor.records.machine import Check, Inventory, Machine, TorchSeen
from advisor.records.options import Options
from advisor.records.price import Catalog
from advisor.records.workload import Workload
from advisor.workload.spawn import ChildFailure
from tests.machines import gpu, machine
from tests.says import assert_says

TORCH = TorchSeen(version="2.9.0", thread_count=8)


def look(catalog: Catalog, *, torch: TorchSeen = TORCH) -> Inventory:
    return take_inventory(catalog, read_machine=machine, read_torch=lambda: torch)


def by_name(stages: Stages) -> dict[str, Check]:
    return {check.name: check for check in examine(Options(), stages=stages)}


def look_at(here: Machine) -> Callable[[Catalog], Inventory]:
    return lambda catalog: take_inventory(catalog, read_machine=lambda: here, read_torch=lambda: TORCH)


def untraced(source: str, options: Options) -> Workload:
    """A trace that takes no time."""
    raise TraceError("not tried in this test")


def test_on_this_machine_the_main_job_runs() -> None:
    checks = by_name(Stages(look=look))

    assert [checks[name].state for name in ("profiles", "torch", "trace", "rank", "cpu")] == ["ok"] * 5
    assert checks["trace"].found == "a tiny model, 3 operators"  # two products and a ReLU
    assert not [check for check in checks.values() if check.state == "fails"]


def test_profiles_that_cannot_be_read_end_it_with_their_place_and_remedy() -> None:
    def load(options: Options) -> Catalog:
        raise ProfileError("no date", where="a.yaml:3: date", hint="add one")

    *_, last = examine(Options(), stages=Stages(load=load))

    assert last == Check(name="profiles", state="fails", found="a.yaml:3: date: no date", remedy="add one")


def test_without_torch_nothing_is_traced_and_the_remedy_installs_it() -> None:
    checks = by_name(Stages(look=lambda catalog: look(catalog, torch=TorchSeen(problem="No module named 'torch'"))))

    assert checks["torch"] == Check(
        name="torch", state="fails", found="No module named 'torch'", remedy="pip install 'torch>=2.6'"
    )
    assert "trace" not in checks
    assert "timm" in checks


@pytest.mark.parametrize(
    ("version", "state"),
    [("2.6.0", "ok"), ("2.10.1+cu128", "ok"), ("3.0.0a0+git1234", "ok"), ("2.5.1+cpu", "fails"), ("1.13.1", "fails")],
)
def test_the_version_of_torch_is_compared_number_by_number(version: str, state: str) -> None:
    assert check_torch(version, problem="").state == state


def test_the_oldest_torch_is_that_of_the_package() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())

    assert f"torch>={'.'.join(map(str, OLDEST_TORCH))}" in pyproject["project"]["dependencies"]


@pytest.mark.parametrize("error", [TraceError("a step failed", hint="look"), ChildFailure("Traceback ...")])
def test_a_trace_that_fails_is_quoted(error: Exception) -> None:
    def trace(source: str, options: Options) -> Workload:
        raise error

    checks = by_name(Stages(look=look, trace=trace))

    assert (checks["trace"].state, checks["trace"].found) == ("fails", str(error))
    assert checks["trace"].remedy
    assert "rank" not in checks


def test_a_torchvision_that_a_file_cannot_import_is_not_ok() -> None:
    pytest.importorskip("torchvision")

    def trace(source: str, options: Options) -> Workload:
        if "import torchvision" in Path(source).read_text():
            raise LoadError("operator torchvision::nms does not exist")
        return Stages().trace(source, options)

    checks = by_name(Stages(look=look, trace=trace))

    assert checks["trace"].state == "ok"
    assert checks["torchvision"].state == "missing"
    assert "torchvision::nms" in checks["torchvision"].found
    assert checks["torchvision"].remedy


def test_a_catalog_without_offers_cannot_rank() -> None:
    checks = by_name(Stages(load=lambda options: replace(load_catalog(), offers=(), rejected=()), look=look))

    assert checks["rank"].state == "fails"
    assert checks["rank"].found


def test_a_cache_folder_that_cannot_be_written_is_missing_but_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "file" / name)

    check = by_name(Stages(look=look, trace=untraced))["cache folder"]

    assert check.state == "missing"
    assert check.found.endswith("Not a directory")


def test_a_device_without_a_profile_that_is_calibrated_is_ok() -> None:
    here = machine(cpu_name="AMD EPYC")

    def look_at_calibrated(catalog: Catalog) -> Inventory:
        found = look_at(here)(catalog)
        ids = [local.device.id for local in found.devices if local.device is not None]
        return replace(found, calibrated_at=dict.fromkeys(ids, "2026-11-21T12:00:00+00:00"))

    found = by_name(Stages(look=look_at_calibrated, trace=untraced))

    assert found["cpu"].state == "ok"
    assert found["cpu"].found.endswith("; calibrated 2026-11-21")


def test_a_device_without_a_profile_is_missing_with_what_helps() -> None:
    here = machine(cpu_name="AMD EPYC", gpus=(gpu("Riva TNT"),))

    found = by_name(Stages(look=look_at(here), trace=untraced))

    assert (found["cpu"].state, found["cpu"].remedy) == ("missing", "`advise calibrate` measures it")
    assert found["cuda:0"].state == "missing"
    assert_says(found["cuda:0"].found, "Riva TNT", "no profile")
