"""From a source to the answer: the same by every way in."""

import json
import math
import subprocess
import sys
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from advisor import recommend
from advisor.answers.ranking import rank
from advisor.catalog.overlay import load_catalog
from advisor.errors import CoverageError, TraceError, UsageError
from advisor.question.from_source import catalog_of, profile_source, question_from_source, question_of
from advisor.question.option_values import checked_options
from advisor.records.answer import Recommendation
from advisor.records.options import Objective, Options
from advisor.records.price import Catalog
from advisor.records.workload import MemoryLine, Operand, Row, StoredBytes, Workload
from advisor.workload.file import workload_to_json
from tests.answers.test_break_even import CPU_OFFER, GPU_OFFER, net, padded
from tests.answers.test_break_even import catalog as market_by_hand
from tests.machines import gpu, machine
from tests.says import assert_says

TODAY = date(2026, 11, 1)
"""A day on which no shipped price that is ranked is old."""
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def test_a_saved_workload_gives_the_same_answer_as_its_model_to_the_digit(tmp_path: Path) -> None:
    source = str(EXAMPLES / "mlp.py")
    options = Options(mode="training", samples=50_000, no_local=True)
    saved = tmp_path / "workload.json"
    saved.write_text(json.dumps(workload_to_json(profile_source(source, options).workload)))

    direct, from_file = rank(question_from_source(source, options)), rank(question_from_source(str(saved), options))

    assert asdict(from_file) == asdict(direct)


