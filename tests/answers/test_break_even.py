"""Break-even between a CPU and a GPU whose every figure is round, worked out by hand.

A sample moves 8e9 bytes: 1 s on the CPU (8 GB/s), 0.01 s on the GPU (1 TB/s, of which GDDR6 sustains 0.8), whose host
dispatches the one operator of a step in 0.4 s. A step of `batch` samples takes the CPU batch x 1 s and the GPU 0.4 s +
batch x 0.01 s. The CPU costs $0.36 per hour, $0.0001 a second; the GPU ten times that.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import log
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import nn

import advisor
from advisor.answers.break_even import break_even
from advisor.answers.ranking import rank
from advisor.cli.main import run
from advisor.errors import ExitCode, NothingFitsError, UsageError
from advisor.question.from_source import question_of
from advisor.question.record import Question
from advisor.question.variations import Variation
from advisor.records.answer import Crossing, Interval
from advisor.records.billing import Billing, BillingRule
from advisor.records.break_even_curves import BreakEven, Curve
from advisor.records.device import Cpu, Gpu
from advisor.records.options import Objective, Options
from advisor.records.price import Catalog
from advisor.records.workload import Workload
from tests.cost.toys import offer, start_up
from tests.predict.toys import efficiency, operand, row, workload
from tests.says import assert_says

CPU = Cpu(id="xeon", name="Xeon", vendor="Acme", generation="First", isa=(), base_hz=1e10, memory_bytes_per_s=1e12,
          source="by hand")  # fmt: skip
GPU = Gpu(id="t4", name="T4", vendor="Acme", generation="First", sm_count=40, boost_hz=1e9, memory_bytes=16e9,
          memory_bytes_per_s=1e12, memory_type="GDDR6", fp32_flops_per_s=1e13, source="by hand")  # fmt: skip
CPU_OFFER = offer("cpu", usd_per_hour=0.36, measured_read_bytes_per_s=8e9)
GPU_OFFER = offer("gpu", usd_per_hour=3.6, gpu="t4", gpu_count=1, cpu=None)
BY_A_QUARTER = log(1.25) / 1.645
"""A spread whose 90 % interval reaches from 0.8 to 1.25 times the middle."""


def net(*, width: int = 10**9) -> Workload:
    """Reads and writes `width` floats a sample."""
    numbers = operand((0.0, 1.0), width)
    return workload(row("aten.relu", (numbers,), (numbers,), family="pointwise"))


def padded(batch: int, *, is_affine: bool = True) -> Workload:
    """A sample moves 8e8 bytes for each sample of the batch: 0.1 s x batch on the CPU, 1e-3 s x batch on the GPU."""
    return replace(net(width=batch * 10**8), batch=batch, batch_is_affine=is_affine)


def asked_of_padded(options: Options, *, is_affine: bool = True) -> Question:
    """A question about `padded`, traced at batch 2, because of `--lengths` or of dimensions that are not affine."""
    options = replace(options, precision="fp32", lengths="180,512" if is_affine else None)
    trace_at = partial(padded, is_affine=is_affine)
    return question_of(trace_at(2), options, catalog=catalog(), trace_at=trace_at)


def catalog(*, cpu_spread: float = 0.0, shared_spread: float = 0.0, billing: Billing | None = None) -> Catalog:
    shared = {"workload_log_spread": shared_spread}
    return Catalog(
        gpus={"t4": GPU},
        cpus={"xeon": CPU},
        efficiencies=(
            efficiency(kind="cpu", device_log_spread=cpu_spread, **shared),
            efficiency(launch_s=0.4, **shared),
        ),
        offers=(CPU_OFFER, GPU_OFFER),
        rejected=(),
        overlays=(),
        billing=billing or Billing(),
    )


def found(*, options: Options | None = None, step: Workload | None = None, **of_catalog: Any) -> BreakEven:
    return break_even(
        question_of(step or net(), replace(options or Options(), precision="fp32"), catalog=catalog(**of_catalog))
    )


def curve(break_even: BreakEven, kind: str) -> Curve:
    (one,) = (one for one in break_even.curves if one.kind == kind)
    return one


def crossing(break_even: BreakEven, kind: str) -> Crossing:
    (one,) = curve(break_even, kind).crossings
    return one


def test_the_folk_rule_in_figures() -> None:
    # A sample takes 1 s and, at batch 2048, 0.4 / 2048 + 0.01 = 0.0101953 s: 1 % more than at 4096, 2.9 % less than
    # at 1024.
    rule = found(cpu_spread=BY_A_QUARTER).folk_rule
    assert rule is not None
    assert rule.price_ratio == pytest.approx(10.0)
    fastest = 1 / (0.4 / 2048 + 0.01)
    expected = Interval(mid=fastest, low=0.8 * fastest, high=1.25 * fastest)
    assert (rule.speed_ratio.mid, rule.speed_ratio.low, rule.speed_ratio.high) == pytest.approx(
        (expected.mid, expected.low, expected.high)
    )


def test_over_the_batch() -> None:
    # A sample costs the CPU $1e-4 and the GPU $1e-3 x (0.4 / b + 0.01): the same at 0.4 / b = 0.09, b = 4.4.
    # A CPU 1.25 times slower: 0.4 / b = 0.115, b = 3.5. One 1.25 times faster: 0.4 / b = 0.07, b = 5.7.
    assert crossing(found(cpu_spread=BY_A_QUARTER), "batch") == Crossing(at=5, low=4, high=6, cheaper="gpu")


def test_what_is_wrong_with_both_alike_leaves_the_crossing_where_it_is() -> None:
    one = crossing(found(cpu_spread=BY_A_QUARTER, shared_spread=1.0), "batch")
    assert one == Crossing(at=5, low=4, high=6, cheaper="gpu")


def test_over_the_batches_asked_for() -> None:
    break_even = found(options=Options(batch="8..64"))
    assert [point.at for point in curve(break_even, "batch").points] == [8, 16, 32, 64]
    assert curve(break_even, "batch").crossings == ()  # past 5 a GPU is cheaper everywhere


def test_each_batch_is_of_its_own_step_where_one_trace_does_not_serve_all() -> None:
    # A sample costs the CPU $1e-5 x b and the GPU $1e-3 x (0.4 / b + 1e-3 b): $2e-5 and $2.02e-4 in batches of 2, $8e-5
    # and $5.8e-5 in batches of 8. They cost the same at 0.4 / b = 9e-3 b, b = 6.7.
    found = break_even(asked_of_padded(Options(batch="2,8", samples=10**6)))
    usd = [[one.job_usd.mid for one in (at.cpu, at.gpu) if one] for at in curve(found, "batch").points]
    assert usd == [pytest.approx([20, 202]), pytest.approx([80, 58])]
    assert crossing(found, "batch").at == 7


@pytest.mark.parametrize("is_affine", [True, False])
def test_the_best_of_several_batches_is_that_of_the_ranking(is_affine: bool) -> None:
    question = asked_of_padded(Options(batch="4,8"), is_affine=is_affine)
    rule, answer = break_even(question).folk_rule, rank(question)
    assert rule is not None
    # In batches of 4 a sample takes the CPU 0.4 s, in batches of 8 the GPU 0.058 s.
    assert (rule.cpu.batch, rule.gpu.batch, rule.speed_ratio.mid) == (4, 8, pytest.approx(0.4 / 0.058))
    costs = {quote.device.kind: quote.job_usd.mid for quote in answer.quotes}
    assert {"cpu": rule.cpu.job_usd.mid, "gpu": rule.gpu.job_usd.mid} == costs


@pytest.mark.parametrize("samples", [100, 1000])
def test_machines_are_chosen_for_each_job_with_the_time_that_they_take_to_start(samples: int) -> None:
    # Two steps of 512 samples take one GPU 2 x 5.52 s, and two of them 2 x 2.96 s; each starts in 5 s. Within 13 s both
    # could compute, and one of them is cheaper, but starts too late for it. A step alone needs only one.
    networked = replace(GPU_OFFER, network_bytes_per_s=1e10)
    billing = Billing(start_ups={"acme": start_up(5.0)})
    options = Options(mode="training", precision="fp32", samples=samples, batch="512", deadline=13.0, max_machines=2)
    question = question_of(
        replace(net(), mode="training", batch=512),
        options,
        catalog=replace(catalog(billing=billing), offers=(CPU_OFFER, networked)),
    )
    best = rank(replace(question, options=replace(options, samples=1000))).best
    assert best is not None
    assert (best.instance_count, best.job_s.mid) == (2, pytest.approx(10.92, rel=1e-3))
    (point,) = (point for point in curve(break_even(question), "samples").points if point.at == 1000)
    assert point.gpu is not None
    assert (point.gpu.instance_count, point.gpu.job_usd.mid) == (2, pytest.approx(best.job_usd.mid))


def test_over_requests_a_day() -> None:
    # In batches of 100 a CPU does 1 sample a second, at 70 % 60,480 a day; a GPU 50 a second, 4 million a day. Ten CPUs
    # cost what a GPU does, and serve 604,800; the eleventh makes the GPU cheaper.
    # CPUs 1.25 times slower: ten serve 483,840. 1.25 times faster: 756,000.
    one = crossing(found(options=Options(batch="100"), cpu_spread=BY_A_QUARTER), "requests_per_day")
    assert (one.at, one.low, one.high) == pytest.approx((604_801, 483_841, 756_001), rel=1e-4)
    assert one.cheaper == "gpu"


def test_over_the_samples_of_a_job_start_up_counts() -> None:
    # 10 s to start. k batches of 10 cost 1e-4 x (10 + 10 k) and 1e-3 x (10 + 0.5 k): the same at k = 18, so a GPU is
    # cheaper from the first sample of the 19th batch on.
    # A CPU 1.25 times slower, 12.5 s a batch: k = 12. One 1.25 times faster, 8 s: k = 30.
    billing = Billing(start_ups={"acme": start_up(10.0)})
    one = crossing(found(options=Options(batch="10"), cpu_spread=BY_A_QUARTER, billing=billing), "samples")
    assert one == Crossing(at=181, low=121, high=301, cheaper="gpu")


def test_over_the_samples_of_a_job_the_least_that_is_billed_counts() -> None:
    # Both are billed for 60 s at least: the GPU's 6 cents pay for 600 s of the CPU, 10 s to start and 59 batches.
    rule = BillingRule(increment_s=1e-9, minimum_s=60.0, basis="published", source="by hand")
    billing = Billing(rules={"acme": rule}, start_ups={"acme": start_up(10.0)})
    assert crossing(found(options=Options(batch="10"), billing=billing), "samples").at == 591


def test_over_a_parameter_of_the_factory() -> None:
    # A width of w moves w x 8e7 bytes a sample: 0.01 w and 1e-4 w seconds. In batches of 10 a sample costs 1e-6 w and
    # 4e-5 + 1e-7 w dollars. The logarithms of the ratios are log(32 / 43.2) = -0.3001 at 32 and log(64 / 46.4) =
    # 0.3216 at 64: zero at 32 x 2^0.4827 = 44.7. (The costs themselves are the same at 44.4.)
    widths = Variation(parameter="width", workloads={width: net(width=width * 10**7) for width in (16, 32, 64)})
    answer = break_even(
        question_of(net(), Options(batch="10", precision="fp32"), catalog=catalog()), variations=[widths]
    )
    one = curve(answer, "parameter")
    assert (one.name, [point.at for point in one.points]) == ("width", [16, 32, 64])
    assert [change.at for change in one.crossings] == [45]


def test_without_a_crossing_the_curve_says_so_by_having_none() -> None:
    # In batches of one the GPU takes 0.41 s a sample at ten times the price: never cheaper, whatever the size.
    break_even = found(options=Options(batch="1"))
    assert curve(break_even, "samples").crossings == ()


def test_where_a_device_can_do_no_more_the_other_takes_over() -> None:
    # One sample takes the GPU 0.41 s and the CPU 1 s: neither keeps 0.3 s.
    with pytest.raises(NothingFitsError, match="no instance"):
        found(options=Options(max_latency=0.3))
    # 0.5 s lets in a GPU with batches up to 10, and no CPU.
    break_even = found(options=Options(max_latency=0.5))
    assert break_even.folk_rule is None
    assert {point.cpu for point in curve(break_even, "batch").points} == {None}
    assert [point.at for point in curve(break_even, "batch").points if point.gpu] == [1, 2, 4, 8]


def test_training_has_no_requests_and_a_fixed_batch_no_curve() -> None:
    training = found(step=replace(net(), mode="training"), options=Options(mode="training"))
    assert [one.kind for one in training.curves] == ["batch", "samples"]
    (note,) = training.left_out
    assert_says(note, "requests per day", "training")
    fixed = found(step=replace(net(), batch_is_affine=False))
    assert [one.kind for one in fixed.curves] == ["requests_per_day", "samples"]
    assert_says(fixed.left_out[0], "the batch", "not known")
    timed = found(options=Options(samples=1000, deadline=1e6))
    (note,) = timed.left_out
    assert_says(note, "requests per day", "--deadline")


@pytest.mark.parametrize(("kind", "missing"), [("gpu", "CPU"), ("cpu", "GPU")])
def test_both_kinds_must_be_left_to_choose_from(kind: str, missing: str) -> None:
    with pytest.raises(NothingFitsError, match=f"no {missing} .*--device"):
        found(options=Options(device=(kind,)))


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        (Options(gpus=1, provider=("acme",)), "--gpus"),  # acme has CPUs
        (Options(gpus=1, device=("gpu",), provider=("acme",)), "--provider and --device and --gpus"),
    ],
)
def test_the_flags_that_leave_a_kind_out_are_named(options: Options, flags: str) -> None:
    with pytest.raises(NothingFitsError, match=f"no CPU is left to compare with after {flags}$"):
        found(options=options)


def test_the_machine_at_hand_is_not_rented() -> None:
    with pytest.raises(UsageError, match="--device local"):
        found(options=Options(device=("local",)))


@pytest.mark.parametrize("objective", ["time", "cost-time", "co2"])
def test_only_costs_are_compared(objective: Objective) -> None:
    with pytest.raises(UsageError, match=f"--objective {objective}"):
        found(options=Options(objective=objective))


def test_a_batch_of_0_is_none() -> None:
    with pytest.raises(UsageError, match=r"^--batch 0: '0'"):
        found(options=Options(batch="0"))


NET = """
    import torch
    from torch import nn

    def get_model(width=64):
        return nn.Sequential(nn.Linear(width, width), nn.ReLU())

    def example_inputs(batch=16, width=64):
        return torch.zeros(batch, width)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("net") / "net.py"
    file.write_text(dedent(NET))
    return str(file)


