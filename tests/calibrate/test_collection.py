"""Calibrations from two machines, merged into profiles and used in a ranking."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.answers.ranking import rank
from advisor.calibrate.collection import collect
from advisor.calibrate.in_force import key_of, targets
from advisor.calibrate.store import calibration_text
from advisor.catalog.device_files import read_efficiencies
from advisor.catalog.overlay import load_catalog
from advisor.errors import UsageError
from advisor.question.from_source import catalog_of, question_of
from advisor.records.answer import Quote
from advisor.records.calibration import Calibration
from advisor.records.machine import Machine
from advisor.records.options import Options
from tests.calibrate.toys import EPYC, WITH_T4, calibration, local, shipped, slower
from tests.predict.toys import operand, row, workload
from tests.says import assert_says

CATALOG = load_catalog()


def came_back(folder: Path, name: str, kept: Calibration) -> Path:
    file = folder / "back" / name / f"{kept.key.device}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(calibration_text(kept))
    return file


def of_t4(*, slower_by: float = 1.0, **changes: Any) -> Calibration:
    """A calibration of the T4, which computes and streams that share of what is shipped, in fp32."""
    gpu = next(one for one in targets(WITH_T4, CATALOG) if one.id == "cuda:0")
    assert gpu.device is not None
    base = shipped(gpu.device)
    own = replace(slower(base, slower_by), device="t4", precision="fp32", fitted_on=("t4",))
    key = key_of(gpu, gpu.device, WITH_T4, thread_count=None)
    return calibration(WITH_T4, key=key, efficiencies=(own,), **changes)


def with_torch(kept: Calibration, version: str) -> Calibration:
    return replace(kept, key=replace(kept.key, torch=version))


def sustained(folder: Path, name: str) -> list[float]:
    """The memory ratio of pointwise kernels in each document of a profile."""
    return [one.families["pointwise"].memory_ratio for one in read_efficiencies([folder / "efficiency" / name])]


def test_each_device_has_a_profile(tmp_path: Path) -> None:
    came_back(tmp_path, "aws-g4dn-xlarge", of_t4())
    came_back(tmp_path, "azure-d8", calibration())
    found = collect(tmp_path, CATALOG)
    assert [(one.device, one.core_count, one.file.name) for one in found.devices] == [
        ("t4", None, "t4.yaml"),
        ("amd-epyc-7763", 4.0, "amd-epyc-7763-4-cores.yaml"),
    ]
    assert found.problems == ()


def ranked(profiles: Path | None) -> Iterator[Quote]:
    """A step that only streams, in fp32 on both of Turing's that are rented: 2 GB in and 2 GB out."""
    images = operand((0.0, 250_000_000.0))
    options = Options(batch="2", device=("t4", "quadro-rtx-6000"), precision="fp32", no_local=True, top=1000)
    options = replace(options, profiles=None if profiles is None else str(profiles))
    step = workload(row("aten.relu", (images,), (images,), family="pointwise"))
    yield from rank(question_of(step, options, catalog=catalog_of(options))).quotes


def test_what_was_collected_is_what_a_ranking_rests_on(tmp_path: Path) -> None:
    came_back(tmp_path, "aws-g4dn-xlarge", of_t4(slower_by=0.5))
    came_back(tmp_path, "azure-d8", calibration())
    collect(tmp_path, CATALOG)
    before = {quote.id: quote for quote in ranked(None)}
    after = {quote.id: quote for quote in ranked(tmp_path)}
    assert {quote.device.id for quote in after.values()} == {"t4", "quadro-rtx-6000"}
    for name, quote in after.items():
        is_t4 = quote.device.id == "t4"
        assert (quote.time_source == "calibrated") is is_t4
        # Half of the bandwidth takes twice as long; others of its generation are as they were.
        assert quote.step_s.mid == pytest.approx(before[name].step_s.mid * (2 if is_t4 else 1), rel=0.01)


def test_the_newest_torch_holds_and_the_other_is_named(tmp_path: Path) -> None:
    older = came_back(tmp_path, "a", with_torch(of_t4(slower_by=0.5, n=82), "2.9.1+cu128"))
    newer = came_back(tmp_path, "b", with_torch(of_t4(slower_by=0.25, n=10), "2.10.0"))
    found = collect(tmp_path, CATALOG)
    whole = shipped(local(WITH_T4, "cuda:0")).families["pointwise"].memory_ratio
    assert sustained(tmp_path, "t4.yaml") == [pytest.approx(0.25 * whole, rel=1e-3)]
    assert found.devices[0].torch == ("2.10.0",)
    assert_says(found.problems[0], str(older), str(newer), "torch 2.10.0", "2.9.1+cu128")
    assert_says(found.problems[1], str(newer), "torch 2.10.0")