def test_ranking_a_saved_workload_imports_no_torch(tmp_path: Path) -> None:
    saved = tmp_path / "workload.json"
    profile = profile_source(str(EXAMPLES / "mlp.py"), Options())
    saved.write_text(json.dumps(workload_to_json(profile.workload)))
    code = (
        "import sys; from advisor.answers.ranking import rank; from advisor.records.options import Options;"
        "from advisor.question.from_source import question_from_source;"
        f"answer = rank(question_from_source({str(saved)!r}, Options())); assert answer.best is not None;"
        "sys.exit('torch' in sys.modules or 'fvcore' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_recommend_answers_as_the_command_does_for_a_file_with_the_model(tmp_path: Path) -> None:
    file = tmp_path / "two_layers.py"
    file.write_text(
        "import torch\nfrom torch import nn\n"
        "model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))\n"
        "example_inputs = torch.zeros(4, 8)\n"
    )

    from_file = rank(question_from_source(str(file), Options(samples=1000)))
    from_python = recommend(two_layers(), torch.zeros(4, 8), samples=1000)

    assert from_python.quotes == from_file.quotes
    assert from_python.workload.totals == from_file.workload.totals


def test_recommend_prints_nothing_and_leaves_the_model_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    model = two_layers()
    before = {name: value.clone() for name, value in model.state_dict().items()}

    recommend(model, torch.zeros(4, 8), mode="training")

    assert capfd.readouterr() == ("", "")
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_answer_shows_itself_in_a_prompt_and_in_a_notebook() -> None:
    answer = recommend(two_layers(), torch.zeros(4, 8))

    assert answer.best is not None
    assert answer.best.instance in repr(answer)
    assert answer.best.instance in answer._repr_html_()


def test_cpu_and_gpu_are_both_ranked_and_the_cheapest_is_first(catalog: Catalog, linear_workload: Workload) -> None:
    answer = rank(question_of(linear_workload, Options(), catalog=catalog))

    costs = [quote.job_usd.mid for quote in answer.quotes]
    assert costs == sorted(costs)
    assert answer.best == next(quote for quote in answer.quotes if quote.may_lead)
    assert answer.best.price_is_trusted
    assert answer.better_if_price_holds == answer.quotes[0]
    assert answer.better_if_prediction_holds is None or answer.better_if_prediction_holds.needs_measurement
    assert {quote.device.kind for quote in answer.quotes} == {"cpu", "gpu"}


@pytest.mark.parametrize("objective", ["cost", "time", "cost-time"])
def test_cpu_and_gpu_are_compared_by_what_costs_least_whatever_the_objective(objective: Objective) -> None:
    # 1954 steps of 512 samples, each 0.4 + 5.12 s at $1e-3 a second on one machine: $10.79. On two, which is faster,
    # a step takes 0.4 + 2.56 s of both: $11.57.
    networked = replace(GPU_OFFER, network_bytes_per_s=1e10)
    options = Options(mode="training", precision="fp32", batch="512", max_machines=2, objective=objective)
    market = replace(market_by_hand(), offers=(CPU_OFFER, networked))
    answer = rank(question_of(replace(net(), mode="training"), options, catalog=market))
    assert {quote.instance_count for quote in answer.quotes if quote.device.kind == "gpu"} == {
        1 + (objective != "cost")
    }
    (once,) = (one.point.gpu for one in answer.situations if one.kind == "once")
    assert once is not None
    assert (once.instance_count, once.job_usd.mid) == (1, pytest.approx(10.786, rel=1e-3))


def test_more_machines_run_the_step_of_the_batch_that_was_ranked() -> None:
    # With lengths a step of 8 samples takes 0.4 + 8 x 0.008 s, on two machines 0.4 + 4 x 0.008 s. 1e6 samples: 125,000.
    def trace_at(batch: int) -> Workload:
        return replace(padded(batch), mode="training")

    options = Options(mode="training", precision="fp32", lengths="180,512", batch="8,512", max_machines=2)
    market = replace(market_by_hand(), offers=(replace(GPU_OFFER, network_bytes_per_s=1e10),))
    sweep = rank(question_of(trace_at(2), options, catalog=market, trace_at=trace_at)).machine_sweep
    assert sweep is not None
    assert [point.batch for point in sweep.points] == [8, 8]
    assert [point.job_s.mid for point in sweep.points] == pytest.approx([58_000, 54_000], rel=1e-3)


def test_every_offer_is_quoted_or_rejected_once(catalog: Catalog, linear_workload: Workload) -> None:
    answer = rank(question_of(linear_workload, Options(), catalog=catalog))

    listed = [quote.id for quote in answer.quotes] + [rejection.id for rejection in answer.rejected]
    assert len(listed) == len(set(listed)) == len(catalog.offers) + len(catalog.rejected)


def test_a_device_is_found_by_any_of_its_names(catalog: Catalog, linear_workload: Workload) -> None:
    answer = rank(question_of(linear_workload, Options(device=("Tesla T4",)), catalog=catalog))

    assert {quote.device.id for quote in answer.quotes} == {"t4"}


def test_strict_fails_on_an_operator_without_a_formula(catalog: Catalog, linear_workload: Workload) -> None:
    workload = replace(linear_workload, unknown_ops={"mine.magic": 2})

    with pytest.raises(CoverageError, match=r"mine\.magic"):
        rank(question_of(workload, Options(strict=True), catalog=catalog))
    assert "mine.magic (2 calls)" in " ".join(rank(question_of(workload, Options(), catalog=catalog)).warnings)


def test_dimensions_that_are_not_affine_are_traced_again_at_each_batch_asked(
    catalog: Catalog, linear_workload: Workload
) -> None:
    fixed = replace(linear_workload, batch_is_affine=False)
    traced: list[int] = []

    def trace_at(batch: int) -> Workload:
        traced.append(batch)
        return replace(fixed, batch=batch)

    answer = rank(question_of(fixed, Options(batch="4,8,16"), catalog=catalog, trace_at=trace_at), today=TODAY)

    assert traced == [8, 16]
    assert {quote.batch for quote in answer.quotes} <= {4, 8, 16}
    (warning,) = answer.warnings
    assert_says(warning, "batch 4, 8, 16")


def test_a_fixed_batch_refuses_another(catalog: Catalog, linear_workload: Workload) -> None:
    fixed = replace(linear_workload, batch_is_affine=False)

    with pytest.raises(UsageError, match=r"\b4\b.*\b8\b"):
        rank(question_of(fixed, Options(batch="8"), catalog=catalog))


@pytest.fixture
def linear_workload() -> Workload:
    """A linear layer of 1024 x 1024 at batch 4, dimensions affine."""
    activation = Operand(shape=((0.0, 1.0), 1024), dtype="float32")
    return Workload(
        schema_version=1,
        name="linear",
        mode="inference",
        batch=4,
        batch_is_affine=True,
        traced_batches=(4, 8, 12),
        method="fake",
        torch_version="2.13.0",
        parameter_count=1024 * 1024,
        parameter_bytes=4 * 1024 * 1024,
        optimizer=None,
        inputs=(activation,),
        rows=(
            Row(
                op="aten.mm",
                family="matmul",
                phase="forward",
                module="",
                inputs=(activation, Operand(shape=(1024, 1024), dtype="float32")),
                outputs=(activation,),
                attributes={},
                count=1,
            ),
        ),
        memory=(
            MemoryLine(
                phase="forward",
                parameters=StoredBytes(full=(4.0 * 1024 * 1024, 0.0)),
                buffers=StoredBytes(),
                gradients=StoredBytes(),
                optimizer_state=StoredBytes(),
                activations=StoredBytes(),
                temporaries=StoredBytes(),
            ),
        ),
        unknown_ops={},
        assumptions=(),
    )


def test_the_layout_reaches_the_prediction(catalog: Catalog) -> None:
    options = Options(device=("rtx-3090",), batch="64")
    source = str(EXAMPLES / "resnet50.py")
    workload = profile_source(source, options).workload

    nchw = rank(question_of(workload, options, catalog=catalog))
    nhwc = rank(question_of(workload, replace(options, layout="nhwc"), catalog=catalog))

    assert nchw.best is not None
    assert nhwc.best is not None
    assert nhwc.best.step_s.mid < nchw.best.step_s.mid


def _saved(workload: Workload, folder: Path) -> str:
    path = folder / "workload.json"
    path.write_text(json.dumps(workload_to_json(workload)))
    return str(path)


def test_a_saved_step_of_training_is_ranked_as_training(tmp_path: Path, linear_workload: Workload) -> None:
    answer = rank(question_from_source(_saved(replace(linear_workload, mode="training"), tmp_path), Options()))

    assert answer.job.mode == "training"
    assert answer.job.batch == "4"


def test_a_saved_step_of_inference_is_no_answer_for_training(tmp_path: Path, linear_workload: Workload) -> None:
    with pytest.raises(UsageError, match="is a saved inference step"):
        rank(question_from_source(_saved(linear_workload, tmp_path), Options(mode="training")))


def test_a_saved_step_of_training_is_no_answer_for_inference(tmp_path: Path, linear_workload: Workload) -> None:
    source = _saved(replace(linear_workload, mode="training"), tmp_path)
    with pytest.raises(UsageError, match="is a saved training step"):
        question_from_source(source, checked_options(mode="inference"))
    assert question_from_source(source, checked_options(mode="training")).options.mode == "training"


@pytest.mark.parametrize(
    ("source", "run", "options", "message"),
    [
        ("workload.json", False, Options(input=("8",)), "workload.json is a saved workload and has inputs of its own"),
        ("train.py", True, Options(input=("8",)), "train.py is a script and has inputs of its own"),
        ("train.py::Net", True, Options(), "train.py::Net is not a script"),
        ("torchvision:resnet18", True, Options(), "torchvision:resnet18 is not a script"),
    ],
)
def test_what_a_source_has_settled_is_refused_and_not_ignored(
    source: str, run: bool, options: Options, message: str
) -> None:
    for ask in (question_from_source, profile_source):
        with pytest.raises(UsageError, match=message):
            ask(source, options, run=run)


def test_a_profile_is_of_one_batch(tmp_path: Path, linear_workload: Workload) -> None:
    with pytest.raises(UsageError, match=r"^--batch 2,3: .*\bone\b"):
        profile_source(_saved(linear_workload, tmp_path), Options(batch="2,3"))


def test_every_output_of_a_profile_is_of_the_batch_that_was_asked(tmp_path: Path, linear_workload: Workload) -> None:
    saved = _saved(linear_workload, tmp_path)

    profile = profile_source(saved, Options(batch="1"))
    document = workload_to_json(profile.workload)

    # (1, 1024) x (1024, 1024), a multiply-add taken as two.
    flops = 2 * 1024 * 1024
    assert profile.summary.totals.flops == document["totals"]["flops"] == flops
    assert document["batch"] == document["totals"]["batch"] == 1
    for by in ("family", "module", "phase"):
        assert [asdict(group) for group in profile.groups(by)] == document[f"by_{by}"]
        assert sum(group["flops"] for group in document[f"by_{by}"]) == flops


def test_a_saved_fixed_batch_is_not_profiled_at_another(tmp_path: Path, linear_workload: Workload) -> None:
    saved = _saved(replace(linear_workload, batch_is_affine=False), tmp_path)

    assert profile_source(saved, Options(batch="4")).workload.batch == 4
    with pytest.raises(UsageError, match=r"\b4\b.*\b8\b"):
        profile_source(saved, Options(batch="8"))


def test_a_step_without_operators_has_no_price(catalog: Catalog, linear_workload: Workload) -> None:
    with pytest.raises(TraceError, match="nothing to predict"):
        rank(question_of(replace(linear_workload, rows=()), Options(), catalog=catalog))


def test_the_job_names_the_only_batch_there_is(catalog: Catalog, linear_workload: Workload) -> None:
    answer = rank(question_of(replace(linear_workload, batch_is_affine=False), Options(), catalog=catalog), today=TODAY)

    assert answer.job.batch == "4"
    (warning,) = answer.warnings
    assert_says(warning, "batch 4")


@pytest.mark.parametrize(
    "keywords", [{"precision": "int8"}, {"mode": "train"}, {"samples": 1.5}, {"tier": "cloud"}, {"top": 0}]
)
def test_recommend_refuses_what_the_flags_refuse(keywords: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(keywords))):
        recommend(two_layers(), torch.zeros(4, 8), **keywords)