@pytest.fixture
def breakeven(source: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    def call(*flags: str) -> dict[str, Any]:
        assert run(["breakeven", source, "-o", "json", *flags]) == ExitCode.ANSWER
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return call


def test_the_command_varies_what_it_is_asked_to(breakeven: Callable[..., dict[str, Any]]) -> None:
    by_kind = {one["kind"]: one for one in breakeven("--vary", "width=64,4096")["curves"]}
    assert set(by_kind) == {"batch", "requests_per_day", "samples", "parameter"}
    small, large = by_kind["parameter"]["points"]
    assert (small["at"], large["at"]) == (64, 4096)
    assert small["cpu"]["job_usd"]["mid"] < large["cpu"]["job_usd"]["mid"]


def test_its_contenders_cost_what_the_ranking_says(
    source: str, breakeven: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--batch", "32", "--samples", "1000000000", "--provider", "aws", "--no-local")
    rule = breakeven(*flags, "--vary", "width=64,128")["folk_rule"]
    assert run([source, "-o", "json", *flags]) == ExitCode.ANSWER
    quotes = json.loads(capsys.readouterr().out)["quotes"]
    for kind in ("cpu", "gpu"):
        first = next(quote for quote in quotes if quote["device"]["kind"] == kind)
        assert (rule[kind]["id"], rule[kind]["job_usd"]) == (first["id"], first["job_usd"])


def test_a_live_model_takes_the_keywords_of_recommend() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    break_even = advisor.breakeven(model, torch.zeros(4, 64), provider="aws", batch="1..16", samples=1000)
    assert [one.kind for one in break_even.curves] == ["batch", "requests_per_day", "samples"]
    assert break_even.job.samples == 1000
    assert "By batch size:" in repr(break_even)
    with pytest.raises(TypeError, match=r"breakeven\(\) .*'speed'"):
        advisor.breakeven(model, torch.zeros(4, 64), speed=1)


def test_a_saved_workload_is_enough(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = str(tmp_path / "net.json")
    assert run(["profile", source, "-o", saved]) == ExitCode.ANSWER
    assert run(["breakeven", saved]) == ExitCode.ANSWER
    assert "By requests per day" in capsys.readouterr().out
    assert run(["breakeven", saved, "--vary", "width=1..8"]) == ExitCode.USAGE
    assert "names no factory" in capsys.readouterr().err
