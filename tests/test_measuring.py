"""`advise FILE --measure` and `recommend(measure=True)`: a timed step beside the ranking, and what rests on it."""

import json
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import nn

from advisor import recommend
from advisor.answers.full_report import report
from advisor.answers.ranking import rank
from advisor.calibrate import measured_beside
from advisor.calibrate.measured_beside import Measuring
from advisor.calibrate.step_process import MeasureRequest
from advisor.calibrate.store import Stored
from advisor.catalog.overlay import load_catalog
from advisor.cli.main import run
from advisor.errors import ExitCode, UsageError
from advisor.question.from_source import profile_source, question_from_source, question_of
from advisor.question.record import Question
from advisor.records.answer import Recommendation
from advisor.records.options import Options
from advisor.records.price import Catalog
from advisor.records.timing import StepTiming
from advisor.workload.file import workload_from_json, workload_to_json
from tests.answers.test_break_even import catalog as round_catalog
from tests.answers.test_break_even import net as sample_net
from tests.machines import gpu, machine
from tests.model_files import TWO_LAYERS
from tests.says import assert_says

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture(autouse=True)
def machine_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes, such as other tests, do not make a step a disturbed one."""
    monkeypatch.setattr(measured_beside, "TAKEN_CPU_COUNT", float("inf"))


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("net") / "net.py"
    file.write_text(dedent(TWO_LAYERS))
    return file


@pytest.fixture(scope="module")
def saved(net: Path) -> Path:
    file = net.with_name("workload.json")
    file.write_text(json.dumps(workload_to_json(profile_source(str(net), Options()).workload)))
    return file


def ranked(saved: Path, catalog: Catalog, *, step_s: float | None, **changes: Any) -> Recommendation:
    """The answer on a machine with a T4, whose step took so long there and ten times that on its CPU; None: it was not
    timed."""
    workload = workload_from_json(json.loads(saved.read_text()))
    request = MeasureRequest(source="net.py", batch=16)

    def time_it(asked: MeasureRequest) -> StepTiming:
        assert step_s is not None
        took_s = 10 * step_s if asked.device == "cpu" else step_s
        return StepTiming(
            batch=asked.batch or 0,
            step_s=took_s,
            low_s=0.98 * took_s,
            high_s=1.05 * took_s,
            step_count=25,
            iqr_ratio=0.02,
        )

    return rank(
        question_of(
            workload,
            Options(batch="16", precision="fp32"),
            catalog=catalog,
            machine=machine(gpus=(gpu("Tesla T4"),)),
            calibrated=Stored(),
            measuring=None if step_s is None else Measuring(request=request, time_it=time_it, precision="fp32"),
            **changes,
        )
    )


def test_the_machine_at_hand_has_the_timed_step_and_says_so(saved: Path, catalog: Catalog) -> None:
    answer = ranked(saved, catalog, step_s=1e-6)

    assert answer.at_hand is not None
    assert answer.at_hand.device.id == "t4"
    assert (answer.at_hand.step_s.mid, answer.at_hand.step_s.low, answer.at_hand.step_s.high) == (
        1e-6,
        pytest.approx(0.98e-6),
        pytest.approx(1.05e-6),
    )
    assert (answer.at_hand.time_source, answer.at_hand.batch) == ("measured", 16)
    assert [step.device.id for step in answer.measured] == ["amd-epyc-7763", "t4"]


def test_rented_devices_of_the_same_kind_and_model_have_it_too(saved: Path, catalog: Catalog) -> None:
    answer = ranked(saved, catalog, step_s=1e-6)

    rented = [quote for quote in answer.quotes if quote.device.id == "t4"]
    assert rented
    assert {quote.time_source for quote in rented} == {"measured"}


def test_other_gpus_move_by_the_carried_ratio_and_cpus_stay(saved: Path, catalog: Catalog) -> None:
    before, after = ranked(saved, catalog, step_s=None), ranked(saved, catalog, step_s=1e-6)

    (timed,) = (step for step in after.measured if step.device.kind == "gpu")
    t4_bound = next(quote.bound for quote in before.quotes if quote.device.id == "t4")
    steps = {quote.id: quote for quote in before.quotes}
    ratios = {
        (quote.device.kind, quote.bound == t4_bound): quote.step_s.mid / steps[quote.id].step_s.mid
        for quote in after.quotes
        if quote.device.id not in ("t4", "amd-epyc-7763")
    }
    assert ratios[("cpu", False)] == pytest.approx(1.0)
    assert ratios[("gpu", True)] == pytest.approx(timed.carried_ratio)
    assert timed.carried_ratio < 1


def timed_question(took_s: float, **options: Any) -> Question:
    """A question on the market of tests/answers/test_break_even.py, whose step of 4 samples took the GPU here so long.

    It is predicted as 0.44 s: 0.4 s and 0.01 s a sample.
    """

    def time_it(asked: MeasureRequest) -> StepTiming:
        times = {"step_s": took_s, "low_s": 0.98 * took_s, "high_s": 1.05 * took_s}
        return StepTiming(batch=asked.batch or 0, step_count=25, iqr_ratio=0.02, **times)

    return question_of(
        replace(sample_net(), batch=4),
        Options(**{"batch": "4", "precision": "fp32", "measure": True} | options),
        catalog=round_catalog(),
        machine=machine(gpus=(gpu("T4"),)),
        calibrated=Stored(),
        measuring=Measuring(request=MeasureRequest(source="net.py"), time_it=time_it, device="cuda:0"),
    )


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.5])
def test_a_report_says_the_same_of_a_timed_step_everywhere(ratio: float) -> None:
    shown = report(timed_question(0.44 * ratio))
    detail = next(one for one in shown.details if one.role == "best GPU")
    step = detail.step
    assert (step.time_source, step.step_s.mid) == ("measured", pytest.approx(0.44 * ratio))
    for groups in (step.families, step.modules, step.phases):
        assert all(group.time_s >= 0 for group in groups)
        assert sum(group.time_ratio for group in groups) == pytest.approx(1.0)
    assert step.total.kernels_s <= step.step_s.mid * 1.0001
    (point,) = (point for point in detail.batches if point.batch == 4)
    assert point.step_s == detail.quote.step_s
    # 2,048 samples in a step of 0.4 s + 2048 x 0.01 s, not in 512 of 0.44 s: the prediction's error saves nothing.
    (saving,) = (change for change in step.changes if change.kind == "batch")
    assert (saving.to, saving.saved_ratio) == ("2048", pytest.approx(1 - 20.88 / (512 * 0.44)))
    assert shown.break_even is not None
    (curve,) = (curve for curve in shown.break_even.curves if curve.kind == "samples")
    assert curve.points[-1].gpu is not None
    assert curve.points[-1].gpu.job_usd.mid == pytest.approx(0.44 * ratio / 4 * 1e-3 * curve.points[-1].at)


@pytest.mark.parametrize("deadline_s", [100.0, 120.0])
def test_the_flags_that_help_rest_on_the_timed_step(deadline_s: float) -> None:
    # 250 steps of 0.66 s take 165 s, 2.75 min, where 110 s are predicted; 120 s suffice for 181 of them, 720 samples.
    asked = timed_question(0.66, samples=1000, deadline=deadline_s, device=("gpu",))
    found = rank(asked)
    assert found.best is None
    flags = {one.flag: one.quote for one in found.alternatives if one.kind == "flag"}
    quote = flags["--deadline 2.8m"]
    assert (quote.time_source, quote.job_s.mid) == ("measured", pytest.approx(165.0))
    assert ("--samples 720" if deadline_s == 120.0 else "--samples 600") in flags
    best = rank(replace(asked, options=replace(asked.options, deadline=2.8 * 60))).best
    assert best is not None
    assert best.job_s.mid == pytest.approx(165.0)


def test_text_html_and_json_show_it(saved: Path, catalog: Catalog) -> None:
    answer = ranked(saved, catalog, step_s=1e-6)

    assert_says(repr(answer), "measured here", "batch 16")
    assert_says(answer._repr_html_(), "measured here", "batch 16")


def test_the_command_times_the_step_of_a_file(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = ("--measure", "--no-calibrate", "--device", "cpu", "--batch", "16", "--precision", "fp32")
    code = run([str(net), *measured, "-o", "json"])

    answer = json.loads(capsys.readouterr().out)
    assert code == ExitCode.ANSWER
    (step,) = answer["measured"]
    assert (step["device"]["kind"], step["batch"]) == ("cpu", 16)
    assert 0 < step["step_s"]["low"] <= step["step_s"]["mid"] <= step["step_s"]["high"]
    assert (answer["at_hand"]["time_source"], answer["at_hand"]["batch"]) == ("measured", 16)


def test_a_live_model_is_timed_where_it_is_and_left_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4))
    before = {name: value.clone() for name, value in model.state_dict().items()}

    answer = recommend(model, torch.randn(4, 8), mode="training", measure=True, no_calibrate=True, device="cpu")

    assert [step.batch for step in answer.measured] == [4]
    assert capfd.readouterr() == ("", "")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_a_live_models_own_code_raises_passes_through() -> None:
    class Fragile(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if type(x) is torch.Tensor:
                raise ValueError("real data is not what it takes")
            return super().forward(x)

    with pytest.raises(ValueError, match="real data"):
        recommend(Fragile(8, 4), torch.randn(4, 8), measure=True, no_calibrate=True)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"source": "workload.json"}, "workload.json is a saved workload, not a model"),
        ({"run": True}, "is a script, and one step of a script cannot be run again"),
        ({"no_local": True}, "there is no machine at hand"),
    ],
)
def test_what_cannot_be_run_is_refused(net: Path, saved: Path, flags: dict[str, Any], message: str) -> None:
    source = str(saved) if "source" in flags else str(net)
    options = Options(measure=True, no_local=flags.get("no_local", False))

    with pytest.raises(UsageError, match=message):
        rank(question_from_source(source, options, run=flags.get("run", False)))


def test_commands_that_rank_nothing_of_their_own_have_no_such_flag(net: Path) -> None:
    for command in ("explain", "breakeven"):
        assert run([command, str(net), "--measure"]) == ExitCode.USAGE


def test_an_answer_without_it_says_nothing_of_it(saved: Path, catalog: Catalog) -> None:
    answer = ranked(saved, catalog, step_s=None)

    assert answer.measured == ()
    assert "measured here" not in repr(answer)
    assert replace(answer, measured=()) == answer