def test_recommend_prints_nothing_when_the_model_fails() -> None:
    code = (
        "import torch; from advisor import recommend\n"
        "try: recommend(torch.nn.Linear(3, 3), torch.zeros(2, 4))\n"
        "except RuntimeError as error: assert 'shapes cannot be multiplied' in str(error)\n"
        "else: raise SystemExit('no error')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_the_totals_are_of_the_batch_asked_for(catalog: Catalog, linear_workload: Workload) -> None:
    asked = rank(question_of(linear_workload, Options(batch="7"), catalog=catalog)).workload.totals
    chosen = rank(question_of(linear_workload, Options(batch="7,9"), catalog=catalog)).workload.totals

    assert (asked.batch, asked.flops) == (7, 2 * 7 * 1024 * 1024)
    assert (chosen.batch, chosen.flops) == (4, 2 * 4 * 1024 * 1024)


def test_the_machine_at_hand_stands_beside_the_ranking_and_changes_none_of_it(
    catalog: Catalog, linear_workload: Workload
) -> None:
    without = rank(question_of(linear_workload, Options(), catalog=catalog))
    answer = rank(question_of(linear_workload, Options(), catalog=catalog, machine=machine()))

    assert answer.quotes == without.quotes
    assert answer.rejected == without.rejected
    assert without.at_hand is None
    assert answer.at_hand is not None
    assert (answer.at_hand.id, answer.at_hand.device.id) == ("local/cpu", "amd-epyc-7763")


def test_of_the_devices_at_hand_the_fastest_is_shown(catalog: Catalog, linear_workload: Workload) -> None:
    large = Options(batch="65536")  # enough work for a GPU to pay off
    here = machine(gpus=(gpu("NVIDIA A100-SXM4-40GB"),))

    at_hand = rank(question_of(linear_workload, large, catalog=catalog, machine=here)).at_hand

    assert at_hand is not None
    assert (at_hand.instance, at_hand.gpus_used) == ("this machine's cuda:0", 1)


def test_the_machine_at_hand_alone_is_ranked_where_it_is_asked_for(catalog: Catalog, linear_workload: Workload) -> None:
    answer = rank(question_of(linear_workload, Options(device=("local",)), catalog=catalog, machine=machine()))

    assert [quote.id for quote in answer.quotes] == ["local/cpu"]
    assert answer.best is not None
    assert answer.at_hand is not None
    assert (answer.best.usd_per_hour, answer.best.chance_cheapest) == (0.0, 1.0)
    assert answer.best.step_s == answer.at_hand.step_s


def test_a_cpu_without_a_profile_is_predicted_with_a_wider_interval_and_says_so(
    catalog: Catalog, linear_workload: Workload
) -> None:
    named = rank(question_of(linear_workload, Options(), catalog=catalog, machine=machine()))
    hidden = rank(question_of(linear_workload, Options(), catalog=catalog, machine=machine(cpu_name="AMD EPYC")))

    def width(answer: Recommendation) -> float:
        assert answer.at_hand is not None
        return answer.at_hand.step_s.high / answer.at_hand.step_s.low

    assert width(hidden) > width(named)
    (note,) = (note for note in hidden.notes if "this machine" in note)
    assert_says(note, "cpu, AMD EPYC", "no profile")
    assert not any("this machine" in note for note in named.notes)


def test_a_job_too_large_for_the_machine_at_hand_says_so(catalog: Catalog, linear_workload: Workload) -> None:
    tiny = machine(memory_bytes=1e3)

    answer = rank(question_of(linear_workload, Options(batch="8"), catalog=catalog, machine=tiny))

    assert answer.at_hand is None
    (note,) = (note for note in answer.notes if "this machine" in note)
    assert_says(note, "cpu, AMD EPYC 7763", "needs", "batch 8")


def test_a_saved_workload_knows_the_machine_at_hand_only_where_it_is_asked_for(tmp_path: Path) -> None:
    saved = tmp_path / "workload.json"
    workload = profile_source(str(EXAMPLES / "mlp.py"), Options()).workload
    saved.write_text(json.dumps(workload_to_json(workload)))

    usual = rank(question_from_source(str(saved), Options(), read_machine=machine))
    asked = rank(question_from_source(str(saved), Options(device=("local",)), read_machine=machine))

    assert usual.at_hand is None
    assert [quote.device.id for quote in asked.quotes] == ["amd-epyc-7763"]


def test_the_machine_at_hand_cannot_be_asked_for_and_left_out() -> None:
    with pytest.raises(UsageError, match="--device local") as caught:
        rank(question_from_source(str(EXAMPLES / "mlp.py"), Options(device=("local",), no_local=True)))

    assert caught.value.hint == "leave --no-local out"


def test_owned_hardware_of_the_same_cpu_gives_the_machine_at_hand_its_price(
    tmp_path: Path, linear_workload: Workload
) -> None:
    overlay = tmp_path / "mine.yaml"
    overlay.write_text(
        "owned:\n  box:\n    machine: {vcpus: 16, memory_gib: 32, cpu: amd-epyc-7763}\n"
        "    purchase_usd: 3000\n    lifetime_years: 4\n    power_w: 300\n    electricity_usd_per_kwh: 0.30\n"
        "    used_percent: 50\n    date: 2026-11-01\n"
    )
    options = Options(prices=(str(overlay),))

    at_hand = rank(question_of(linear_workload, options, catalog=catalog_of(options), machine=machine())).at_hand

    assert at_hand is not None
    assert at_hand.usd_per_hour == pytest.approx(0.09)  # 0.3 kW x 0.30 $/kWh: the purchase is paid already
    assert at_hand.price_date == "2026-11-01"


def test_a_job_of_a_given_size_pays_for_start_up_and_says_so(catalog: Catalog, linear_workload: Workload) -> None:
    aws = Options(device=("l4",), provider=("aws",), batch="64")
    kept_busy = rank(question_of(linear_workload, aws, catalog=catalog)).best
    given = rank(question_of(linear_workload, replace(aws, samples=1_000_000), catalog=catalog)).best

    assert kept_busy is not None
    assert given is not None
    assert kept_busy.covers == ("compute",)
    assert given.covers == ("compute", "start-up", "billing-increments", "storage")
    # 159 s to a running container (profiles/sparecores/startup_times.yaml); packages for GPUs and the rate of the disk
    # are in profiles/extra_costs.yaml.
    weights_s = linear_workload.parameter_bytes / (125 * 2**20)
    start_up_s = 159 + 3.7e9 / 22.8e6 + weights_s
    assert given.start_up_s == pytest.approx(start_up_s)
    assert (given.software_s, given.weights_s) == pytest.approx((start_up_s - weights_s - 31.5, weights_s))
    assert given.job_s.mid == pytest.approx(kept_busy.job_s.mid + start_up_s)
    paid_s = max(60, math.ceil(given.job_s.mid))  # by the second, a minute at least
    storage_usd = 8.0 * paid_s / (730 * 3600)
    assert given.job_usd.mid == pytest.approx(paid_s * given.usd_per_hour / 3600 + storage_usd)


@pytest.mark.parametrize("limit", ["deadline", "max_usd", "max_co2"])
def test_a_limit_of_the_whole_job_needs_its_size(catalog: Catalog, linear_workload: Workload, limit: str) -> None:
    options: dict[str, Any] = {limit: 1.0}
    with pytest.raises(UsageError, match=f"--{limit.replace('_', '-')} .*size is not known") as raised:
        rank(question_of(linear_workload, Options(**options), catalog=catalog))
    assert_says(raised.value.hint, "--samples N")


def test_limits_are_kept_and_what_breaks_them_is_listed(catalog: Catalog, linear_workload: Workload) -> None:
    options = Options(samples=10**13)  # so many that no minute of billing counts
    free = rank(question_of(linear_workload, options, catalog=catalog))
    limit_usd = free.quotes[len(free.quotes) // 2].job_usd.mid
    limited = rank(question_of(linear_workload, replace(options, max_usd=limit_usd), catalog=catalog))

    # The limit may let a few more through: with it, each device takes its cheapest batch, not one within 2 % of it.
    assert all(quote.job_usd.mid <= limit_usd for quote in limited.quotes)
    kept = {quote.id for quote in free.quotes if quote.job_usd.mid <= limit_usd}
    assert kept <= {quote.id for quote in limited.quotes}
    assert {quote.id for quote in limited.quotes} <= {
        quote.id for quote in free.quotes if quote.job_usd.mid <= 1.02 * limit_usd
    }
    over = [one for one in limited.rejected if one.code == "over-max-usd"]
    assert over
    assert all(" more than --max-usd " in one.reason for one in over)
    listed = [quote.id for quote in limited.quotes] + [rejection.id for rejection in limited.rejected]
    assert len(listed) == len(set(listed)) == len(catalog.offers) + len(catalog.rejected)


def test_a_service_is_ranked_by_the_month(catalog: Catalog, linear_workload: Workload) -> None:
    options = Options(requests_per_day=10**12, p99=0.05)
    answer = rank(question_of(linear_workload, options, catalog=catalog))

    assert answer.best is not None
    for quote in answer.quotes:
        assert quote.p50_s is not None
        assert quote.p99_s is not None
        assert quote.step_s.mid <= quote.p50_s <= quote.p99_s <= 0.05
        assert quote.instance_count * quote.samples_per_s * 86400 * 0.7 >= 10**12 * (1 - 1e-9)
        rent_usd = quote.instance_count * 730 * quote.usd_per_hour
        assert quote.job_usd.mid == pytest.approx(rent_usd + quote.job_parts_usd.storage)
        if quote.provider == "aws":  # a month of 100 GiB
            assert quote.job_parts_usd.storage == pytest.approx(quote.instance_count * 8.0)


def test_tokens_are_those_of_the_models_input(catalog: Catalog, linear_workload: Workload) -> None:
    ids = Operand(shape=((0.0, 1.0), 128), dtype="int64")
    answer = rank(question_of(replace(linear_workload, inputs=(ids,)), Options(tokens=128_000), catalog=catalog))

    assert answer.job.samples == 1000


def test_recommend_takes_times_as_the_flags_do() -> None:
    answer = recommend(two_layers(), torch.zeros(4, 8), samples=1e6, deadline="24h", max_latency=0.05, objective="time")

    assert (answer.job.limits.deadline_s, answer.job.limits.max_latency_s) == (86400.0, 0.05)
    times = [quote.job_s.mid for quote in answer.quotes]
    assert times == sorted(times)


def test_a_part_of_a_gpu_is_ranked_with_an_interval_from_the_whole_gpu_to_its_share(catalog: Catalog) -> None:
    options = Options(device=("l4-3q", "l4"), provider=("aws",), batch="64", precision="amp-bf16", no_local=True)
    answer = rank(question_from_source(str(EXAMPLES / "resnet50.py"), options), today=TODAY)
    part = next(quote for quote in answer.quotes if quote.instance == "g6f.large")
    whole = next(quote for quote in answer.quotes if quote.instance == "g6.xlarge")
    # An eighth of the L4's time and L2: some eight times the step; at best the step of the whole L4.
    assert 8 * whole.step_s.mid < part.step_s.mid < 10 * whole.step_s.mid
    assert whole.step_s.low < part.step_s.low < 1.25 * whole.step_s.low
    assert part.step_s.high / part.step_s.low > 4 * whole.step_s.high / whole.step_s.low
    assert part.job_usd.low < whole.job_usd.mid < part.job_usd.mid
    assert sum("L4-3Q" in note for note in answer.notes) == 1
    assert (part.time_source, whole.time_source) == ("datasheet", "fitted")  # no step was measured on a part


def test_inferentia2_is_ranked_if_it_is_named_and_its_published_time_lies_within_the_interval() -> None:
    options = Options(device=("inferentia2-core", "t4"), provider=("aws",), batch="16", no_local=True)
    answer = rank(question_from_source(str(EXAMPLES / "resnet50.py"), options), today=TODAY)
    quote = next(quote for quote in answer.quotes if quote.instance == "inf2.xlarge")
    # Both cores have 8 of the 16 images; AWS publishes 4,393.304 images/s: 16 / 4,393.304 = 3.642 ms.
    assert quote.precision == "bf16"
    assert quote.step_s.low < 3.642e-3 < quote.step_s.high
    assert any("torch-neuronx" in note for note in answer.notes)


def test_inferentia2_heads_no_answer_unasked_and_trains_nothing() -> None:
    unasked = rank(question_from_source(str(EXAMPLES / "mlp.py"), Options(no_local=True)), today=TODAY)
    assert {row.code for row in unasked.rejected if row.instance == "inf2.xlarge"} == {"other-stack"}
    asked = Options(mode="training", instance=("inf2.xlarge", "g4dn.xlarge"), no_local=True)
    answer = rank(question_from_source(str(EXAMPLES / "mlp.py"), asked), today=TODAY)
    assert [quote.instance for quote in answer.quotes] == ["g4dn.xlarge"]
    assert {row.code for row in answer.rejected if row.instance == "inf2.xlarge"} == {"not-measured"}


@pytest.mark.parametrize("nested", [True, False])
def test_autocast_that_torch_refuses_on_a_cpu_is_not_chosen_there_and_warned_of_where_it_is_asked_for(
    nested: bool,
) -> None:
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(256, 4, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)

        def forward(self, x: torch.Tensor, pad: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.encoder(x, src_key_padding_mask=pad)
            return result

    pad = torch.zeros(4, 64, dtype=torch.bool)
    pad[:, 50:] = True
    asked: dict[str, Any] = {"batch": 4, "device": "amd-epyc-9b14", "samples": 1000, "no_calibrate": True}
    chosen = recommend(Padded(), (torch.randn(4, 64, 256), pad), **asked)
    told = recommend(Padded(), (torch.randn(4, 64, 256), pad), precision="amp-bf16", **asked)

    assert chosen.best is not None
    assert chosen.best.precision == ("fp32" if nested else "amp-bf16")
    assert not any("autocast" in warning for warning in chosen.warnings)
    assert any("autocast" in warning for warning in told.warnings) == nested