def test_of_one_torch_the_one_of_most_operators_holds_then_the_latest(tmp_path: Path) -> None:
    few = came_back(tmp_path, "a", of_t4(n=10, at="2026-11-22T12:00:00+00:00"))
    early = came_back(tmp_path, "b", of_t4(n=80, at="2026-11-20T12:00:00+00:00"))
    held = came_back(tmp_path, "c", of_t4(n=80, at="2026-11-21T12:00:00+00:00"))
    less, sooner = collect(tmp_path, CATALOG).problems
    assert_says(less, str(few), str(held), "80 operators", "10")
    assert_says(sooner, str(early), str(held), "2026-11-21T12:00:00+00:00", "2026-11-20T12:00:00+00:00")


def test_what_only_the_lesser_one_has_timed_is_kept(tmp_path: Path) -> None:
    half = of_t4(n=10)
    half = replace(half, efficiencies=tuple(replace(one, precision="half") for one in half.efficiencies))
    came_back(tmp_path, "a", of_t4(n=80))
    came_back(tmp_path, "b", half)
    found = collect(tmp_path, CATALOG)
    assert found.devices[0].precisions == ("fp32", "half")
    assert found.problems == ()


def test_a_machine_without_torch_collects_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.calibrate.collection.torch_version", lambda: "")
    file = came_back(tmp_path, "a", of_t4())
    (problem,) = collect(tmp_path, CATALOG).problems
    assert_says(problem, str(file), f"torch {of_t4().key.torch}", "none")


def test_the_same_calibration_twice_is_no_conflict(tmp_path: Path) -> None:
    came_back(tmp_path, "a", of_t4())
    came_back(tmp_path, "b", of_t4())
    assert collect(tmp_path, CATALOG).problems == ()


def foreign(kept: Calibration) -> str:
    return calibration_text(replace(kept, key=replace(kept.key, device="gpu-of-nobody")))


def of_another_program(kept: Calibration) -> str:
    return calibration_text(replace(kept, key=replace(kept.key, program="0123456789ab-0123456789ab")))


def of_others(kept: Calibration) -> str:
    return calibration_text(replace(kept, efficiencies=tuple(replace(one, device="l4") for one in kept.efficiencies)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not valid YAML"),
        ("", "the file has no efficiencies"),
        (calibration_text(of_t4())[:400], "expected keys and values"),
        (foreign(of_t4()), "no profile describes the device 'gpu-of-nobody'"),
        (of_others(of_t4()), "contains efficiencies of devices other than t4"),
        (of_another_program(of_t4()), "made by another version of advise"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_loses_nothing(tmp_path: Path, text: str, why: str) -> None:
    came_back(tmp_path, "good", of_t4())
    bad = tmp_path / "back" / "bad.yaml"
    bad.write_text(text)
    found = collect(tmp_path, CATALOG)
    assert [one.device for one in found.devices] == ["t4"]
    (problem,) = found.problems
    assert problem.startswith(str(bad))
    assert why in problem
    assert bad.read_text() == text


def test_where_nothing_can_be_used_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "back").mkdir()
    with pytest.raises(UsageError, match="no calibrations in"):
        collect(tmp_path, CATALOG)
    for name in ("bad", "worse"):
        (tmp_path / "back" / f"{name}.yaml").write_text("{")
    with pytest.raises(UsageError, match=r"none of 2\b") as caught:
        collect(tmp_path, CATALOG)
    _, bad, worse = caught.value.message.splitlines()
    assert "bad.yaml" in bad
    assert "worse.yaml" in worse
    assert not (tmp_path / "efficiency").exists()


def test_a_profile_of_the_users_own_is_never_written_over(tmp_path: Path) -> None:
    came_back(tmp_path, "a", of_t4())
    own = tmp_path / "efficiency" / "t4.yaml"
    own.parent.mkdir()
    own.write_text("# mine\n")
    with pytest.raises(UsageError, match=r"t4\.yaml .*\bown\b"):
        collect(tmp_path, CATALOG)
    assert own.read_text() == "# mine\n"


def test_collecting_again_is_the_same_and_keeps_what_is_gone_from_back(tmp_path: Path) -> None:
    file = came_back(tmp_path, "a", of_t4())
    came_back(tmp_path, "b", calibration())
    first = collect(tmp_path, CATALOG)
    texts = [one.file.read_text() for one in first.devices]
    file.unlink()
    collect(tmp_path, CATALOG)
    assert [one.file.read_text() for one in first.devices] == texts


def test_machines_with_other_counts_of_cores_are_apart(tmp_path: Path) -> None:
    eight: Machine = replace(EPYC, core_count=8.0, thread_count=8)
    cpu = targets(eight, CATALOG)[0]
    assert cpu.device is not None
    own = replace(calibration().efficiencies[0], core_count=8.0)
    key = key_of(cpu, cpu.device, eight, thread_count=8)
    came_back(tmp_path, "a", calibration())
    came_back(tmp_path, "b", calibration(eight, key=key, efficiencies=(own,)))
    assert [one.core_count for one in collect(tmp_path, CATALOG).devices] == [4.0, 8.0]
