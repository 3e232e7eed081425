"""The parts of an answer that a calibration changes, and those that it does not."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.answers.ranking import rank
from advisor.calibrate import store
from advisor.calibrate.store import Stored
from advisor.catalog.overlay import load_catalog
from advisor.question.from_source import question_from_source, question_of
from advisor.records.answer import Quote, Recommendation
from advisor.records.options import Options
from advisor.records.workload import Workload
from advisor.workload.file import workload_to_json
from tests.calibrate.toys import EPYC, WITH_T4, calibration, local, shipped, slower
from tests.predict.toys import operand, row, workload

OPTIONS = Options(device=("amd-epyc-7763",), precision="fp32", batch="1", top=1000)
IMAGES = operand((0.0, 1.0), 30_000_000)
COPIES: Workload = workload(row("aten.relu", (IMAGES,), (IMAGES,), family="pointwise", count=10))
HALF_AS_FAST = calibration(
    efficiencies=[replace(slower(shipped(local(EPYC)), 0.5), device="amd-epyc-7763", core_count=4.0, precision="fp32")]
)


def answer(*calibrations: object) -> Recommendation:
    stored = Stored(calibrations=calibrations)  # type: ignore[arg-type]
    return rank(question_of(COPIES, OPTIONS, catalog=load_catalog(), machine=EPYC, calibrated=stored))


def test_only_offers_of_the_same_cpu_with_as_many_cores_change() -> None:
    before = {quote.id: quote for quote in answer().quotes}
    after = {quote.id: quote for quote in answer(HALF_AS_FAST).quotes}

    changed = {name for name, quote in after.items() if quote.step_s != before[name].step_s}
    assert changed == {name for name, quote in after.items() if quote.time_source == "calibrated"}
    # Four cores with two threads each.
    assert {after[name].vcpus for name in changed} == {8}
    assert len(changed) < len(after)
    for name in changed:
        assert after[name].step_s.mid == pytest.approx(2 * before[name].step_s.mid, rel=0.05)


def test_the_machine_at_hand_is_predicted_from_it_and_the_answer_says_how_old_it_is() -> None:
    found = answer(HALF_AS_FAST)

    assert found.at_hand is not None
    assert found.at_hand.time_source == "calibrated"
    assert [note for note in found.notes if note.startswith("amd-epyc-7763 with 4 cores: calibrated ")]
    assert not [note for note in answer().notes if "calibrated" in note]


def test_a_saved_workload_is_ranked_alike_on_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = tmp_path / "workload.json"
    saved.write_text(json.dumps(workload_to_json(COPIES)))
    monkeypatch.setattr(store, "folder", lambda: tmp_path / "calibrations")

    def ranked() -> list[Recommendation]:
        asked = (OPTIONS, replace(OPTIONS, device=("local",)))
        return [rank(question_from_source(str(saved), options, read_machine=lambda: EPYC)) for options in asked]

    before = ranked()

    store.keep(HALF_AS_FAST)

    assert ranked() == before


@pytest.mark.parametrize("flag", ["no_calibrate", "no_local"])
def test_calibrations_are_not_even_read_where_they_are_not_wanted(tmp_path: Path, flag: str) -> None:
    source = tmp_path / "model.py"
    source.write_text(
        "import torch\nmodel = torch.nn.Linear(4, 4)\ndef example_inputs(batch):\n    return torch.empty(batch, 4)\n"
    )

    def refuse(*_: object) -> Stored:
        raise AssertionError("calibrations were read")

    options = replace(OPTIONS, **{flag: True})
    assert rank(question_from_source(str(source), options, read_machine=lambda: EPYC, read_calibrations=refuse)).quotes
    with pytest.raises(AssertionError, match="were read"):
        rank(question_from_source(str(source), OPTIONS, read_machine=lambda: EPYC, read_calibrations=refuse))


def test_copies_that_were_timed_hold_for_the_gpu_at_hand_and_for_no_rented_one() -> None:
    images = operand((0.0, 1.0), 150_528)
    program = workload(row("aten.relu", (images,), (images,), family="pointwise"), inputs=(images,))
    timed = calibration(host_to_device_bytes_per_s=1e9)
    stored = Stored(calibrations=(replace(timed, key=replace(timed.key, device="t4", thread_count=None)),))

    def ranked(calibrated: Stored) -> dict[str, Quote]:
        options = Options(device=("t4", "local"), precision="fp32", batch="4096")
        answer = rank(question_of(program, options, catalog=load_catalog(), machine=WITH_T4, calibrated=calibrated))
        return {quote.id: quote for quote in answer.quotes}

    before, after = ranked(Stored()), ranked(stored)

    # 4,096 images of 150,528 floats are 2.47 GB: 2.47 s at 1 GB/s
    here = after["local/cuda:0"]
    assert (here.step_s.mid, here.bound) == (pytest.approx(4096 * 150_528 * 4 / 1e9), "transfer")
    rented = [name for name in after if not name.startswith("local/")]
    assert rented
    assert [after[name].step_s for name in rented] == [before[name].step_s for name in rented]
